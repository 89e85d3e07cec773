"""Probes that send an HTTP GET."""

from datetime import timedelta
from functools import partial

from klet.api.handlers import HTTPGetAction
from klet.host.http_client import BodyError, HttpClient, HttpError
from klet.model.foreign_text import read_output
from klet.model.http_get import PROBE_AGENT, HeaderError, HttpGet, PortError, build_http_get
from klet.probes.handler import ProbeAnswer, ProbeOutcome, ProbeTarget, Question, answer_always


def prepare_http(client: HttpClient, action: HTTPGetAction, target: ProbeTarget) -> Question:
    """Prepare the request; it is the same each time, so it is built once."""
    try:
        request = build_http_get(action, target.container, pod_ip=target.pod_ip, agent=PROBE_AGENT)
    except PortError as error:
        return answer_always(ProbeOutcome(ProbeAnswer.UNKNOWN, error=str(error)))
    except HeaderError as error:
        return answer_always(ProbeOutcome(ProbeAnswer.FAILURE, str(error)))
    return partial(probe_http, client, request, target.timeout)


async def probe_http(client: HttpClient, request: HttpGet, timeout: timedelta) -> ProbeOutcome:
    """Send the request: 200 to 399 is success; from 300 it is a warning, as a redirection was not followed."""
    try:
        response = await client.get(request, timeout=timeout)
    except HttpError as error:
        return ProbeOutcome(ProbeAnswer.FAILURE, str(error))
    except BodyError as error:
        return ProbeOutcome(ProbeAnswer.FAILURE, error=str(error))
    if not 200 <= response.status < 400:
        return ProbeOutcome(ProbeAnswer.FAILURE, f"HTTP probe failed with statuscode: {response.status}")
    body = read_output(response.body)
    if response.status >= 300:
        return ProbeOutcome(ProbeAnswer.WARNING, f"Probe terminated redirects, Response body: {body}")
    return ProbeOutcome(ProbeAnswer.SUCCESS, body)

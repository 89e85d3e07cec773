"""Runs a probe with the handler that its spec names (upstream: prober)."""

import logging
from functools import partial
from typing import Final

from klet.cri.port import CommandRunner
from klet.host.http_client import HttpClient
from klet.model.foreign_text import shorten
from klet.model.pods import format_pod
from klet.probes.exec_probe import probe_exec
from klet.probes.grpc_probe import probe_grpc
from klet.probes.handler import ProbeAnswer, ProbeOutcome, ProbeTarget, Question, answer_always
from klet.probes.http_probe import prepare_http
from klet.probes.tcp_probe import probe_tcp

logger = logging.getLogger(__name__)

TRIES = 3
_LONGEST_ERROR: Final = 512


class Prober:
    """Runs probes."""

    def __init__(self, *, runtime: CommandRunner, http: HttpClient) -> None:
        self._runtime = runtime
        self._http = http

    def prepare(self, target: ProbeTarget) -> Question:
        """Return a probe to run; it may be used again as long as the target stays the same."""
        return partial(_ask, self._once(target))

    def _once(self, target: ProbeTarget) -> Question:
        probe = target.probe
        if probe.exec is not None:
            return partial(probe_exec, self._runtime, probe.exec, target)
        if probe.http_get is not None:
            return prepare_http(self._http, probe.http_get, target)
        if probe.tcp_socket is not None:
            return partial(probe_tcp, probe.tcp_socket, target)
        if probe.grpc is not None:
            return partial(probe_grpc, probe.grpc, target)
        error = f"missing probe handler for {format_pod(target.pod)}:{target.container.name}"
        return answer_always(ProbeOutcome(ProbeAnswer.UNKNOWN, error=error))


async def _ask(question: Question) -> ProbeOutcome:
    """Run the probe; retry if it could not be run, but not after a failure."""
    for _ in range(TRIES):
        outcome = await _ask_once(question)
        if not outcome.error:
            break
    return outcome


async def _ask_once(question: Question) -> ProbeOutcome:
    """Run the probe once: the boundary where any error concerns this container only."""
    try:
        return await question()
    except Exception as error:
        logger.exception("A probe could not be carried out")
        return ProbeOutcome(ProbeAnswer.UNKNOWN, error=shorten(f"{type(error).__name__}: {error}", _LONGEST_ERROR))

"""Runs a probe with the handler that its spec names: a command, HTTP, TCP, gRPC (upstream: prober)."""

import asyncio
import logging
from datetime import timedelta
from functools import partial
from typing import Final

import grpc
from grpc import aio

from klet.api.container import Container
from klet.api.handlers import ExecAction, GRPCAction, HTTPGetAction, TCPSocketAction
from klet.api.pod import Pod
from klet.api.times import Duration
from klet.cri.errors import Code, CriError, ExecTimeout
from klet.cri.port import CommandRunner
from klet.host.http_client import BodyError, HttpClient, HttpError, describe_dial
from klet.model.expansion import ExpansionError, expand_all
from klet.model.foreign_text import read_output, shorten
from klet.model.http_get import (
    PROBE_AGENT,
    HeaderError,
    HttpGet,
    PortError,
    build_http_get,
    join_host_port,
    resolve_port,
    user_agent,
)
from klet.model.pods import format_pod
from klet.model.probes import ProbeKind
from klet.probes.handler import MAX_OUTPUT, ProbeAnswer, ProbeOutcome, ProbeTarget, Question, answer_always
from klet.wire import cri_v1_pb2 as cri
from klet.wire import health_v1_pb2 as health
from klet.wire.methods import answer_reader, method_of

logger = logging.getLogger(__name__)

TRIES = 3
_LONGEST_ERROR: Final = 512
CHECK = method_of(
    health.DESCRIPTOR.services_by_name["Health"], "Check", health.HealthCheckRequest, health.HealthCheckResponse
)

_GRPC_OPTIONS: tuple[tuple[str, str | int], ...] = (
    ("grpc.primary_user_agent", user_agent(PROBE_AGENT)),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
    ("grpc.max_receive_message_length", 64 * 1024),  # the answer is one number
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.use_local_subchannel_pool", 1),  # each probe makes its own connection: an old one would prove nothing
)


class Prober:
    """Runs probes."""

    def __init__(self, *, runtime: CommandRunner, http: HttpClient) -> None:
        self._runtime = runtime
        self._http = http

    def prepare(self, target: ProbeTarget) -> Question:
        """Return a probe to run; it may be used again as long as the target stays the same."""
        return partial(_ask, self._once(target))

    def forget(self, pod: Pod, container: str, kind: ProbeKind) -> None:
        """Do nothing: a probe keeps nothing."""

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


async def probe_tcp(action: TCPSocketAction, target: ProbeTarget) -> ProbeOutcome:
    """Open a connection: that is success; nothing is sent."""
    try:
        port = resolve_port(action.port, target.container)
    except PortError as error:
        return ProbeOutcome(ProbeAnswer.UNKNOWN, error=str(error))
    host = action.host or target.pod_ip
    try:
        async with asyncio.timeout(target.timeout.total_seconds()):
            transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, host, port)
    except TimeoutError:
        return ProbeOutcome(ProbeAnswer.FAILURE, f"dial tcp {join_host_port(host, port)}: i/o timeout")
    except (OSError, UnicodeError) as error:
        return ProbeOutcome(ProbeAnswer.FAILURE, describe_dial(host, port, error))
    transport.abort()
    return ProbeOutcome(ProbeAnswer.SUCCESS)


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


async def probe_exec(runtime: CommandRunner, action: ExecAction, target: ProbeTarget) -> ProbeOutcome:
    """Run the command: exit code 0 is success; one that does not end in time has failed."""
    try:
        request = cri.ExecSyncRequest(
            container_id=target.id,
            cmd=expand_command(action, target.container),
            timeout=int(target.timeout.total_seconds()),
        )
        answer = await runtime.exec_sync(request)
    except ExecTimeout as error:
        return ProbeOutcome(ProbeAnswer.FAILURE, str(error))
    except (CriError, ExpansionError) as error:
        return ProbeOutcome(ProbeAnswer.UNKNOWN, error=str(error))
    output = read_output(answer.stdout, answer.stderr, limit=MAX_OUTPUT)
    return ProbeOutcome(ProbeAnswer.FAILURE if answer.exit_code else ProbeAnswer.SUCCESS, output)


def expand_command(action: ExecAction, container: Container) -> list[str]:
    """Return the expanded command. Only values in the spec are known here; variables from elsewhere are empty."""
    values = {variable.name: variable.value for variable in container.env}
    return expand_all(action.command, values)


async def probe_grpc(action: GRPCAction, target: ProbeTarget) -> ProbeOutcome:
    """Call the health service: SERVING is success. Connection, retries of it and call share the timeout."""
    service = join_host_port(target.pod_ip, action.port)
    family = "ipv6" if ":" in target.pod_ip else "ipv4"
    limit = Duration.of(target.timeout).wire()
    is_connected = False
    async with aio.insecure_channel(f"{family}:{service}", options=_GRPC_OPTIONS) as channel:
        try:
            async with asyncio.timeout(target.timeout.total_seconds()):
                await channel.channel_ready()
                is_connected = True
                return await _check_health(channel, action, limit=target.timeout)
        except TimeoutError:
            if is_connected:
                return ProbeOutcome(ProbeAnswer.FAILURE, f"timeout: health rpc did not complete within {limit}")
            why = f'timeout: failed to connect service "{service}" within {limit}: context deadline exceeded'
            return ProbeOutcome(ProbeAnswer.FAILURE, why)


async def _check_health(channel: aio.Channel, action: GRPCAction, *, limit: timedelta) -> ProbeOutcome:
    call = channel.unary_unary(CHECK.path, CHECK.request.SerializeToString, answer_reader(CHECK.response))
    try:
        answer: health.HealthCheckResponse | None = await call(health.HealthCheckRequest(service=action.service or ""))
    except aio.AioRpcError as error:
        return ProbeOutcome(ProbeAnswer.FAILURE, _describe_rpc_error(error, limit))
    if answer is None:
        what = "grpc: failed to unmarshal the received message"
        return ProbeOutcome(
            ProbeAnswer.FAILURE, f"error: health rpc probe failed: rpc error: code = Internal desc = {what}"
        )
    if answer.status == health.HealthCheckResponse.SERVING:
        return ProbeOutcome(ProbeAnswer.SUCCESS, "service healthy")
    return ProbeOutcome(ProbeAnswer.FAILURE, f'service unhealthy (responded with "{_health_name(answer.status)}")')


def _describe_rpc_error(error: aio.AioRpcError, limit: timedelta) -> str:
    details = shorten(error.details() or "")
    match error.code():
        case grpc.StatusCode.UNIMPLEMENTED:
            what = "this server does not implement the grpc health protocol (grpc.health.v1.Health)"
            return f"error: {what}: {details}"
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return f"timeout: health rpc did not complete within {Duration.of(limit).wire()}"
        case code:
            return f"error: health rpc probe failed: rpc error: code = {Code[code.name]} desc = {details}"


def _health_name(number: int) -> str:
    """Return the name of a status; a number that the protocol does not name stays a number."""
    names = health.HealthCheckResponse.ServingStatus
    return names.Name(number) if number in names.values() else str(number)

"""Probes that ask a gRPC server for its health (grpc.health.v1)."""

import asyncio
from datetime import timedelta

import grpc
from grpc import aio

from klet.api.handlers import GRPCAction
from klet.api.times import Duration
from klet.cri.errors import Code
from klet.model.foreign_text import shorten
from klet.model.http_get import PROBE_AGENT, join_host_port, user_agent
from klet.probes.handler import ProbeAnswer, ProbeOutcome, ProbeTarget
from klet.wire import health_v1_pb2 as health
from klet.wire.methods import answer_reader, method_of

CHECK = method_of(
    health.DESCRIPTOR.services_by_name["Health"], "Check", health.HealthCheckRequest, health.HealthCheckResponse
)

_OPTIONS: tuple[tuple[str, str | int], ...] = (
    ("grpc.primary_user_agent", user_agent(PROBE_AGENT)),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
    ("grpc.max_receive_message_length", 64 * 1024),  # the answer is one number
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.use_local_subchannel_pool", 1),  # each probe makes its own connection: an old one would prove nothing
)


async def probe_grpc(action: GRPCAction, target: ProbeTarget) -> ProbeOutcome:
    """Call the health service: SERVING is success. Connection, retries of it and call share the timeout."""
    service = join_host_port(target.pod_ip, action.port)
    family = "ipv6" if ":" in target.pod_ip else "ipv4"
    limit = Duration.of(target.timeout).wire()
    is_connected = False
    async with aio.insecure_channel(f"{family}:{service}", options=_OPTIONS) as channel:
        try:
            async with asyncio.timeout(target.timeout.total_seconds()):
                await channel.channel_ready()
                is_connected = True
                return await _check(channel, action, limit=target.timeout)
        except TimeoutError:
            if is_connected:
                return ProbeOutcome(ProbeAnswer.FAILURE, f"timeout: health rpc did not complete within {limit}")
            why = f'timeout: failed to connect service "{service}" within {limit}: context deadline exceeded'
            return ProbeOutcome(ProbeAnswer.FAILURE, why)


async def _check(channel: aio.Channel, action: GRPCAction, *, limit: timedelta) -> ProbeOutcome:
    call = channel.unary_unary(CHECK.path, CHECK.request.SerializeToString, answer_reader(CHECK.response))
    try:
        answer: health.HealthCheckResponse | None = await call(health.HealthCheckRequest(service=action.service or ""))
    except aio.AioRpcError as error:
        return ProbeOutcome(ProbeAnswer.FAILURE, _describe(error, limit))
    if answer is None:
        what = "grpc: failed to unmarshal the received message"
        return ProbeOutcome(
            ProbeAnswer.FAILURE, f"error: health rpc probe failed: rpc error: code = Internal desc = {what}"
        )
    if answer.status == health.HealthCheckResponse.SERVING:
        return ProbeOutcome(ProbeAnswer.SUCCESS, "service healthy")
    return ProbeOutcome(ProbeAnswer.FAILURE, f'service unhealthy (responded with "{_status_name(answer.status)}")')


def _describe(error: aio.AioRpcError, limit: timedelta) -> str:
    details = shorten(error.details() or "")
    match error.code():
        case grpc.StatusCode.UNIMPLEMENTED:
            what = "this server does not implement the grpc health protocol (grpc.health.v1.Health)"
            return f"error: {what}: {details}"
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return f"timeout: health rpc did not complete within {Duration.of(limit).wire()}"
        case code:
            return f"error: health rpc probe failed: rpc error: code = {Code[code.name]} desc = {details}"


def _status_name(number: int) -> str:
    """Return the name of a status; a number that the protocol does not name stays a number."""
    names = health.HealthCheckResponse.ServingStatus
    return names.Name(number) if number in names.values() else str(number)

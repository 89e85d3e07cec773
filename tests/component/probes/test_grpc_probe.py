"""gRPC probes against health servers on loopback."""

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta

import grpc
import pytest
from grpc import aio

from klet.api.handlers import GRPCAction, Probe
from klet.probes.handler import MAX_OUTPUT, ProbeAnswer, ProbeOutcome
from klet.wire import health_v1_pb2 as health
from klet.wire.methods import service_handler

HEALTH = health.DESCRIPTOR.services_by_name["Health"]
Status = health.HealthCheckResponse.ServingStatus
SHORT = timedelta(milliseconds=200)


@asynccontextmanager
async def serve_health(check=None, *, port=0):
    server = aio.server()
    if check is not None:
        server.add_generic_rpc_handlers((service_handler(HEALTH, {"Check": check}),))
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(grace=None)


def answering(status):
    async def check(request, context):
        return health.HealthCheckResponse(status=status)

    return check


def asking(port, service=None):
    return Probe(grpc=GRPCAction(port=port, service=service))


@pytest.mark.parametrize(
    ("status", "want"),
    [
        pytest.param("SERVING", ProbeOutcome(ProbeAnswer.SUCCESS, "service healthy"), id="serving"),
        pytest.param(
            "NOT_SERVING",
            ProbeOutcome(ProbeAnswer.FAILURE, 'service unhealthy (responded with "NOT_SERVING")'),
            id="not serving",
        ),
        pytest.param(
            "UNKNOWN", ProbeOutcome(ProbeAnswer.FAILURE, 'service unhealthy (responded with "UNKNOWN")'), id="unknown"
        ),
    ],
)
async def test_statuses(prober, target, status, want):
    async with serve_health(answering(Status.Value(status))) as port:
        assert await prober.prepare(target(asking(port)))() == want


async def test_a_status_without_a_name(prober, target):
    async with serve_health(answering(17)) as port:
        outcome = await prober.prepare(target(asking(port)))()
    assert outcome.output == 'service unhealthy (responded with "17")'


async def test_service_and_user_agent(prober, target):
    seen = []

    async def check(request, context):
        agent = dict(context.invocation_metadata())["user-agent"]
        seen.append((request.service, agent.split(" ")[0]))
        return health.HealthCheckResponse(status=Status.Value("SERVING"))

    async with serve_health(check) as port:
        await prober.prepare(target(asking(port)))()
        await prober.prepare(target(asking(port, "db")))()
    assert seen == [("", "kube-probe/1.35"), ("db", "kube-probe/1.35")]


async def test_a_server_without_the_health_service(prober, target):
    async with serve_health() as port:
        outcome = await prober.prepare(target(asking(port)))()
    why = "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): "
    assert outcome.answer is ProbeAnswer.FAILURE
    assert outcome.output.startswith(why)


async def test_another_error(prober, target):
    async def check(request, context):
        await context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")

    async with serve_health(check) as port:
        outcome = await prober.prepare(target(asking(port, "x")))()
    why = "error: health rpc probe failed: rpc error: code = NotFound desc = unknown service"
    assert outcome == ProbeOutcome(ProbeAnswer.FAILURE, why)


async def test_a_server_that_does_not_answer(prober, target):
    async def check(request, context):
        await asyncio.Event().wait()

    async with serve_health(check) as port:
        outcome = await prober.prepare(target(asking(port), timeout=SHORT))()
    assert outcome == ProbeOutcome(ProbeAnswer.FAILURE, "timeout: health rpc did not complete within 200ms")


async def test_nobody_listens(prober, target, closed_port):
    outcome = await prober.prepare(target(asking(closed_port), timeout=SHORT))()
    address = f"127.0.0.1:{closed_port}"
    why = f'timeout: failed to connect service "{address}" within 200ms: context deadline exceeded'
    assert outcome == ProbeOutcome(ProbeAnswer.FAILURE, why)


async def test_the_text_of_an_error_is_bounded(prober, target):
    async def check(request, context):
        await context.abort(grpc.StatusCode.NOT_FOUND, "x" * 1_000_000)

    async with serve_health(check) as port:
        outcome = await prober.prepare(target(asking(port)))()
    assert outcome.answer is ProbeAnswer.FAILURE
    assert len(outcome.output) <= MAX_OUTPUT + 100


async def test_an_answer_that_is_too_long_is_not_read(prober, target):
    def check(request, context):
        return b"\x08\x01" + b"\x12\x80\x80\x40" + b"x" * (1 << 20)  # SERVING, and a field that nobody knows

    handler = grpc.unary_unary_rpc_method_handler(check)
    server = aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(HEALTH.full_name, {"Check": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        outcome = await prober.prepare(target(asking(port)))()
    finally:
        await server.stop(grace=None)
    assert outcome.answer is ProbeAnswer.FAILURE
    assert "code = ResourceExhausted" in outcome.output


async def test_an_answer_that_is_no_message(prober, target):
    async def check(_request, _context):
        return b"a"

    server = aio.server()
    handler = grpc.unary_unary_rpc_method_handler(check)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(HEALTH.full_name, {"Check": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    outcome = await prober.prepare(target(asking(port)))()
    await server.stop(grace=None)
    assert outcome.answer is ProbeAnswer.FAILURE
    assert outcome.output.endswith("code = Internal desc = grpc: failed to unmarshal the received message")

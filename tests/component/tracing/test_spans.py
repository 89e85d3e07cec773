"""Spans as a collector receives them, from each place where the kubelet makes them."""

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from grpc import aio

from klet.aio.clock import SystemClock
from klet.api.node import Node
from klet.app.tracing import open_tracer
from klet.config.sections import Tracing
from klet.cri import calls
from klet.cri.calls import RUNTIME_SERVICE
from klet.cri.client import connect
from klet.cri.connection import open_connection
from klet.cri.errors import CriError
from klet.errors import KletError
from klet.kube.access import Access, Login
from klet.kube.client import KubeClient
from klet.kube.credentials import Credentials
from klet.kube.errors import NotFound
from klet.kube.throttle import Unlimited
from klet.kube.transport import Transport
from klet.sync.requeue import StepFailure
from klet.sync.traced_steps import TracedSteps
from klet.sync.worker_roles import StepResult
from klet.testing.builders import make_pod
from klet.testing.cri_server import serve_cri
from klet.testing.fake_runtime.machine import FakeRuntime
from klet.testing.otlp import run_collector
from klet.tracing.provider import choose_sampler
from klet.wire import cri_v1_pb2 as cri
from klet.wire.methods import service_handler

ALL = 1_000_000
WITHIN = 30


@asynccontextmanager
async def tracing(rate=ALL):
    """A tracer and its collector. The spans are there after the inner block."""
    async with run_collector() as (collector, endpoint), asyncio.timeout(WITHIN):
        yield collector, open_tracer(Tracing(endpoint=endpoint, sampling_rate_per_million=rate), host_name="n1")


def is_sampled(traceparent):
    return bool(int(traceparent.rpartition("-")[2], 16) & 1)


class Runtime:
    """Answers Version, and keeps the metadata of the calls."""

    def __init__(self):
        self.metadata = []

    async def version(self, _request, context):
        self.metadata.append(dict(context.invocation_metadata()))
        return cri.VersionResponse(version="0.1.0", runtime_name="r", runtime_version="1", runtime_api_version="v1")

    @asynccontextmanager
    async def serving(self, socket):
        server = aio.server()
        server.add_generic_rpc_handlers((service_handler(RUNTIME_SERVICE, {"Version": self.version}),))
        server.add_insecure_port(f"unix:{socket}")
        await server.start()
        yield f"unix://{socket}"
        await server.stop(grace=None)


async def test_a_call_of_the_runtime_is_a_child_whose_trace_goes_on_in_the_runtime(tmp_path):
    runtime = Runtime()
    async with tracing() as (collector, opened), runtime.serving(tmp_path / "s") as endpoint:
        async with opened as tracer, open_connection(endpoint, tracer=tracer) as connection:
            with tracer.span("syncPod", scope="test"):
                await connection.call(calls.VERSION, cri.VersionRequest(version="0.1.0"), timeout=timedelta(seconds=5))
        (parent,), (span,) = collector.named("syncPod"), collector.named("runtime.v1.RuntimeService/Version")
    assert (span.trace, span.parent, span.kind) == (parent.trace, parent.id, "CLIENT")
    assert span.scope == "go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
    assert span.attributes == {
        "rpc.service": "runtime.v1.RuntimeService",
        "rpc.method": "Version",
        "rpc.system": "grpc",
        "rpc.grpc.status_code": 0,
    }
    assert [(name, event["message.type"], event["message.id"]) for name, event in span.events] == [
        ("message", "SENT", 1),
        ("message", "RECEIVED", 1),
    ]
    assert span.resource == {"service.name": "kubelet", "host.name": "n1"}
    carried = runtime.metadata[0]["traceparent"]
    assert carried.startswith(f"00-{span.trace}-{span.id}-")
    assert is_sampled(carried)


async def test_a_call_that_fails_is_a_span_that_failed(tmp_path):
    clock = SystemClock()
    runtime = FakeRuntime(start=clock.now())
    async with tracing() as (collector, opened), serve_cri(runtime, clock=clock, socket=tmp_path / "s") as endpoint:
        async with (
            opened as tracer,
            connect(runtime_endpoint=endpoint, timeout=timedelta(seconds=5), tracer=tracer) as client,
        ):
            with pytest.raises(CriError) as caught:
                await client.container_status(cri.ContainerStatusRequest(container_id="none"))
        (span,) = collector.named("runtime.v1.RuntimeService/ContainerStatus")
    assert span.has_failed
    assert span.message in str(caught.value)
    assert (span.attributes["rpc.grpc.status_code"], span.parent) == (5, "")


class Steps:
    """Steps of a worker that end as the test says."""

    def __init__(self, result=None, error=None):
        self.result = result or StepResult()
        self.error = error

    async def sync(self, _pod, _status, **_options):
        return self.result

    async def terminate(self, _pod, _status, **_options):
        if self.error is not None:
            raise self.error

    async def finish(self, _pod, _status, **_options):
        return


async def test_the_steps_of_a_pod_are_spans_with_upstreams_names_and_attributes():
    pod = make_pod("main", name="p", uid="u-1")
    async with tracing() as (collector, opened):
        async with opened as tracer:
            steps = TracedSteps(inner=Steps(), tracer=tracer)
            status = object()
            await steps.sync(pod, status, cause=None)
            await steps.sync(pod, status, cause=None)
            await steps.sync(make_pod("main", "other", name="p", uid="u-1"), status, cause=None)
            ends = {"grace": None, "change": None, "cause": None}
            await steps.terminate(pod, status, is_runtime_only=False, **ends)
            await steps.terminate(pod, status, is_runtime_only=True, **ends)
            await steps.finish(pod, status, was_over=False, cause=None)
        spans = collector.spans
    about = {"k8s.pod.uid": "u-1", "k8s.pod": "default/p", "k8s.pod.name": "p", "k8s.namespace.name": "default"}
    assert [(span.name, span.attributes) for span in spans] == [
        ("syncPod", {**about, "k8s.pod.update_type": "create"}),
        ("syncPod", {**about, "k8s.pod.update_type": "sync"}),
        ("syncPod", {**about, "k8s.pod.update_type": "update"}),
        ("syncTerminatingPod", about),
        ("syncTerminatedPod", about),
    ]
    assert {(span.scope, span.kind, span.parent) for span in spans} == {
        ("k8s.io/kubernetes/pkg/kubelet", "INTERNAL", "")
    }


async def test_a_step_that_fails_is_a_span_that_failed():
    pod = make_pod("main", name="p", uid="u-1")
    async with tracing() as (collector, opened):
        async with opened as tracer:
            failing = Steps(StepResult(failure=StepFailure.NETWORK_NOT_READY), error=KletError("shim is stuck"))
            steps = TracedSteps(inner=failing, tracer=tracer)
            await steps.sync(pod, object(), cause=None)
            with pytest.raises(KletError):
                await steps.terminate(pod, object(), grace=None, change=None, is_runtime_only=False, cause=None)
        first, second = collector.spans
    assert (first.has_failed, first.message) == (True, "network not ready")
    assert (second.has_failed, second.message) == (True, "shim is stuck")
    assert second.events == [("exception", {"exception.type": "KletError", "exception.message": "shim is stuck"})]


async def test_a_request_to_the_api_server_is_a_span(cluster):
    login = Login(token="secret")
    async with tracing() as (collector, opened):
        async with opened as tracer:
            transport = Transport(
                access=Access(server=f"http://127.0.0.1:{cluster.port}", login=login),
                credentials=Credentials(login=login, clock=SystemClock()),
                tracer=tracer,
            )
            client = KubeClient(
                transport=transport, throttle=Unlimited(), timeout=timedelta(seconds=10), clock=SystemClock()
            )
            with pytest.raises(NotFound):
                await client.get(Node, "none")
            await transport.close()
        (span,) = collector.named("HTTP GET")
    assert (span.kind, span.has_failed) == ("CLIENT", True)
    assert span.attributes == {
        "http.request.method": "GET",
        "url.full": f"http://127.0.0.1:{cluster.port}/api/v1/nodes/none",
        "server.address": "127.0.0.1",
        "server.port": cluster.port,
        "network.protocol.version": "1.1",
        "http.response.status_code": 404,
        "error.type": "404",
    }


async def test_nothing_is_sampled_without_a_rate():
    async with tracing(rate=None) as (collector, opened):
        async with opened as tracer:
            with tracer.span("syncPod", scope="test") as span:
                assert is_sampled(span.headers()["traceparent"]) is False
        assert collector.spans == []


@pytest.mark.parametrize(
    ("rate", "described"),
    [
        pytest.param(None, "ParentBased{root:AlwaysOffSampler", id="no rate: nothing but what a parent asks for"),
        pytest.param(0, "ParentBased{root:AlwaysOffSampler", id="a rate of zero is the same"),
        pytest.param(100, "ParentBased{root:TraceIdRatioBased{0.0001}", id="so many of a million"),
        pytest.param(ALL, "ParentBased{root:TraceIdRatioBased{1.0}", id="all"),
    ],
)
def test_the_rate_of_samples(rate, described):
    assert choose_sampler(rate).get_description().startswith(described)

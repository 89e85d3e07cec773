"""Spans of the kubelet API."""

from klet.app.tracing import open_tracer
from klet.config.sections import Tracing
from klet.testing.otlp import run_collector

FOREIGN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def test_an_authorized_request_is_the_root_of_a_trace_of_its_own(start):
    async with run_collector() as (collector, endpoint):
        tracing = Tracing(endpoint=endpoint, sampling_rate_per_million=1_000_000)
        async with open_tracer(tracing, host_name="n1") as tracer, start(tracer=tracer) as kubelet:
            async with (
                kubelet.session() as session,
                session.get(
                    "/containerLogs/default/web/main", headers={"traceparent": FOREIGN, "User-Agent": "kubectl"}
                ) as response,
            ):
                assert response.status == 200
            assert (await kubelet.get("/containerLogs/default/gone/main"))[0] == 404
            assert (await kubelet.get("/nowhere"))[0] == 404
    found, missing = collector.spans
    assert found.name == missing.name == "/containerLogs/{podNamespace}/{podID}/{containerName}"
    assert found.trace not in FOREIGN
    assert (found.parent, found.links, found.kind, found.has_failed) == ("", 0, "SERVER", False)
    assert found.scope.endswith("/otelrestful")
    assert found.attributes == {
        "http.method": "GET",
        "http.scheme": "https",
        "http.flavor": "1.1",
        "http.route": "/containerLogs/{podNamespace}/{podID}/{containerName}",
        "http.status_code": 200,
        "http.user_agent": "kubectl",
        "net.host.name": "kubelet",
        "net.sock.peer.addr": "127.0.0.1",
    }
    assert missing.attributes["http.status_code"] == 404


async def test_a_request_that_is_refused_is_not_traced(start):
    async with run_collector() as (collector, endpoint):
        tracing = Tracing(endpoint=endpoint, sampling_rate_per_million=1_000_000)
        async with (
            open_tracer(tracing, host_name="n1") as tracer,
            start(tracer=tracer) as kubelet,
            kubelet.session(None) as session,
            session.get("/pods") as response,
        ):
            assert response.status == 401
    assert collector.spans == []

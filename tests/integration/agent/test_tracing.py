"""The traces of a whole agent, as a collector receives them."""

import asyncio

import pytest

from klet.testing.otlp import run_collector

pytestmark = [pytest.mark.root, pytest.mark.containerd]

SANDBOX = "runtime.v1.RuntimeService/RunPodSandbox"
STARTED = "runtime.v1.RuntimeService/StartContainer"


async def test_the_start_and_the_end_of_a_pod_are_traced_down_to_the_runtime(node, manifest):
    async with run_collector() as (collector, endpoint), asyncio.timeout(60):
        node.write("web", manifest("web", main="sleep 1000"))
        settings = {"endpoint": endpoint, "samplingRatePerMillion": 1_000_000}
        async with node.run(tracing=settings) as agent:
            await agent.recorded("web", "Ready")
            node.remove("web")
            await agent.recorded("web", "Finished")
            assert await agent.stop() == 0
            assert "Traceback" not in agent.log
    created = next(span for span in collector.named("syncPod") if span.attributes["k8s.pod.update_type"] == "create")
    assert created.attributes["k8s.pod"] == "default/web-node"
    assert created.resource == {"service.name": "kubelet", "host.name": "node"}
    for name in (SANDBOX, STARTED):
        (call,) = collector.named(name)
        assert (call.trace, call.parent) == (created.trace, created.id)
    (ending,) = collector.named("syncTerminatingPod")
    assert {span.trace for span in collector.named("runtime.v1.RuntimeService/StopContainer")} == {ending.trace}
    assert collector.named("syncTerminatedPod")
    assert collector.named("Containers/GarbageCollect")
    (images,) = collector.named("Images/GarbageCollect")
    assert images.id in {span.parent for span in collector.named("runtime.v1.ImageService/ListImages")}

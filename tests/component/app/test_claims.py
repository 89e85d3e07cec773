"""A pod with ResourceClaims in the wired agent: it waits, says why, and is let go when it is deleted."""

from datetime import timedelta

from msgspec.structs import replace

from klet.aio.clock import LoopClock
from klet.api.pod import PodResourceClaim
from klet.simulation import DrivenPodSource, SimulatedNode
from klet.testing.builders import IMAGE, make_pod
from klet.testing.fake_runtime import FakeImage, FakeRuntime
from klet.testing.loop import EPOCH, run_virtual

REASON = "FailedPrepareDynamicResources"


def with_claim(pod):
    claims = (PodResourceClaim(name="gpu", resource_claim_name="shared-gpu"),)
    return replace(pod, spec=replace(pod.spec, resource_claims=claims))


def new_node():
    runtime = FakeRuntime(start=EPOCH, images=(FakeImage(name=IMAGE),))
    return SimulatedNode(clock=LoopClock(epoch=EPOCH), runtime=runtime)


def test_a_pod_waits_for_its_claims_and_can_be_removed():
    node = new_node()
    clock = LoopClock(epoch=EPOCH)

    async def story():
        wanted = DrivenPodSource()
        async with node.run_agent(wanted) as running:
            wanted.add(with_claim(make_pod(source="api")))
            await clock.sleep(timedelta(minutes=5))
            waiting = running.agent.statuses.get("uid-1")
            sandboxes = len(node.runtime.sandboxes())
            wanted.remove("uid-1")
            await clock.sleep(timedelta(minutes=1))
            found = [cause.finding for cause in running.journal.all() if cause.finding.decision == REASON]
            return waiting, sandboxes, found, running.agent.statuses.all()

    waiting, sandboxes, found, left = run_virtual(story())
    assert (waiting.phase, sandboxes, left) == ("Pending", 0, {})
    assert waiting.container_statuses[0].state.waiting.reason == "ContainerCreating"
    # At upstream's pace, and not at every occasion.
    assert 4 <= len(found) <= 6
    assert found[0].message.startswith("Failed to prepare dynamic resources: prepare dynamic resources: ")


def test_a_pod_that_another_kubelet_started_runs_on():
    node = new_node()
    clock = LoopClock(epoch=EPOCH)

    async def story():
        first = DrivenPodSource()
        async with node.run_agent(first):
            first.add(make_pod(source="api"))
            await clock.sleep(timedelta(seconds=10))
        second = DrivenPodSource()
        async with node.run_agent(second) as running:
            second.add(with_claim(make_pod(source="api")))
            await clock.sleep(timedelta(minutes=5))
            return running.agent.statuses.get("uid-1"), len(node.runtime.containers())

    status, containers = run_virtual(story())
    assert (status.phase, containers, status.container_statuses[0].restart_count) == ("Running", 1, 0)

"""What the journal records of a pod's first status."""

from datetime import timedelta

from msgspec.structs import replace

from klet.aio.clock import LoopClock
from klet.api.pod import PodStatus
from klet.simulation import DrivenPodSource, SimulatedNode
from klet.testing.builders import IMAGE, make_pod
from klet.testing.fake_runtime import FakeImage, FakeRuntime
from klet.testing.loop import EPOCH, run_virtual


def test_a_new_pod_is_not_reported_as_adopted():
    runtime = FakeRuntime(start=EPOCH, images=(FakeImage(name=IMAGE),))
    node = SimulatedNode(clock=LoopClock(epoch=EPOCH), runtime=runtime)
    pod = replace(make_pod("main", uid="uid-1", source="file"), status=PodStatus(phase="Pending"))

    async def story():
        wanted = DrivenPodSource()
        async with node.run_agent(wanted) as running:
            wanted.add(pod)
            await LoopClock(epoch=EPOCH).sleep(timedelta(seconds=10))
            return [cause.finding.decision for cause in running.journal.all()]

    decisions = run_virtual(story())
    assert "Ready" in decisions
    assert "Adopted" not in decisions

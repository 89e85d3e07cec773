"""A sandbox that cannot be made is tried again, ever more seldom, however often the runtime wakes the pod."""

from datetime import timedelta
from itertools import pairwise

from klet.aio.clock import LoopClock
from klet.cri.errors import Code
from klet.model.pods import PodUID
from klet.simulation import DrivenPodSource, SimulatedNode
from klet.testing.builders import IMAGE, make_pod
from klet.testing.fake_runtime import Fail, FakeImage, FakeRuntime, Fault
from klet.testing.loop import EPOCH, run_virtual


def test_failed_sandboxes_come_ever_more_seldom():
    runtime = FakeRuntime(start=EPOCH, images=(FakeImage(name=IMAGE),))
    runtime.faults.add(Fault("RunPodSandbox", Fail(Code.UNKNOWN, "no network"), count=6))
    node = SimulatedNode(clock=LoopClock(epoch=EPOCH), runtime=runtime)

    async def story():
        wanted = DrivenPodSource()
        async with node.run_agent(wanted) as running:
            wanted.add(make_pod("main", uid="uid-1", source="file"))
            for _ in range(600):
                await LoopClock(epoch=EPOCH).sleep(timedelta(milliseconds=100))
                running.agent.workers.wake(PodUID("uid-1"))  # as the traces of the failed sandboxes would
            return [cause.at for cause in running.journal.all() if cause.finding.decision == "FailedCreatePodSandBox"]

    tries = run_virtual(story())
    gaps = [(after - before).total_seconds() for before, after in pairwise(tries)]
    assert len(tries) == 6
    assert all(gap >= least for gap, least in zip(gaps, (1, 2, 4, 8, 10), strict=True))

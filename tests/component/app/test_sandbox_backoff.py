"""A sandbox that cannot be made is tried again, ever more seldom, however often the runtime wakes the pod."""

from datetime import timedelta
from itertools import pairwise

from klet.aio.clock import LoopClock
from klet.app.simulation import SimulatedNode, WantedPods
from klet.cri.errors import Code
from klet.testing.builders import IMAGE, make_pod
from klet.testing.fake_runtime import FakeImage, FakeRuntime, Fault, HalfDone
from klet.testing.loop import EPOCH, run_virtual


def test_failed_sandboxes_come_ever_more_seldom():
    runtime = FakeRuntime(start=EPOCH, images=(FakeImage(name=IMAGE),))
    # Half done: the runtime keeps the sandbox and says that it failed, so every try leaves something new to be seen.
    runtime.faults.add(Fault("RunPodSandbox", HalfDone(Code.UNKNOWN, "no network"), count=6))
    node = SimulatedNode(clock=LoopClock(epoch=EPOCH), runtime=runtime)

    async def story():
        wanted = WantedPods()
        async with node.run_agent(wanted) as running:
            wanted.add(make_pod("main", uid="uid-1", source="file"))
            await LoopClock(epoch=EPOCH).sleep(timedelta(minutes=1))
            return [cause.at for cause in running.journal.all() if cause.finding.decision == "FailedCreatePodSandBox"]

    tries = run_virtual(story())
    gaps = [(after - before).total_seconds() for before, after in pairwise(tries)]
    assert len(tries) == 6
    assert all(gap >= least for gap, least in zip(gaps, (1, 2, 4, 8, 10), strict=True))

"""What the runtime is asked for when pods start: each call takes CPU of both sides, in a crowd a hundred times."""

from collections import Counter
from datetime import timedelta

import pytest

from klet.aio.clock import LoopClock
from klet.model.pods import PodUID
from klet.simulation import DrivenPodSource, SimulatedNode
from klet.testing.builders import IMAGE, make_pod
from klet.testing.fake_runtime import DelayCall, FakeImage, FakeRuntime, Fault
from klet.testing.loop import EPOCH, run_virtual

SECOND = timedelta(seconds=1)
MILLISECOND = SECOND / 1000
CALLS_OF_A_POD = (
    *("RunPodSandbox", "PodSandboxStatus", "CreateContainer", "StartContainer"),
    # Once it runs.
    "ContainerStatus",
)


async def until_running(machine, running, uids):
    give_up = machine.clock.now() + 60 * SECOND
    statuses = running.agent.statuses
    while not all((status := statuses.get(uid)) and status.phase == "Running" for uid in uids):
        assert machine.clock.now() < give_up
        await machine.clock.sleep(MILLISECOND)


@pytest.mark.parametrize("pods", [1, 40])
def test_a_first_start_asks_for_nothing_twice_and_lists_nothing(pods):
    runtime = FakeRuntime(start=EPOCH, images=(FakeImage(name=IMAGE),))
    machine = SimulatedNode(clock=LoopClock(epoch=EPOCH), runtime=runtime)
    # Some start while others are still to come, and what is made has events before the call for it has returned.
    slow = DelayCall(100 * MILLISECOND, after_effect=True)
    runtime.faults.add(Fault("RunPodSandbox", slow, count=None))
    uids = [PodUID(f"uid-{number}") for number in range(pods)]

    async def story():
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted) as running:
            await machine.clock.sleep(10 * SECOND)
            before = len(runtime.calls)
            for uid in uids:
                wanted.add(make_pod("main", name=uid, uid=uid, source="file"))
                await machine.clock.sleep(5 * MILLISECOND)
            await until_running(machine, running, uids)
            return Counter(call.rpc for call in runtime.calls[before:])

    asked = run_virtual(story())
    assert {rpc: asked[rpc] for rpc in CALLS_OF_A_POD} == dict.fromkeys(CALLS_OF_A_POD, pods)
    assert asked["ListPodSandbox"] == asked["ListContainers"] == 0

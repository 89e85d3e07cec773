"""A runtime or a network that is not ready, under the wired agent in virtual time."""

from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise

import pytest
from msgspec.structs import replace

from klet.aio.clock import LoopClock
from klet.cri.errors import Code
from klet.model.pods import PodUID
from klet.simulation import DrivenPodSource, RunningAgent, SimulatedNode
from klet.testing.builders import IMAGE, make_pod
from klet.testing.fake_runtime import FakeImage, FakeRuntime, Fault
from klet.testing.fake_runtime.faults import ANY, Fail
from klet.testing.loop import EPOCH, run_virtual

UID = PodUID("uid-1")
SECOND = timedelta(seconds=1)
NO_CNI = "Network plugin returns error: cni plugin not initialized"


def node() -> SimulatedNode:
    runtime = FakeRuntime(start=EPOCH, images=(FakeImage(name=IMAGE),))
    return SimulatedNode(clock=LoopClock(epoch=EPOCH), runtime=runtime)


async def until(machine: SimulatedNode, condition: Callable[[], bool], *, within: timedelta = 10 * SECOND) -> None:
    give_up = machine.clock.now() + within
    while not condition():
        if machine.clock.now() > give_up:
            pytest.fail(
                "\n".join(f"{c.at:%X.%f} {c.finding.decision}: {c.finding.message}" for c in machine.journal.all())
            )
        await machine.clock.sleep(timedelta(milliseconds=1))


def phase(running: RunningAgent, uid: PodUID = UID) -> str:
    status = running.agent.statuses.get(uid)
    return status.phase if status else ""


def test_without_a_network_only_pods_on_the_nodes_own_start():
    machine = node()
    machine.runtime.set_condition("NetworkReady", status=False, reason="NetworkPluginNotReady", message=NO_CNI)

    async def story():
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted) as running:
            wanted.add(make_pod("main", uid=UID, source="file"))
            host = make_pod("main", uid="host", name="host", source="file")
            wanted.add(replace(host, spec=replace(host.spec, host_network=True)))
            await until(machine, lambda: phase(running, PodUID("host")) == "Running")
            await machine.clock.sleep(20 * SECOND)
            assert phase(running) == "Pending"
            recorded = [
                c for c in machine.journal.all() if c.finding.decision == "NetworkNotReady" and c.finding.subject.uid
            ]
            assert recorded[-1].finding.message == (
                "network is not ready: container runtime network not ready: "
                f"NetworkReady=false reason:NetworkPluginNotReady message:{NO_CNI}"
            )
            gaps = [later.at - earlier.at for earlier, later in pairwise(recorded)]
            assert all(gap <= 1.5 * SECOND for gap in gaps)
            assert len(gaps) <= 22
            machine.runtime.set_condition("NetworkReady", status=True)
            await until(machine, lambda: phase(running) == "Running", within=3 * SECOND)

    run_virtual(story())


def test_while_the_runtime_is_not_ready_no_pod_is_taken_in():
    machine = node()

    async def story():
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted) as running:
            wanted.add(make_pod("main", uid=UID, source="file"))
            await until(machine, lambda: phase(running) == "Running")
            machine.runtime.set_condition("RuntimeReady", status=False, reason="r", message="m")
            await until(machine, lambda: bool(running.agent.runtime.errors()), within=6 * SECOND)
            wanted.add(make_pod("main", uid="late", name="late", source="file"))
            await machine.clock.sleep(10 * SECOND)
            assert running.agent.pods.get(PodUID("late")) is None
            assert running.agent.runtime.errors() == (
                "container runtime not ready: RuntimeReady=false reason:r message:m",
            )
            machine.runtime.set_condition("RuntimeReady", status=True)
            await until(machine, lambda: phase(running, PodUID("late")) == "Running", within=3 * SECOND)

    run_virtual(story())


def test_a_runtime_that_is_away_is_down_after_half_a_minute_and_the_loop_ill_after_five_minutes():
    machine = node()

    async def story():
        async with machine.run_agent(DrivenPodSource()) as running:
            agent = running.agent
            await machine.clock.sleep(2 * SECOND)
            assert agent.runtime.errors() == ()
            fault = machine.runtime.faults.add(Fault(ANY, Fail(Code.UNAVAILABLE, "away"), count=None))
            await machine.clock.sleep(20 * SECOND)
            assert agent.runtime.errors() == ()
            await machine.clock.sleep(15 * SECOND)
            assert agent.runtime.errors() == ("container runtime is down",)
            assert agent.loop.health_error() is None
            await machine.clock.sleep(300 * SECOND)
            assert agent.runtime.errors()[0] == "container runtime is down"
            assert agent.runtime.errors()[1].startswith("PLEG is not healthy: pleg was last seen active 5m")
            assert agent.loop.health_error() == "sync Loop took longer than expected"
            fault.release()
            await until(machine, lambda: not agent.runtime.errors(), within=10 * SECOND)
            await until(machine, lambda: agent.loop.health_error() is None)

    run_virtual(story())


def test_an_agent_with_nothing_to_do_is_well():
    machine = node()

    async def story():
        async with machine.run_agent(DrivenPodSource()) as running:
            await machine.clock.sleep(3600 * SECOND)
            assert running.agent.loop.health_error() is None
            assert running.agent.runtime.errors() == ()

    run_virtual(story())

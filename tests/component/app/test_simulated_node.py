"""The wired agent on the fake runtime, in virtual time."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.aio.clock import LoopClock
from klet.model.pods import PodUID
from klet.simulation import DrivenPodSource, RunningAgent, SimulatedNode
from klet.testing.builders import IMAGE, make_container, make_pod
from klet.testing.fake_runtime import FakeImage, FakeRuntime, Fault, Hang, Script
from klet.testing.fake_runtime.lives import by_name, crashes, in_turn, runs_for
from klet.testing.loop import EPOCH, run_virtual
from klet.wire import cri_v1_pb2 as pb

UID = PodUID("uid-1")
SECOND = timedelta(seconds=1)


def node(**lives) -> SimulatedNode:
    script = Script(lives=by_name(lives)) if lives else Script()
    runtime = FakeRuntime(start=EPOCH, script=script, images=(FakeImage(name=IMAGE),))
    return SimulatedNode(clock=LoopClock(epoch=EPOCH), runtime=runtime)


async def until(running: RunningAgent, condition: Callable[[], bool], *, within: timedelta = 10 * SECOND) -> None:
    """Wait in virtual time; a condition that never comes fails the test with the journal's story."""
    clock = LoopClock(epoch=EPOCH)
    give_up = clock.now() + within
    while not condition():
        if clock.now() > give_up:
            story = "\n".join(f"{c.at:%X.%f} {c.finding.decision}: {c.finding.message}" for c in running.journal.all())
            pytest.fail(f"not within {within}:\n{story}")
        await clock.sleep(timedelta(milliseconds=1))


def phase(running: RunningAgent, uid: PodUID = UID) -> str:
    status = running.agent.statuses.get(uid)
    return status.phase if status else ""


def live(machine: SimulatedNode) -> list[str]:
    return [c.config.metadata.name for c in machine.runtime.containers() if c.state == pb.CONTAINER_RUNNING]


def test_a_pod_starts_runs_and_leaves_nothing():
    machine = node()

    async def story():
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted) as running:
            wanted.add(make_pod("one", "two", uid=UID, source="file"))
            await until(running, lambda: phase(running) == "Running")
            assert machine.cgroups.pods == machine.files.pods == {UID}
            wanted.remove(UID)
            await until(running, lambda: not machine.runtime.sandboxes(), within=60 * SECOND)
            await until(running, lambda: not machine.cgroups.pods and not machine.files.pods)
            assert not machine.runtime.containers()
            assert running.agent.statuses.get(UID) is None

    run_virtual(story())


def test_a_job_ends_and_its_containers_stay_for_the_logs():
    machine = node(main=in_turn(runs_for(3 * SECOND)))

    async def story():
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted) as running:
            wanted.add(make_pod("main", uid=UID, restart_policy="Never", source="file"))
            await until(running, lambda: phase(running) == "Succeeded")
            assert [c.config.metadata.name for c in machine.runtime.containers()] == ["main"]

    run_virtual(story())


def test_init_containers_run_before_the_others():
    machine = node(setup=in_turn(runs_for(2 * SECOND)))

    async def story():
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted) as running:
            wanted.add(make_pod("main", init=("setup",), uid=UID, source="file"))
            await until(running, lambda: live(machine) == ["setup"])
            assert phase(running) == "Pending"
            await until(running, lambda: live(machine) == ["main"])
            await until(running, lambda: phase(running) == "Running")

    run_virtual(story())


def test_a_crashing_container_backs_off_and_comes_back():
    machine = node(main=crashes(2, after=SECOND))

    async def story():
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted) as running:
            wanted.add(make_pod("main", uid=UID, source="file"))

            def waiting() -> str:
                status = running.agent.statuses.get(UID)
                state = status.container_statuses[0].state if status and status.container_statuses else None
                return state.waiting.reason if state and state.waiting else ""

            await until(running, lambda: waiting() == "CrashLoopBackOff")
            clock = LoopClock(epoch=EPOCH)
            since = clock.now()
            await until(running, lambda: live(machine) == ["main"], within=20 * SECOND)
            assert timedelta(seconds=9) <= clock.now() - since <= timedelta(seconds=11)
            status = running.agent.statuses.get(UID)
            await until(running, lambda: running.agent.statuses.get(UID).container_statuses[0].restart_count == 2)
            assert status is not None

    run_virtual(story())


def test_a_replaced_static_pod_waits_for_the_old_one():
    machine = node()

    async def story():
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted) as running:
            old = make_pod("main", uid="old", source="file")
            new = make_pod("main", uid="new", source="file")
            wanted.add(old)
            await until(running, lambda: phase(running, PodUID("old")) == "Running")
            wanted.remove(PodUID("old"))
            wanted.add(new)
            await until(running, lambda: phase(running, PodUID("new")) == "Running", within=60 * SECOND)
            decisions = [(c.finding.subject.uid, c.finding.decision) for c in running.journal.all()]
            assert decisions.index(("old", "Stopped")) < decisions.index(("new", "SandboxCreated"))

    run_virtual(story())


def test_a_restarted_agent_leaves_running_pods_alone():
    machine = node()

    async def story():
        pod = make_pod("main", uid=UID, source="file")
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted) as running:
            wanted.add(pod)
            await until(running, lambda: phase(running) == "Running")
        before = [(c.id, c.state) for c in machine.runtime.containers()]
        again = DrivenPodSource()
        async with machine.run_agent(again) as running:
            again.add(pod)
            await until(running, lambda: phase(running) == "Running")
            await LoopClock(epoch=EPOCH).sleep(30 * SECOND)
            assert [(c.id, c.state) for c in machine.runtime.containers()] == before

    run_virtual(story())


def test_an_orphan_of_an_earlier_life_is_stopped_and_removed():
    machine = node()

    async def story():
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted) as running:
            wanted.add(make_pod("main", uid=UID, source="file"))
            await until(running, lambda: phase(running) == "Running")
        async with machine.run_agent(DrivenPodSource()) as running:
            await until(running, lambda: not machine.runtime.sandboxes(), within=60 * SECOND)
            assert not machine.cgroups.pods

    run_virtual(story())


def test_a_hung_pod_blocks_only_itself():
    machine = node()
    machine.runtime.faults.add(
        Fault("RunPodSandbox", Hang(), matches=lambda request: request.config.metadata.uid == "stuck")
    )

    async def story():
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted) as running:
            wanted.add(make_pod("main", uid="stuck", name="stuck", source="file"))
            wanted.add(make_pod("main", uid=UID, source="file"))
            await until(running, lambda: phase(running) == "Running")
            assert phase(running, PodUID("stuck")) == "Pending"

    run_virtual(story())


def test_a_missing_image_is_reported_and_tried_again():
    machine = node()

    async def story():
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted) as running:
            container = replace(make_container("main", image="klet.local/none:1"), image_pull_policy="Never")
            wanted.add(make_pod(container, uid=UID, source="file"))

            def reason() -> str:
                status = running.agent.statuses.get(UID)
                state = status.container_statuses[0].state if status and status.container_statuses else None
                return state.waiting.reason if state and state.waiting else ""

            await until(running, lambda: reason() == "ErrImageNeverPull")
            machine.runtime.load_image(FakeImage(name="klet.local/none:1"))
            await until(running, lambda: phase(running) == "Running", within=30 * SECOND)

    run_virtual(story())

"""The next life of the agent goes on where the one before was killed, in virtual time."""

import asyncio
import itertools
from collections.abc import Callable
from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.aio.clock import LoopClock
from klet.api.handlers import ExecAction, Probe
from klet.api.pod import PodStatus
from klet.model.pods import PodUID
from klet.simulation import DrivenPodSource, RunningAgent, SimulatedNode
from klet.testing.builders import IMAGE, make_container, make_pod
from klet.testing.fake_runtime import ExecResult, FakeImage, FakeRuntime, Script
from klet.testing.fake_runtime.lives import by_name, crashes, in_turn, runs_for
from klet.testing.loop import EPOCH, run_virtual

UID = PodUID("uid-1")
SECOND = timedelta(seconds=1)


def node(*, healthy: Callable[[str], bool] = lambda _name: True, **lives) -> SimulatedNode:
    def answer(config, _command) -> ExecResult:
        return ExecResult(exit_code=0 if healthy(config.metadata.name) else 1)

    script = Script(lives=by_name(lives), execs=answer) if lives else Script(execs=answer)
    runtime = FakeRuntime(start=EPOCH, script=script, images=(FakeImage(name=IMAGE),))
    return SimulatedNode(clock=LoopClock(epoch=EPOCH), runtime=runtime)


async def pause(seconds: float) -> None:
    await LoopClock(epoch=EPOCH).sleep(timedelta(seconds=seconds))


async def until(running: RunningAgent, condition: Callable[[PodStatus], bool]) -> PodStatus:
    clock = LoopClock(epoch=EPOCH)
    give_up = clock.now() + 60 * SECOND
    while (status := running.agent.statuses.get(UID)) is None or not condition(status):
        if clock.now() > give_up:
            story = "\n".join(f"{c.at:%X.%f} {c.finding.decision}: {c.finding.message}" for c in running.journal.all())
            pytest.fail(f"it never came:\n{story}")
        await clock.sleep(timedelta(milliseconds=1))
    return status


async def statuses_of_next_life(machine: SimulatedNode, pod, *, seconds: float) -> list[PodStatus]:
    """Every status that the next agent reports in its first seconds."""
    wanted = DrivenPodSource()
    wanted.add(pod)
    recorded: list[PodStatus] = []
    async with machine.run_agent(wanted) as running, asyncio.TaskGroup() as group:

        async def listen() -> None:
            with running.agent.statuses.changes() as changes:
                async for uid in changes:
                    reported = running.agent.statuses.reported(uid)
                    # That a pod has finished is reported too, with the status as it is.
                    if not (reported.is_finished and recorded):
                        recorded.append(reported.status)

        listener = group.create_task(listen())
        await pause(seconds)
        assert running.agent.statuses.is_reported(UID)
        assert running.agent.statuses.get(UID) == recorded[-1]
        listener.cancel()
    return recorded


def is_ready(status: PodStatus) -> bool:
    return any(c.type == "Ready" and c.status == "True" for c in status.conditions)


def waits_for(reason: str) -> Callable[[PodStatus], bool]:
    return lambda status: any(c.state.waiting and c.state.waiting.reason == reason for c in status.container_statuses)


is_backing_off = waits_for("CrashLoopBackOff")
WITHOUT_IMAGE = make_pod(replace(make_container("main"), image="missing"), uid=UID, source="file")


PROBE = Probe(
    exec=ExecAction(command=("check",)), period_seconds=5, timeout_seconds=1, failure_threshold=3, success_threshold=1
)
PROBED = replace(make_container("main"), readiness_probe=PROBE, startup_probe=PROBE)


@pytest.mark.parametrize(
    ("pod", "lives", "condition"),
    [
        pytest.param(make_pod("main", uid=UID, source="file"), {}, is_ready, id="a running pod"),
        pytest.param(make_pod(PROBED, uid=UID, source="file"), {}, is_ready, id="a probed pod that is still young"),
        pytest.param(
            make_pod("main", uid=UID, source="file", restart_policy="Never"),
            {"main": in_turn(runs_for(SECOND))},
            lambda status: status.phase == "Succeeded",
            id="a pod whose work is done",
        ),
        pytest.param(
            make_pod("main", uid=UID, source="file"),
            {"main": crashes(9, after=SECOND)},
            is_backing_off,
            id="a pod in a crash loop",
        ),
        pytest.param(
            WITHOUT_IMAGE,
            {},
            waits_for("ImagePullBackOff"),
            id="a pod whose image is missing",
        ),
    ],
)
def test_the_first_status_equals_the_last(pod, lives, condition):
    machine = node(**lives)

    async def story():
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted) as running:
            wanted.add(pod)
            await until(running, condition)
            await pause(1)
            last = running.agent.statuses.get(UID)
            assert condition(last)
        await pause(2)
        [first] = await statuses_of_next_life(machine, pod, seconds=0.5)
        assert first == last

    run_virtual(story())


def test_a_container_that_is_ready_stays_so_beside_one_that_is_not():
    machine = node(healthy=lambda name: name == "one")
    containers = [replace(make_container(name), readiness_probe=PROBE) for name in ("one", "two")]
    pod = make_pod(*containers, uid=UID, source="file")

    async def story():
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted) as running:
            wanted.add(pod)
            last = await until(running, lambda status: any(c.ready for c in status.container_statuses))
            await pause(20)
        [first] = await statuses_of_next_life(machine, pod, seconds=20)
        assert first == last
        assert [c.ready for c in first.container_statuses] == [True, False]

    run_virtual(story())


def test_a_crash_loop_waits_on_for_what_is_left_of_its_back_off():
    machine = node(main=crashes(9, after=SECOND))
    pod = make_pod("main", uid=UID, source="file")

    async def story():
        clock = LoopClock(epoch=EPOCH)
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted) as running:
            wanted.add(pod)
            status = await until(running, is_backing_off)
            assert status.container_statuses[0].restart_count == 1
            since = clock.now()
            await pause(4)
        wanted = DrivenPodSource()
        wanted.add(pod)
        async with machine.run_agent(wanted) as running:
            await until(running, lambda status: status.container_statuses[0].state.running is not None)
            assert 9 * SECOND <= clock.now() - since <= 11 * SECOND
            status = await until(running, is_backing_off)
            assert status.container_statuses[0].restart_count == 2
            assert "back-off 20s" in status.container_statuses[0].state.waiting.message

    run_virtual(story())


def pulls(machine: SimulatedNode) -> list[timedelta]:
    """When images were pulled."""
    return [call.at - EPOCH for call in machine.runtime.calls if call.rpc == "PullImage"]


def test_a_pull_that_has_just_failed_is_reported_first_and_not_tried_again_before_its_time():
    machine = node()

    async def story():
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted) as running:
            wanted.add(WITHOUT_IMAGE)
            last = await until(running, waits_for("ErrImagePull"))
            await pause(0.5)
        failed = pulls(machine)
        first, second = await statuses_of_next_life(machine, WITHOUT_IMAGE, seconds=5)
        assert first == last
        assert waits_for("ImagePullBackOff")(second)
        assert pulls(machine) == failed

    run_virtual(story())


def test_pulls_wait_on_for_what_is_left_of_their_back_off():
    machine = node()

    async def story():
        for _ in range(12):  # lives of ten seconds
            wanted = DrivenPodSource()
            wanted.add(WITHOUT_IMAGE)
            async with machine.run_agent(wanted):
                await pause(10)
        waits = [after - before for before, after in itertools.pairwise(pulls(machine))]
        # Each is twice as long as the one before, and the worker looks every ten to fifteen seconds.
        assert [wait >= timedelta(seconds=10 << count) for count, wait in enumerate(waits)] == [True] * len(waits)
        assert len(waits) == 3

    run_virtual(story())


def test_a_readiness_that_is_about_to_fail_does_not_flip_before_it_has_failed_often_enough():
    answers = {"healthy": True}
    machine = node(healthy=lambda _name: answers["healthy"])
    pod = make_pod(replace(make_container("main"), readiness_probe=PROBE), uid=UID, source="file")

    async def story():
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted) as running:
            wanted.add(pod)
            last = await until(running, is_ready)
            await pause(20)
            answers["healthy"] = False
            await pause(8)  # one failure or two, of three
            assert running.agent.statuses.get(UID) == last
        first, *later = await statuses_of_next_life(machine, pod, seconds=5)
        assert first == last
        assert all(map(is_ready, later))
        [first, second] = await statuses_of_next_life(machine, pod, seconds=30)
        assert first == last
        assert not is_ready(second)

    run_virtual(story())


def test_a_pod_that_comes_back_after_it_was_gone_is_a_new_one():
    machine = node(main=in_turn(runs_for(SECOND), runs_for(SECOND)))
    pod = make_pod("main", uid=UID, source="file", restart_policy="Never")

    async def story():
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted) as running:
            wanted.add(pod)
            await until(running, lambda status: status.phase == "Succeeded")
            await pause(1)
        assert UID in machine.checkpoint.left.statuses
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted) as running:
            await pause(5)
            assert running.agent.statuses.get(UID) is None
            assert UID not in machine.checkpoint.left.statuses
            wanted.add(pod)
            await until(running, lambda status: status.phase == "Running")

    run_virtual(story())


def test_the_api_server_knows_better_than_the_checkpoint():
    machine = node()
    pod = make_pod("main", uid=UID)

    async def story():
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted) as running:
            wanted.add(pod)
            last = await until(running, is_ready)
            await pause(1)
        machine.checkpoint.left = replace_status(machine, PodStatus(phase="Pending"))
        known = replace(last, reason="Known", message="to the API server")
        [first] = await statuses_of_next_life(machine, replace(pod, status=known), seconds=1)
        assert first == known

    run_virtual(story())


def test_a_pod_that_was_over_gives_back_the_network_of_a_sandbox_that_nobody_stopped():
    machine = node()
    pod = make_pod("main", uid=UID, restart_policy="Never")

    async def story():
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted) as running:
            wanted.add(pod)
            last = await until(running, is_ready)
        (sandbox,) = machine.runtime.sandboxes()
        machine.runtime.kill_sandbox(sandbox.id)
        for container in machine.runtime.containers():
            machine.runtime.end_container(container.id, 1)
        wanted = DrivenPodSource()
        wanted.add(replace(pod, status=replace(last, phase="Failed")))
        async with machine.run_agent(wanted):
            assert sandbox.has_network
            await pause(1)
        assert not sandbox.has_network

    run_virtual(story())


def replace_status(machine: SimulatedNode, status: PodStatus):
    return type(machine.checkpoint.left)(statuses={UID: status})

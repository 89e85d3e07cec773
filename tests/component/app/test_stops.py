"""Ends that come from outside: kills, deadlines, a removal during the start; the wired agent in virtual time."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.aio.clock import LoopClock
from klet.api.pod import PodCondition, PodStatus
from klet.model.pods import PodUID
from klet.simulation import DrivenPodSource, RunningAgent, SimulatedNode
from klet.sync.workers import KillTimeout
from klet.testing.builders import IMAGE, make_container, make_pod
from klet.testing.fake_runtime import FakeImage, FakeRuntime, Fault, Hang, Script
from klet.testing.fake_runtime.lives import ContainerLife, OnTerm, by_name, in_turn, runs_for
from klet.testing.loop import EPOCH, run_virtual

UID = PodUID("uid-1")
SECOND = timedelta(seconds=1)
SLOW = "klet.local/slow:1"


def node(**lives) -> SimulatedNode:
    slow = FakeImage(name=SLOW, pull_time=3600 * SECOND)
    script = Script(lives=by_name(lives)) if lives else Script()
    script = Script(lives=script.lives, registry=lambda name: slow if name == SLOW else None)
    runtime = FakeRuntime(start=EPOCH, script=script, images=(FakeImage(name=IMAGE),))
    return SimulatedNode(clock=LoopClock(epoch=EPOCH), runtime=runtime)


async def until(machine: SimulatedNode, condition: Callable[[], bool], *, within: timedelta = 10 * SECOND) -> None:
    give_up = machine.clock.now() + within
    while not condition():
        if machine.clock.now() > give_up:
            pytest.fail(
                "\n".join(f"{c.at:%X.%f} {c.finding.decision}: {c.finding.message}" for c in machine.journal.all())
            )
        await machine.clock.sleep(timedelta(milliseconds=1))


def status(running: RunningAgent, uid: PodUID = UID) -> PodStatus:
    return running.agent.statuses.get(uid) or PodStatus()


def decisions(machine: SimulatedNode) -> list[str]:
    return [cause.finding.decision for cause in machine.journal.all()]


def is_empty(machine: SimulatedNode) -> bool:
    return not (machine.runtime.sandboxes() or machine.cgroups.pods or machine.files.pods)


def slow_pod(uid: str = UID):
    return make_pod(make_container("fast"), make_container("slow", image=SLOW), name=uid, uid=uid, source="file")


def test_a_pod_that_is_removed_while_its_image_is_pulled_is_gone_at_once():
    machine = node(fast=in_turn(runs_for(10_000 * SECOND)))

    async def story():
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted):
            wanted.add(slow_pod())
            await until(machine, lambda: "Pulling" in decisions(machine))
            assert len(machine.runtime.containers()) == 1
            wanted.remove(UID)
            await until(machine, lambda: is_empty(machine), within=40 * SECOND)
            assert not machine.runtime.containers()
            assert "FailedSync" not in decisions(machine)

    run_virtual(story())


def test_a_pod_that_waits_for_its_turn_to_start_stops_without_one():
    machine = node()

    async def story():
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted, parallel_starts=1):
            wanted.add(slow_pod("first"))
            await until(machine, lambda: "Pulling" in decisions(machine))
            wanted.add(make_pod("main", name="second", uid=UID, source="file"))
            await machine.clock.sleep(SECOND)
            wanted.remove(UID)
            await until(machine, lambda: UID not in machine.cgroups.pods | machine.files.pods, within=SECOND)
            assert [sandbox.config.metadata.uid for sandbox in machine.runtime.sandboxes()] == ["first"]

    run_virtual(story())


def test_a_sandbox_that_is_being_made_is_waited_for():
    machine = node()
    hang = machine.runtime.faults.add(Fault("RunPodSandbox", Hang()))

    async def story():
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted):
            wanted.add(make_pod("main", uid=UID, source="file"))
            await until(machine, lambda: hang.hits == 1)
            wanted.remove(UID)
            await machine.clock.sleep(5 * SECOND)
            assert "Stopped" not in decisions(machine)
            hang.release()
            await until(machine, lambda: is_empty(machine))
            assert not machine.runtime.containers()
            assert "Created" not in decisions(machine)

    run_virtual(story())


def test_a_pod_whose_time_is_up_fails_on_the_second():
    machine = node()

    async def story():
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted) as running:
            pod = make_pod("main", uid=UID, source="file")
            wanted.add(replace(pod, spec=replace(pod.spec, active_deadline_seconds=20)))
            await until(machine, lambda: status(running).phase == "Running")
            await machine.clock.sleep(19 * SECOND)
            assert status(running).phase == "Running"
            await until(machine, lambda: status(running).phase == "Failed", within=SECOND)
            assert status(running).reason == "DeadlineExceeded"
            assert status(running).message == "Pod was active on the node longer than the specified deadline"
            assert decisions(machine).count("DeadlineExceeded") == 1
            await until(machine, lambda: "Finished" in decisions(machine), within=40 * SECOND)
            await machine.clock.sleep(120 * SECOND)
            assert (status(running).phase, status(running).reason) == ("Failed", "DeadlineExceeded")

    run_virtual(story())


def evicted(given: PodStatus) -> PodStatus:
    target = PodCondition(type="DisruptionTarget", status="True", reason="TerminationByKubelet")
    return replace(given, phase="Failed", reason="Evicted", message="no memory", conditions=(*given.conditions, target))


def test_a_pod_that_is_killed_says_why_to_the_end():
    machine = node()

    async def story():
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted) as running:
            pod = make_pod("main", uid=UID)
            wanted.add(pod)
            await until(machine, lambda: status(running).phase == "Running")
            await running.agent.workers.kill(pod, evict=True, grace=3, status_change=evicted)
            await until(machine, lambda: "Finished" in decisions(machine))
            last = status(running)
            assert (last.phase, last.reason, last.message) == ("Failed", "Evicted", "no memory")
            target = next(each for each in last.conditions if each.type == "DisruptionTarget")
            assert target.last_transition_time is not None
            assert running.agent.statuses.reported(UID).is_finished
            assert last.container_statuses[0].state.terminated is not None

    run_virtual(story())


def test_what_ends_first_of_an_evicted_pod_is_there_until_the_last_has_ended():
    """A container that has ended and is removed while the others are being stopped could not say how it ended."""
    lives = ContainerLife(on_term=OnTerm(exit_code=7)), ContainerLife(on_term=None)
    machine = node(quick=in_turn(lives[0]), slow=in_turn(lives[1]))

    async def story():
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted) as running:
            pod = make_pod("quick", "slow", uid=UID)
            wanted.add(pod)
            await until(machine, lambda: status(running).phase == "Running")
            await running.agent.workers.kill(pod, evict=True, grace=5, status_change=evicted)
            await until(machine, lambda: "Finished" in decisions(machine))
            ends = {each.name: each.state.terminated for each in status(running).container_statuses}
            assert {name: (end.exit_code, end.reason) for name, end in ends.items()} == {
                "quick": (7, "Error"),
                "slow": (137, "Error"),
            }
            await until(machine, lambda: not machine.runtime.containers(), within=90 * SECOND)

    run_virtual(story())


def test_a_kill_that_hangs_is_reported_after_the_grace_and_half_of_it():
    machine = node()
    hang = machine.runtime.faults.add(Fault("StopContainer", Hang()))

    async def story():
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted) as running:
            pod = make_pod("main", uid=UID, source="file")
            wanted.add(pod)
            await until(machine, lambda: status(running).phase == "Running")
            began = machine.clock.now()
            with pytest.raises(KillTimeout):
                await running.agent.workers.kill(pod, grace=20)
            assert machine.clock.now() - began == 30 * SECOND
            assert decisions(machine)[-1] == "ExceededGracePeriod"
            hang.release()
            await until(machine, lambda: "Finished" in decisions(machine))

    run_virtual(story())


@pytest.mark.parametrize("rpc", ["RemoveContainer", "RemovePodSandbox"])
def test_pods_whose_removal_hangs_hold_up_no_other(rpc):
    machine = node()

    def is_stuck(request) -> bool:
        if rpc == "RemoveContainer":
            owners = {container.id: container.sandbox for container in machine.runtime.containers()}
            sandbox = owners.get(request.container_id)
        else:
            sandbox = next((each for each in machine.runtime.sandboxes() if each.id == request.pod_sandbox_id), None)
        return sandbox is not None and sandbox.config.metadata.uid.startswith("stuck")

    async def story():
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted) as running:
            uids = [PodUID(f"stuck-{number}") for number in range(6)]
            pods = [make_pod("main", name=uid, uid=uid, source="file", restart_policy="Never") for uid in uids]
            wanted.add(*pods, make_pod("main", name="well", uid=UID, source="file"))
            await until(machine, lambda: all(status(running, uid).phase == "Running" for uid in (*uids, UID)))
            hang = machine.runtime.faults.add(Fault(rpc, Hang(), matches=is_stuck, count=None))
            for uid in uids:
                wanted.remove(uid)
            await until(machine, lambda: hang.hits >= len(uids), within=40 * SECOND)
            wanted.remove(UID)
            await until(machine, lambda: UID not in machine.files.pods | machine.cgroups.pods, within=40 * SECOND)
            machine.runtime.faults.clear()
            await until(machine, lambda: is_empty(machine), within=5 * SECOND)

    run_virtual(story())

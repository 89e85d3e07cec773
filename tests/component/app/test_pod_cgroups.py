"""Pods and their cgroups: in the wired agent, on the fake runtime, in virtual time."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.aio.clock import LoopClock
from klet.api.container import ContainerRestartRule, ContainerRestartRuleOnExitCodes
from klet.model.pods import PodUID
from klet.simulation import DrivenPodSource, RunningAgent, SimulatedNode
from klet.testing.builders import IMAGE, make_container, make_pod
from klet.testing.fake_runtime import Fail, FakeImage, FakeRuntime, Fault
from klet.testing.loop import EPOCH, run_virtual
from klet.wire import cri_v1_pb2 as pb

UID = PodUID("uid-1")
SECOND = timedelta(seconds=1)
NEVER_BUT_ONE = replace(
    make_container("main", restart_policy="Never"),
    restart_policy_rules=(
        ContainerRestartRule(action="Restart", exit_codes=ContainerRestartRuleOnExitCodes(operator="In", values=(9,))),
    ),
)


def node() -> SimulatedNode:
    return SimulatedNode(
        clock=LoopClock(epoch=EPOCH), runtime=FakeRuntime(start=EPOCH, images=(FakeImage(name=IMAGE),))
    )


async def until(running: RunningAgent, condition: Callable[[], bool], *, within: timedelta = 60 * SECOND) -> None:
    clock = LoopClock(epoch=EPOCH)
    give_up = clock.now() + within
    while not condition():
        if clock.now() > give_up:
            pytest.fail(f"not within {within}:\n{story_of(running)}")
        await clock.sleep(timedelta(milliseconds=1))


def story_of(running: RunningAgent) -> str:
    return "\n".join(f"{c.at:%X.%f} {c.finding.decision}: {c.finding.message}" for c in running.journal.all())


def decisions(running: RunningAgent) -> list[str]:
    return [cause.finding.decision for cause in running.journal.all()]


def phase(running: RunningAgent, uid: PodUID = UID) -> str:
    status = running.agent.statuses.get(uid)
    return status.phase if status else ""


def live(machine: SimulatedNode) -> list[tuple[str, int]]:
    return [
        (c.config.metadata.name, c.config.metadata.attempt)
        for c in machine.runtime.containers()
        if c.state == pb.CONTAINER_RUNNING
    ]


def test_a_pod_that_lost_its_cgroup_starts_again_in_one():
    machine = node()

    async def story():
        wanted = DrivenPodSource()
        pod = make_pod("main", uid=UID, source="file")
        async with machine.run_agent(wanted) as running:
            wanted.add(pod)
            await until(running, lambda: phase(running) == "Running")
            [before] = machine.runtime.sandboxes()
            machine.cgroups.pods.clear()
            wanted.update(replace(pod, metadata=replace(pod.metadata, labels={"new": "one"})))
            await until(running, lambda: "PodCgroupMissing" in decisions(running))
            await until(running, lambda: machine.cgroups.pods == {UID})
            await until(running, lambda: live(machine) == [("main", 1)])
            recorded = decisions(running)
            after = recorded[recorded.index("PodCgroupMissing") :]
            assert [one for one in after if one in {"PodCgroupMissing", "Killing", "Started"}] == [
                "PodCgroupMissing",
                "Killing",
                "Started",
            ]
            assert before.id not in {s.id for s in machine.runtime.sandboxes() if s.state == pb.SANDBOX_READY}

    run_virtual(story())


def test_a_pod_whose_cgroup_is_there_is_left_alone():
    machine = node()

    async def story():
        wanted = DrivenPodSource()
        pod = make_pod("main", uid=UID, source="file")
        async with machine.run_agent(wanted) as running:
            wanted.add(pod)
            await until(running, lambda: phase(running) == "Running")
        again = DrivenPodSource()
        async with machine.run_agent(again) as running:
            again.add(pod)
            await until(running, lambda: phase(running) == "Running")
            assert live(machine) == [("main", 0)]
            assert "PodCgroupMissing" not in decisions(running)

    run_virtual(story())


@pytest.mark.parametrize(
    ("container", "ends"),
    [
        pytest.param(make_container("main"), True, id="it ran once and is over"),
        pytest.param(NEVER_BUT_ONE, False, id="a rule may start it again, so its cgroup is made"),
    ],
)
def test_a_pod_that_runs_once_and_lost_its_cgroup(container, ends):
    machine = node()

    async def story():
        wanted = DrivenPodSource()
        pod = make_pod(container, uid=UID, restart_policy="Never", source="file")
        async with machine.run_agent(wanted) as running:
            wanted.add(pod)
            await until(running, lambda: phase(running) == "Running")
            machine.cgroups.pods.clear()
            wanted.update(replace(pod, metadata=replace(pod.metadata, labels={"new": "one"})))
            await until(running, lambda: phase(running) in {"Succeeded", "Failed"})
            assert live(machine) == []
            assert machine.cgroups.made == ([UID] if ends else [UID, UID])

    run_virtual(story())


def test_a_pod_that_cannot_be_killed_gets_its_cgroup_all_the_same():
    machine = node()

    async def story():
        wanted = DrivenPodSource()
        pod = make_pod("main", uid=UID, source="file")
        async with machine.run_agent(wanted) as running:
            wanted.add(pod)
            await until(running, lambda: phase(running) == "Running")
            machine.cgroups.pods.clear()
            for call in ("StopContainer", "StopPodSandbox"):
                machine.runtime.faults.add(Fault(call, Fail()))
            wanted.update(replace(pod, metadata=replace(pod.metadata, labels={"new": "one"})))
            await until(running, lambda: machine.cgroups.pods == {UID})
            assert live(machine) == [("main", 0)]

    run_virtual(story())


def test_a_pod_without_a_cgroup_does_not_start():
    machine = node()

    async def story():
        wanted = DrivenPodSource()
        machine.cgroups.refuses = "no space left"
        async with machine.run_agent(wanted) as running:
            wanted.add(make_pod("main", uid=UID, source="file"))
            await until(running, lambda: "FailedCreatePodContainer" in decisions(running))
            assert not machine.runtime.sandboxes()
            messages = {c.finding.decision: c.finding.message for c in running.journal.all()}
            assert messages["FailedCreatePodContainer"] == "unable to ensure pod container exists: no space left"
            assert messages["FailedSync"].endswith(
                f"failed to ensure that the pod: {UID} cgroups exist and are correctly applied: no space left"
            )
            machine.cgroups.refuses = ""
            await until(running, lambda: phase(running) == "Running")

    run_virtual(story())


def test_the_node_is_shared_out_among_the_pods_that_are_there():
    machine = node()

    async def story():
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted) as running:
            wanted.add(make_pod("main", name="a", uid="a", source="file"))
            wanted.add(make_pod("main", name="b", uid="b", source="file"))
            await until(running, lambda: phase(running, "a") == phase(running, "b") == "Running")
            assert machine.qos.pods == {"a", "b"}
            wanted.remove(PodUID("a"))
            await until(running, lambda: machine.qos.pods == {"b"})
            wanted.remove(PodUID("b"))
            await until(running, lambda: machine.qos.pods == set())

    run_virtual(story())


def test_classes_that_cannot_be_updated_hold_no_pod_up():
    machine = node()

    async def story():
        wanted = DrivenPodSource()
        machine.qos.refuses = "no"
        async with machine.run_agent(wanted) as running:
            wanted.add(make_pod("main", uid=UID, source="file"))
            await until(running, lambda: phase(running) == "Running")

    run_virtual(story())


def test_leftovers_whose_volumes_cannot_be_removed_keep_a_cgroup_with_little_cpu():
    machine = node()

    async def story():
        wanted = DrivenPodSource()
        machine.files.refuses = "a mount is in the way"
        machine.cgroups.pods.add(UID)
        machine.files.pods.add(UID)
        async with machine.run_agent(wanted) as running:
            await until(running, lambda: UID in machine.cgroups.reduced)
            assert machine.cgroups.pods == {UID}
            machine.files.refuses = ""
            await until(running, lambda: not machine.cgroups.pods)

    run_virtual(story())

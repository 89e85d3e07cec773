"""What a pod has been given, in the wired agent: it stands on the allocation board, whatever the spec says."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.aio.clock import LoopClock
from klet.api.container import EnvVar, EnvVarSource, ResourceFieldSelector
from klet.api.container_status import ContainerStatus
from klet.api.pod import Pod
from klet.model.allocation import desired_allocation
from klet.model.pods import PodUID
from klet.simulation import DrivenPodSource, RunningAgent, SimulatedNode
from klet.testing.builders import IMAGE, make_container, make_pod, with_resources
from klet.testing.fake_runtime import FakeImage, FakeRuntime
from klet.testing.loop import EPOCH, run_virtual
from klet.wire import cri_v1_pb2 as pb

UID = PodUID("uid-1")
SMALL = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "200m", "memory": "128Mi"}}
LARGE = {"requests": {"cpu": "300m", "memory": "96Mi"}, "limits": {"cpu": "400m", "memory": "256Mi"}}
MIB = 1 << 20


def pod_with(resources: dict[str, dict[str, str]], *, generation: int = 1, note: str = "") -> Pod:
    shown = EnvVar(
        name="LIMIT", value_from=EnvVarSource(resource_field_ref=ResourceFieldSelector(resource="limits.memory"))
    )
    pod = make_pod(replace(with_resources(make_container("main"), **resources), env=(shown,)), uid=UID)
    return replace(pod, metadata=replace(pod.metadata, generation=generation, labels={"note": note}))


def node() -> SimulatedNode:
    return SimulatedNode(
        clock=LoopClock(epoch=EPOCH), runtime=FakeRuntime(start=EPOCH, images=(FakeImage(name=IMAGE),))
    )


async def until(running: RunningAgent, condition: Callable[[], bool]) -> None:
    clock = LoopClock(epoch=EPOCH)
    give_up = clock.now() + timedelta(minutes=1)
    while not condition():
        if clock.now() > give_up:
            story = "\n".join(f"{c.at:%X} {c.finding.decision}: {c.finding.message}" for c in running.journal.all())
            pytest.fail(f"not within a minute:\n{story}")
        await clock.sleep(timedelta(milliseconds=1))


def runs(machine: SimulatedNode, attempt: int = 0) -> Callable[[], bool]:
    def is_so() -> bool:
        every = machine.runtime.containers()
        return [c.config.metadata.attempt for c in every if c.state == pb.CONTAINER_RUNNING] == [attempt]

    return is_so


def reported(running: RunningAgent) -> ContainerStatus | None:
    status = running.agent.statuses.get(UID)
    return status.container_statuses[0] if status is not None and status.container_statuses else None


def is_reported(running: RunningAgent, attempt: int) -> Callable[[], bool]:
    def is_so() -> bool:
        status = reported(running)
        return status is not None and status.state.running is not None and status.restart_count == attempt

    return is_so


def test_the_board_decides_and_not_the_spec():
    """Cgroup, sandbox, container, environment and status follow another value on the board; the spec is the same."""
    machine = node()
    large = desired_allocation(pod_with(LARGE))

    async def story() -> None:
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted) as running:
            wanted.add(pod_with(SMALL))
            await until(running, is_reported(running, 0))
            assert machine.cgroups.given[UID] == desired_allocation(pod_with(SMALL))
            running.agent.allocations.admit(UID, large)
            machine.cgroups.pods.clear()  # so that everything is made again
            wanted.update(pod_with(SMALL, note="look again"))
            await until(running, runs(machine, 1))
            await until(running, is_reported(running, 1))
            assert machine.cgroups.given[UID] == large
            config = next(c.config for c in machine.runtime.containers() if c.config.metadata.attempt == 1)
            linux = config.linux.resources
            assert (linux.cpu_shares, linux.cpu_quota, linux.memory_limit_in_bytes) == (307, 40000, 256 * MIB)
            assert {each.key: each.value for each in config.envs}["LIMIT"] == str(256 * MIB).encode()
            sandbox = max(machine.runtime.sandboxes(), key=lambda each: each.config.metadata.attempt)
            assert sandbox.config.linux.resources.memory_limit_in_bytes == 256 * MIB
            status = reported(running)
            given = large.of("main")
            assert (status.allocated_resources, status.resources) == (given.requests, given)

    run_virtual(story())


def test_the_spec_of_a_pod_that_runs_changes_nothing():
    machine = node()

    async def story() -> None:
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted) as running:
            wanted.add(pod_with(SMALL))
            await until(running, is_reported(running, 0))
            wanted.update(pod_with(LARGE, generation=2))
            await until(running, lambda: "ResizePending" in [c.finding.decision for c in running.journal.all()])
            machine.cgroups.pods.clear()
            wanted.update(pod_with(LARGE, generation=2, note="look again"))
            await until(running, is_reported(running, 1))
            small = desired_allocation(pod_with(SMALL))
            assert machine.cgroups.given[UID] == small
            linux = [c.config.linux.resources for c in machine.runtime.containers()]
            assert {each.memory_limit_in_bytes for each in linux} == {128 * MIB}
            assert reported(running).allocated_resources == small.of("main").requests
            resource_stories = [c for c in running.journal.all() if c.finding.decision == "ResizePending"]
            assert len(resource_stories) == 1

    run_virtual(story())


def test_what_was_handed_on_is_kept_and_forgotten_with_the_pod():
    machine = node()
    small = desired_allocation(pod_with(SMALL))

    async def story() -> None:
        wanted = DrivenPodSource()
        async with machine.run_agent(wanted) as running:
            wanted.add(pod_with(SMALL))
            await until(running, is_reported(running, 0))
            reading = running.agent.cache.get(UID)
            known = running.agent.allocations.view(pod_with(SMALL), reading.status)
            assert (known.admitted, known.actuated.cgroup) == (small, small)
            assert known.actuated.containers == {"main": small.of("main")}
            assert known.actual["main"].memory_limit == 128 * MIB
            wanted.remove(UID)
            await until(running, lambda: running.agent.allocations.pods() == frozenset())

    run_virtual(story())

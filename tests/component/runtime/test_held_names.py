"""Names that the runtime holds for what a killed agent asked for last, on the fake runtime."""

import asyncio
from datetime import timedelta

import pytest

from klet.cri.errors import Code, CriError
from klet.model.runtime import PodRuntimeStatus
from klet.runtime.actions import compute_pod_actions
from klet.runtime.quirks.held_names import PATIENCE, create_container, run_sandbox
from klet.testing.builders import make_pod
from klet.testing.fake_runtime import Fault
from klet.testing.fake_runtime.faults import Fail, HalfDone
from klet.wire import cri_v1_pb2 as cri

POD = make_pod("main")


def held(kind: str) -> Fail:
    """What the runtime says while it does not show the holder, as long as that is being made or taken back."""
    return Fail(Code.UNKNOWN, f'failed to reserve {kind} name "x": name "x" is reserved for "0123abcd"')


async def sandbox_request(bench) -> cri.RunPodSandboxRequest:
    """As the agent asks for the sandbox of the pod."""
    await bench.sync(POD)
    request = bench.calls("RunPodSandbox")[-1].request
    for sandbox in bench.runtime.sandboxes():
        await bench.client.remove_pod_sandbox(cri.RemovePodSandboxRequest(pod_sandbox_id=sandbox.id))
    return request


async def container_request(bench) -> cri.CreateContainerRequest:
    await bench.sync(POD)
    request = bench.calls("CreateContainer")[-1].request
    for container in bench.runtime.containers():
        await bench.client.remove_container(cri.RemoveContainerRequest(container_id=container.id))
    return request


def test_a_sandbox_is_made_as_soon_as_its_name_is_free(on_bench):
    async def test(bench) -> None:
        bench.runtime.faults.add(Fault("RunPodSandbox", held("sandbox"), count=4))
        outcome = await bench.sync(POD)
        assert outcome.errors == ()
        assert timedelta(0) < timedelta(seconds=bench.clock.monotonic()) < timedelta(seconds=0.5)
        assert [decision for decision, _ in await bench.events()] == ["SandboxCreated", "Created", "Started"]
        assert len(bench.runtime.sandboxes()) == 1

    on_bench(test)


def test_a_name_that_stays_held_is_a_failure_in_the_end(on_bench):
    async def test(bench) -> None:
        bench.runtime.faults.add(Fault("RunPodSandbox", held("sandbox"), count=None))
        outcome = await bench.sync(POD)
        assert "is reserved for" in outcome.errors[0]
        assert PATIENCE <= timedelta(seconds=bench.clock.monotonic()) < PATIENCE + timedelta(seconds=1)

    on_bench(test)


def test_a_sandbox_that_came_to_life_meanwhile_is_taken_over(on_bench):
    async def test(bench) -> None:
        request = await sandbox_request(bench)
        made = (await bench.client.run_pod_sandbox(request)).pod_sandbox_id
        seen = PodRuntimeStatus(uid=POD.metadata.uid)
        outcome = await bench.carry_out(POD, seen, compute_pod_actions(POD, seen, probes={}))
        assert outcome.errors == ()
        assert [sandbox.id for sandbox in bench.runtime.sandboxes()] == [made]
        status = await bench.status(POD)
        assert [record.sandbox_id for record in status.running()] == [made]

    on_bench(test)


def test_a_dead_sandbox_under_the_name_is_removed(on_bench):
    async def test(bench) -> None:
        request = await sandbox_request(bench)
        dead = (await bench.client.run_pod_sandbox(request)).pod_sandbox_id
        bench.runtime.kill_sandbox(dead)
        made = await run_sandbox(bench.client, request, clock=bench.clock)
        assert made != dead
        assert [sandbox.id for sandbox in bench.runtime.sandboxes()] == [made]

    on_bench(test)


def test_a_dead_sandbox_that_has_containers_is_kept(on_bench):
    async def test(bench) -> None:
        await bench.sync(POD)
        request = bench.calls("RunPodSandbox")[-1].request
        bench.runtime.kill_sandbox(bench.runtime.sandboxes()[0].id)
        with pytest.raises(CriError, match="is reserved for"):
            await run_sandbox(bench.client, request, clock=bench.clock)
        assert len(bench.runtime.containers()) == 1

    on_bench(test)


def test_a_container_is_created_as_soon_as_its_name_is_free(on_bench):
    async def test(bench) -> None:
        bench.runtime.faults.add(Fault("CreateContainer", held("container"), count=4))
        outcome = await bench.sync(POD)
        assert outcome.errors == ()
        assert timedelta(0) < timedelta(seconds=bench.clock.monotonic()) < timedelta(seconds=0.5)
        assert [record.restart_count for record in (await bench.status(POD)).running()] == [0]

    on_bench(test)


def test_a_container_that_was_created_meanwhile_makes_room(on_bench):
    async def test(bench) -> None:
        request = await container_request(bench)
        idle = (await bench.client.create_container(request)).container_id
        made = await create_container(bench.client, request, clock=bench.clock)
        assert [container.id for container in bench.runtime.containers()] == [made] != [idle]

    on_bench(test)


def test_a_container_that_runs_under_the_name_is_left_alone(on_bench):
    async def test(bench) -> None:
        request = await container_request(bench)
        running = (await bench.client.create_container(request)).container_id
        await bench.client.start_container(cri.StartContainerRequest(container_id=running))
        with pytest.raises(CriError, match="is reserved for"):
            await create_container(bench.client, request, clock=bench.clock)
        assert [container.id for container in bench.runtime.containers()] == [running]

    on_bench(test)


def test_other_failures_are_reported_at_once(on_bench):
    async def test(bench) -> None:
        bench.runtime.faults.add(Fault("CreateContainer", Fail(Code.UNKNOWN, "no space left")))
        outcome = await bench.sync(POD)
        assert outcome.failures["main"].message == "no space left"
        assert bench.clock.monotonic() == 0

    on_bench(test)


def test_an_answer_that_was_lost_costs_no_second_sandbox(on_bench):
    async def test(bench) -> None:
        bench.runtime.faults.add(Fault("RunPodSandbox", HalfDone()))
        async with asyncio.timeout(10):
            await bench.sync(POD)
            await bench.sync(POD)
        assert len(bench.runtime.sandboxes()) == 1

    on_bench(test)

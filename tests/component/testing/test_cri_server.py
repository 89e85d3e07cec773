"""The fake runtime over gRPC: what the contract suite cannot ask of containerd."""

import asyncio
from datetime import timedelta

import pytest

from klet.cri.client import connect
from klet.cri.errors import Code, CriError, DeadlineExceeded, Unavailable
from klet.cri.events import ContainerdEvents, CriEvents, EventKind
from klet.testing.clock import ManualClock
from klet.testing.cri_server import serve_cri
from klet.testing.fake_runtime import (
    FakeImage,
    FakeRuntime,
    Fault,
    Features,
    HalfDone,
    Hang,
    Script,
    registry_of,
)
from klet.wire import cri_v1_pb2 as pb
from klet.wire.containerd_events_service_pb2 import DESCRIPTOR, SubscribeRequest
from klet.wire.containerd_types_pb2 import Envelope
from klet.wire.methods import method_of

SECOND = timedelta(seconds=1)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def runtime(clock):
    image = FakeImage("busybox:1", pull_time=10 * SECOND)
    features = Features(container_events=True, runtime_config=True)
    return FakeRuntime(start=clock.now(), script=Script(registry=registry_of(image)), features=features)


@pytest.fixture
async def client(runtime, clock, tmp_path):
    async with (
        serve_cri(runtime, clock=clock, socket=tmp_path / "cri.sock") as endpoint,
        connect(runtime_endpoint=endpoint, timeout=5 * SECOND) as client,
    ):
        yield client


def sandbox_request(name="p"):
    metadata = pb.PodSandboxMetadata(name=name, namespace="d", uid=name)
    return pb.RunPodSandboxRequest(config=pb.PodSandboxConfig(metadata=metadata))


async def test_a_pull_ends_when_the_test_moves_the_clock(client, runtime, clock):
    async with asyncio.TaskGroup() as group:
        pull = group.create_task(client.pull_image(pb.PullImageRequest(image=pb.ImageSpec(image="busybox:1"))))
        await clock.until_asleep()
        assert not pull.done()
        clock.advance(10 * SECOND)
    assert pull.result().image_ref.startswith("sha256:")


async def test_a_hanging_call_ends_with_the_callers_deadline(runtime, clock, tmp_path):
    runtime.faults.add(Fault("RunPodSandbox", Hang()))
    async with (
        serve_cri(runtime, clock=clock, socket=tmp_path / "cri.sock") as endpoint,
        connect(runtime_endpoint=endpoint, timeout=timedelta(milliseconds=100)) as client,
    ):
        with pytest.raises(DeadlineExceeded):
            await client.run_pod_sandbox(sandbox_request())
    assert runtime.sandboxes() == ()


async def test_a_half_done_call_has_its_effect(client, runtime):
    runtime.faults.add(Fault("RunPodSandbox", HalfDone(Code.INTERNAL, "lost")))
    with pytest.raises(CriError) as caught:
        await client.run_pod_sandbox(sandbox_request())
    assert (caught.value.code, caught.value.message) == (Code.INTERNAL, "lost")
    assert len((await client.list_pod_sandbox(pb.ListPodSandboxRequest())).items) == 1


@pytest.mark.parametrize("source", ["containerd", "cri"])
async def test_event_streams_report_what_happens_and_break(client, runtime, source):
    events = ContainerdEvents(connection=client.runtime) if source == "containerd" else CriEvents(runtime=client)
    seen = asyncio.Queue()

    async def watch():
        async for event in events.subscribe():
            seen.put_nowait(event)

    async def watch_until_broken():
        with pytest.raises(Unavailable):
            await watch()

    async with asyncio.TaskGroup() as group:
        group.create_task(watch_until_broken())
        # Events from before the subscription are lost, so make some until one arrives.
        number = 0
        while seen.empty():
            number += 1
            await client.run_pod_sandbox(sandbox_request(f"p{number}"))
        assert (await seen.get()).kind in (EventKind.CREATED, EventKind.STARTED)
        runtime.disconnect()


async def test_the_cgroup_driver_is_reported(client):
    answer = await client.runtime_config(pb.RuntimeConfigRequest())
    assert answer.linux.cgroup_driver == pb.CGROUPFS


async def test_a_bad_filter_is_refused(client):
    subscribe = method_of(DESCRIPTOR.services_by_name["Events"], "Subscribe", SubscribeRequest, Envelope)
    with pytest.raises(CriError) as caught:
        await anext(client.runtime.stream(subscribe, SubscribeRequest(filters=["nonsense"])))
    assert caught.value.code is Code.INVALID_ARGUMENT

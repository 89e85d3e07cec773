"""The in-process skin on the virtual loop: deadlines, streams, and exact replay."""

import asyncio
import os
import subprocess
import sys
import textwrap
from datetime import timedelta

import pytest

from klet.aio.clock import LoopClock
from klet.cri.errors import CriNotFound, DeadlineExceeded, Unavailable
from klet.cri.events import ContainerdEvents, CriEvents, EventKind
from klet.testing.fake_runtime import (
    ContainerLife,
    FakeImage,
    FakeRuntime,
    Fault,
    Features,
    Hang,
    Script,
    random_latency,
)
from klet.testing.fake_runtime.lives import runs_for
from klet.testing.in_process import run_in_process
from klet.testing.loop import EPOCH, run_virtual
from klet.wire import cri_v1_pb2 as pb

SECOND = timedelta(seconds=1)
BUSYBOX = "klet.local/busybox:1"


def build_runtime(*, seed=0, features=None, **script):
    return FakeRuntime(
        start=EPOCH,
        seed=seed,
        script=Script(**script),
        features=features or Features(),
        images=(FakeImage(BUSYBOX),),
    )


def sandbox_config(name):
    metadata = pb.PodSandboxMetadata(name=name, namespace="d", uid=name)
    return pb.PodSandboxConfig(metadata=metadata, log_directory=f"/logs/{name}")


async def start_pod(client, name):
    config = sandbox_config(name)
    sandbox = (await client.run_pod_sandbox(pb.RunPodSandboxRequest(config=config))).pod_sandbox_id
    container = pb.ContainerConfig(
        metadata=pb.ContainerMetadata(name="main"), image=pb.ImageSpec(image=BUSYBOX), log_path="main.log"
    )
    request = pb.CreateContainerRequest(pod_sandbox_id=sandbox, config=container, sandbox_config=config)
    id_ = (await client.create_container(request)).container_id
    await client.start_container(pb.StartContainerRequest(container_id=id_))
    return sandbox, id_


def test_deadlines_pass_in_virtual_time():
    async def main():
        clock = LoopClock(epoch=EPOCH)
        runtime = build_runtime()
        runtime.faults.add(Fault("Status", Hang()))
        async with run_in_process(runtime, clock=clock, timeout=90 * SECOND) as client:
            with pytest.raises(DeadlineExceeded, match="context deadline exceeded"):
                await client.status(pb.StatusRequest())
        return clock.now()

    assert run_virtual(main()) == EPOCH + 90 * SECOND


def test_a_cancelled_caller_gives_its_call_up():
    async def main():
        runtime = build_runtime()
        fault = runtime.faults.add(Fault("RunPodSandbox", Hang()))
        async with run_in_process(runtime, clock=LoopClock(epoch=EPOCH)) as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await client.run_pod_sandbox(pb.RunPodSandboxRequest(config=sandbox_config("p")))
            fault.release()
        return runtime.sandboxes()

    assert run_virtual(main()) == ()


def test_errors_are_klets_own():
    async def main():
        async with run_in_process(build_runtime(), clock=LoopClock(epoch=EPOCH)) as client:
            with pytest.raises(CriNotFound):
                await client.container_status(pb.ContainerStatusRequest(container_id="nope"))

    run_virtual(main())


def test_an_error_of_the_test_comes_out_as_it_is():
    async def main():
        async with run_in_process(build_runtime(), clock=LoopClock(epoch=EPOCH)):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run_virtual(main())


@pytest.mark.parametrize("source", ["containerd", "cri"])
def test_events_come_at_their_time_until_the_stream_breaks(source):
    async def main():
        clock = LoopClock(epoch=EPOCH)
        seen = []
        runtime = build_runtime(lives=lambda _: runs_for(5 * SECOND), features=Features(container_events=True))
        async with run_in_process(runtime, clock=clock) as client:
            events = (
                ContainerdEvents(connection=client.runtime) if source == "containerd" else CriEvents(runtime=client)
            )

            async def watch():
                async for event in events.subscribe():
                    seen.append((event.kind, clock.monotonic()))

            async def watch_until_broken():
                with pytest.raises(Unavailable):
                    await watch()

            async with asyncio.TaskGroup() as group:
                group.create_task(watch_until_broken())
                await clock.sleep(SECOND)
                await start_pod(client, "p")
                await clock.sleep(10 * SECOND)
                runtime.disconnect()
        return seen

    assert run_virtual(main()) == [
        (EventKind.CREATED, 1.0),
        (EventKind.STARTED, 1.0),
        (EventKind.CREATED, 1.0),
        (EventKind.STARTED, 1.0),
        (EventKind.STOPPED, 6.0),
    ]


async def simulate(seed, pods=20):
    """Many pods at once with random lives and latencies; the trace of all that happened."""
    clock = LoopClock(epoch=EPOCH)
    runtime = build_runtime(
        seed=seed,
        lives=lambda config: ContainerLife(lasts=SECOND * (1 + len(config.metadata.name)), exit_code=3),
        latency=random_latency(timedelta(milliseconds=5)),
    )

    async def live(client, name):
        sandbox, _ = await start_pod(client, name)
        await clock.sleep(SECOND)
        await client.stop_pod_sandbox(pb.StopPodSandboxRequest(pod_sandbox_id=sandbox))
        await client.remove_pod_sandbox(pb.RemovePodSandboxRequest(pod_sandbox_id=sandbox))

    async with run_in_process(runtime, clock=clock) as client, asyncio.TaskGroup() as group:
        for number in range(pods):
            group.create_task(live(client, f"pod{number}"))
    return runtime.trace()


def test_the_same_seed_gives_the_same_run():
    first = run_virtual(simulate(7), seed=7)
    assert len(first) > 200
    assert run_virtual(simulate(7), seed=7) == first


def test_another_seed_gives_another_run():
    assert run_virtual(simulate(7), seed=7) != run_virtual(simulate(8), seed=8)


def test_another_process_with_other_hashes_gives_the_same_run():
    script = textwrap.dedent(f"""
        import hashlib, importlib.util
        spec = importlib.util.spec_from_file_location("replay", {__file__!r})
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        trace = module.run_virtual(module.simulate(7), seed=7)
        print(hashlib.sha256(chr(10).join(trace).encode()).hexdigest())
    """)
    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(digests) == 1

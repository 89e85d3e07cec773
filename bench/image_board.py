"""CPU that the board of images takes at rest, beside a fake runtime with many images: `python -m bench.image_board`.

The runtime is in a process of its own, behind gRPC. Counted is the CPU time of this process for what happens in five
minutes: ten lists of images, one of them with a look for their users, and a collection that finds nothing to do.
"""

import argparse
import asyncio
import json
import multiprocessing
import resource
import sys
import tempfile
from collections.abc import Mapping
from datetime import timedelta
from multiprocessing.synchronize import Event
from pathlib import Path

from klet.aio.clock import SystemClock
from klet.api.stats import FsStats, RuntimeStats
from klet.cri.client import CriClient, connect
from klet.images.board import ImageBoard
from klet.images.gc import PERIOD, ImageGc, ImageRemover
from klet.images.gc_plan import ImageGcPolicy
from klet.images.holds import ImageHolds
from klet.images.metrics import register_image_gc
from klet.images.watcher import LISTS_PER_LOOK, ImageWatcher, ImageWatchSettings
from klet.journal.memory import MemoryJournal
from klet.metrics import MetricRegistry
from klet.model.runtime import ContainerId
from klet.pleg.cache import RuntimeCache
from klet.testing.cri_server import serve_cri
from klet.testing.fake_runtime import FakeImage, FakeRuntime
from klet.wire import cri_v1_pb2 as cri

BUDGET = 0.2
"""Percent of a core."""
ROUNDS = 20


class HalfFull:
    """A disk with space enough."""

    def __init__(self, clock: SystemClock) -> None:
        self._clock = clock

    async def image_fs(self) -> RuntimeStats:
        stats = FsStats(time=self._clock.now(), capacity_bytes=100 << 30, available_bytes=50 << 30)
        return RuntimeStats(image_fs=stats)

    async def layer_sizes(self) -> Mapping[ContainerId, int]:
        return {}


def serve(path: Path, images: int, ready: Event) -> None:
    """Be the runtime until the process is ended."""

    async def run() -> None:
        clock = SystemClock()
        held = tuple(
            FakeImage(name=f"registry.example.com/team/application-{number}:v1.{number}") for number in range(images)
        )
        runtime = FakeRuntime(start=clock.now(), images=held)
        async with serve_cri(runtime, clock=clock, socket=path):
            ready.set()
            await asyncio.Event().wait()

    asyncio.run(run())


async def start_containers(client: CriClient, count: int) -> None:
    """Start pods of one container each, of different images."""
    listed = (await client.list_images(cri.ListImagesRequest())).images
    for number in range(count):
        pod = cri.PodSandboxConfig(
            metadata=cri.PodSandboxMetadata(name=f"pod-{number}", uid=f"uid-{number}", namespace="default")
        )
        sandbox = await client.run_pod_sandbox(cri.RunPodSandboxRequest(config=pod))
        config = cri.ContainerConfig(
            metadata=cri.ContainerMetadata(name="main"), image=cri.ImageSpec(image=listed[number % len(listed)].id)
        )
        await client.create_container(
            cri.CreateContainerRequest(pod_sandbox_id=sandbox.pod_sandbox_id, config=config, sandbox_config=pod)
        )


async def measure(path: Path, pods: int) -> dict[str, float]:
    clock = SystemClock()
    async with connect(runtime_endpoint=f"unix://{path}", timeout=timedelta(seconds=60)) as client:
        found = len((await client.list_images(cri.ListImagesRequest())).images)
        await start_containers(client, pods)
        board, holds, journal = ImageBoard(), ImageHolds(), MemoryJournal(clock=clock)
        watcher = ImageWatcher(
            images=client,
            runtime=client,
            seen=RuntimeCache(),
            board=board,
            holds=holds,
            settings=ImageWatchSettings(),
            clock=clock,
        )
        remover = ImageRemover(
            images=client,
            board=board,
            holds=holds,
            forget=lambda _image: None,
            recorder=journal,
            collected=register_image_gc(MetricRegistry()),
            clock=clock,
        )
        gc = ImageGc(
            watcher=watcher,
            remover=remover,
            records=None,
            disk=HalfFull(clock),
            recorder=journal,
            clock=clock,
            policy=ImageGcPolicy(),
        )
        await watcher.look()  # the mounts of each container are asked for once
        lists: list[float] = []
        looks: list[float] = []
        passes: list[float] = []
        for _ in range(ROUNDS):
            for work, costs in ((watcher.refresh, lists), (watcher.look, looks), (gc.collect, passes)):
                before = _cpu()
                await work()
                costs.append(_cpu() - before)
    a_list, a_look, a_pass = (sum(costs) / ROUNDS for costs in (lists, looks, passes))
    whole = (LISTS_PER_LOOK - 1) * a_list + a_look + a_pass
    return {
        "images": found,
        "pods": pods,
        "list_cpu_ms": round(a_list * 1000, 2),
        "look_cpu_ms": round(a_look * 1000, 2),
        "collection_cpu_ms": round(a_pass * 1000, 2),
        "cpu_percent": round(whole / PERIOD.total_seconds() * 100, 4),
    }


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--pods", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="klet-bench-") as directory:
        path = Path(directory) / "cri.sock"
        context = multiprocessing.get_context("spawn")
        ready = context.Event()
        server = context.Process(target=serve, args=(path, options.images, ready), daemon=True)
        server.start()
        try:
            if not ready.wait(timeout=60):
                parser.error("the fake runtime does not start")
            found = asyncio.run(measure(path, options.pods))
        finally:
            server.terminate()
            server.join()
    print(json.dumps(found))
    return 0 if found["cpu_percent"] < BUDGET else 1


if __name__ == "__main__":
    sys.exit(main())

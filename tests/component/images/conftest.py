"""A bench for image garbage collection: the fake runtime, and a disk that its images fill."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import datetime, timedelta

import pytest

from klet.aio.clock import Clock, LoopClock
from klet.api.stats import FsStats, RuntimeStats
from klet.cri.client import CriClient
from klet.errors import KletError
from klet.images.board import ImageBoard
from klet.images.gc import ImageGc, ImageRemover
from klet.images.gc_plan import ImageGcPolicy
from klet.images.holds import ImageHolds
from klet.images.metrics import register_image_gc
from klet.images.present_images import NodeImages
from klet.images.views import ImageViews
from klet.images.watcher import ImageWatcher, ImageWatchSettings
from klet.journal.memory import MemoryJournal
from klet.metrics import MetricRegistry
from klet.model.causes import Finding
from klet.model.runtime import ContainerId
from klet.pleg.cache import RuntimeCache
from klet.testing.fake_runtime import FakeImage, FakeRuntime, Script
from klet.testing.fake_runtime.world import Features
from klet.testing.in_process import run_in_process
from klet.testing.loop import EPOCH, run_virtual
from klet.wire import cri_v1_pb2 as cri

MIB = 1 << 20
MINUTE = timedelta(minutes=1)
SANDBOX_CONFIG = cri.PodSandboxConfig(metadata=cri.PodSandboxMetadata(name="web", uid="u-1", namespace="default"))
LABELS = {
    "io.kubernetes.pod.name": "web",
    "io.kubernetes.pod.namespace": "default",
    "io.kubernetes.pod.uid": "u-1",
    "io.kubernetes.container.name": "main",
}


class ImageDiskOfTest:
    """A filesystem of 1000 MiB with the images of the runtime on it, and something else."""

    def __init__(self, runtime: FakeRuntime) -> None:
        self._runtime = runtime
        self.capacity = 1000 * MIB
        self.other = 0
        """What is taken besides images."""
        self.share = 1.0
        """What an image really takes, in times of its size."""
        self.layers: dict[ContainerId, int] = {}
        self.error: KletError | None = None
        self.reads = 0

    @property
    def used(self) -> int:
        return self.other + round(self.share * sum(each.image.size for each in self._runtime.stored_images()))

    async def image_fs(self) -> RuntimeStats:
        self.reads += 1
        if self.error is not None:
            raise self.error
        stats = FsStats(time=EPOCH, capacity_bytes=self.capacity, available_bytes=max(0, self.capacity - self.used))
        return RuntimeStats(image_fs=stats)

    async def layer_sizes(self) -> Mapping[ContainerId, int]:
        if self.error is not None:
            raise self.error
        return self.layers


class RecordsOnDisk:
    """A record for each pulled image, as the image manager keeps them. They outlive the agent."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.written: dict[str, datetime] = {}

    async def prune(self, *, remaining: Collection[str], before: datetime) -> None:
        for image, at in list(self.written.items()):
            await self._clock.sleep(timedelta(milliseconds=1))
            if image not in remaining and at < before:
                del self.written[image]


class CollectingBench:
    """One run of the agent, as far as images are concerned."""

    def __init__(self, runtime: FakeRuntime, client: CriClient, clock: LoopClock) -> None:
        self.runtime, self.client, self.clock = runtime, client, clock
        self.disk = ImageDiskOfTest(runtime)
        self.journal = MemoryJournal(clock=clock)
        self.records = RecordsOnDisk(clock)
        self._sandbox = ""
        self.forgotten: list[str] = []
        self.start_agent()

    def start_agent(self, policy: ImageGcPolicy | None = None, *, by_handler: bool = False) -> None:
        """Begin a new run of the agent, which knows nothing of the one before."""
        self.seen = RuntimeCache()
        self.board, self.holds = ImageBoard(), ImageHolds()
        self.node_images = NodeImages(images=self.client, clock=self.clock)
        self.registry = MetricRegistry()
        self.watcher = ImageWatcher(
            images=self.client,
            runtime=self.client,
            seen=self.seen,
            board=self.board,
            holds=self.holds,
            settings=ImageWatchSettings(by_handler=by_handler),
            clock=self.clock,
        )
        self.remover = ImageRemover(
            images=self.client,
            board=self.board,
            holds=self.holds,
            forget=self._forget,
            recorder=self.journal,
            collected=register_image_gc(self.registry),
            clock=self.clock,
        )
        self.gc = ImageGc(
            watcher=self.watcher,
            remover=self.remover,
            records=self.records,
            disk=self.disk,
            recorder=self.journal,
            clock=self.clock,
            policy=policy or ImageGcPolicy(),
        )
        self.views = ImageViews(watcher=self.watcher, gc=self.gc, disk=self.disk, clock=self.clock)

    def _forget(self, image: str) -> None:
        self.forgotten.append(image)
        self.node_images.forget(image)

    async def grow_old(self, *, minutes: float = 10) -> None:
        """Have the images seen, and let them be older than the minimum age."""
        await self.watcher.look()
        await self.clock.sleep(MINUTE * minutes)

    async def run_container(self, image_id: str, *, name: str = "main", mounts: tuple[str, ...] = ()) -> str:
        if not self._sandbox:
            made = await self.client.run_pod_sandbox(cri.RunPodSandboxRequest(config=SANDBOX_CONFIG))
            self._sandbox = made.pod_sandbox_id
        config = cri.ContainerConfig(
            metadata=cri.ContainerMetadata(name=name),
            image=cri.ImageSpec(image=image_id),
            labels={**LABELS, "io.kubernetes.container.name": name},
            mounts=[cri.Mount(container_path=f"/{each}", image=cri.ImageSpec(image=each)) for each in mounts],
        )
        container = await self.client.create_container(
            cri.CreateContainerRequest(pod_sandbox_id=self._sandbox, config=config, sandbox_config=SANDBOX_CONFIG)
        )
        await self.client.start_container(cri.StartContainerRequest(container_id=container.container_id))
        return container.container_id

    def left(self) -> list[str]:
        """Return the images that are there, without registry and tag."""
        return sorted(each.image.name.rpartition("/")[2].partition(":")[0] for each in self.runtime.stored_images())

    def findings(self, *reasons: str) -> list[Finding]:
        return [cause.finding for cause in self.journal.all() if str(cause.finding.decision) in reasons]

    def metrics(self) -> str:
        return self.registry.write().decode()

    def remove_request(self, container: str) -> cri.RemoveContainerRequest:
        return cri.RemoveContainerRequest(container_id=container)

    def removals(self) -> int:
        return sum(call.rpc == "RemoveImage" for call in self.runtime.calls)


@pytest.fixture
def on_image_bench() -> Callable[..., None]:
    return run_on_bench


def run_on_bench(
    test: Callable[[CollectingBench], Awaitable[None]],
    *images: FakeImage,
    script: Script | None = None,
    features: Features | None = None,
) -> None:
    """Run a test in virtual time, on a runtime that has these images."""

    async def main() -> None:
        clock = LoopClock(epoch=EPOCH)
        runtime = FakeRuntime(start=EPOCH, images=images, script=script or Script(), features=features or Features())
        async with run_in_process(runtime, clock=clock) as client:
            await test(CollectingBench(runtime, client, clock))

    run_virtual(main())

"""Image garbage collection on a real containerd, whose images are on a small filesystem of their own."""

import asyncio
import os
import shutil
import subprocess
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from klet.aio.clock import SystemClock
from klet.aio.threads import Threads
from klet.cri.client import connect
from klet.host.disk_usage import HostDiskMeter
from klet.host.images import BUSYBOX_IMAGE, ImageConfig, build_image, file
from klet.host.project_quotas import NoQuotas
from klet.images.board import ImageBoard
from klet.images.gc import ImageGc, ImageGcFailed, ImageRemover, as_disk_space
from klet.images.gc_plan import ImageGcPolicy
from klet.images.holds import ImageHolds
from klet.images.metrics import register_image_gc
from klet.images.views import ImageViews
from klet.images.watcher import ImageWatcher, ImageWatchSettings
from klet.journal.memory import MemoryJournal
from klet.metrics import MetricRegistry
from klet.pleg.cache import RuntimeCache
from klet.stats.disk import DiskSettings, NodeDisk
from klet.stats.disk_metrics import register_volume_durations
from klet.stats.disk_walker import DiskWalker
from klet.testing.containerd import REQUEST_TIMEOUT, add_image
from klet.wire import cri_v1_pb2 as cri

pytestmark = [pytest.mark.root, pytest.mark.containerd]

MIB = 1 << 20
DISK = 240 * MIB
IMAGES = 8
SIZE = 8 * MIB
"""Of each image; with what is unpacked it takes twice that."""


class NoVolumes:
    """Pods without volumes."""

    def measurable(self, _uid):
        return ()


class MeasuredDisk:
    """The disk of the runtime; every measurement is noted."""

    def __init__(self, disk: NodeDisk) -> None:
        self._disk = disk
        self.available: list[int] = []

    async def image_fs(self):
        stats = await self._disk.image_fs()
        self.available.append(as_disk_space(stats).available)
        return stats

    async def layer_sizes(self):
        return await self._disk.layer_sizes()


class Node:
    """A containerd whose images are on the small filesystem, and what collects them."""

    def __init__(self, daemon, client, threads, root) -> None:
        self.daemon, self.client, self.clock = daemon, client, SystemClock()
        board, holds = ImageBoard(), ImageHolds()
        self.journal = MemoryJournal(clock=self.clock)
        self.watcher = ImageWatcher(
            images=client,
            runtime=client,
            seen=RuntimeCache(),
            board=board,
            holds=holds,
            settings=ImageWatchSettings(),
            clock=self.clock,
        )
        self._remover = ImageRemover(
            images=client,
            board=board,
            holds=holds,
            forget=lambda _image: None,
            recorder=self.journal,
            collected=register_image_gc(MetricRegistry()),
            clock=self.clock,
        )
        meter = HostDiskMeter(threads=threads, clock=self.clock, quotas=NoQuotas())
        self.disk = MeasuredDisk(
            NodeDisk(
                runtime=client,
                images=client,
                pods=RuntimeCache(),
                volumes=NoVolumes(),
                walker=DiskWalker(meter=meter, durations=register_volume_durations(MetricRegistry()), clock=self.clock),
                meter=meter,
                settings=DiskSettings(root=root),
                clock=self.clock,
            )
        )

    def collector(self, **policy) -> ImageGc:
        return ImageGc(
            watcher=self.watcher,
            remover=self._remover,
            records=None,
            disk=self.disk,
            recorder=self.journal,
            clock=self.clock,
            policy=ImageGcPolicy(min_age=timedelta(0), **policy),
        )

    def views(self, gc: ImageGc) -> ImageViews:
        return ImageViews(watcher=self.watcher, gc=gc, disk=self.disk, clock=self.clock)

    async def load(self, name: str) -> None:
        """Import an image with content of its own, and have it seen."""
        layer = [file("data", name.encode().ljust(64) + bytes(SIZE))]
        data = build_image(name=name, layers=[layer], config=ImageConfig(command=("x",)))
        await add_image(self.daemon, self.client, name=name, data=data, clock=self.clock)
        await self.watcher.look()

    async def names(self) -> set[str]:
        listed = (await self.client.list_images(cri.ListImagesRequest())).images
        return {tag for image in listed for tag in image.repo_tags}

    async def make_container(self, image: str, *, sandbox: str, config: cri.PodSandboxConfig) -> None:
        """Make a container, which counts whether it ever starts or not."""
        request = cri.CreateContainerRequest(
            pod_sandbox_id=sandbox,
            config=cri.ContainerConfig(
                metadata=cri.ContainerMetadata(name=image.partition("/")[2].partition(":")[0]),
                image=cri.ImageSpec(image=image),
            ),
            sandbox_config=config,
        )
        await self.client.create_container(request)

    async def make_sandbox(self) -> tuple[str, cri.PodSandboxConfig]:
        config = cri.PodSandboxConfig(
            metadata=cri.PodSandboxMetadata(name="web", uid="u-1", namespace="default"),
            linux=cri.LinuxPodSandboxConfig(
                cgroup_parent=self.daemon.cgroup_parent,
                security_context=cri.LinuxSandboxSecurityContext(
                    namespace_options=cri.NamespaceOption(network=cri.NODE)
                ),
            ),
        )
        answer = await self.client.run_pod_sandbox(cri.RunPodSandboxRequest(config=config))
        return answer.pod_sandbox_id, config


@pytest.fixture
def small_disk(tmp_path):
    """The mount point of a small ext4."""
    if os.geteuid() != 0:
        pytest.skip("needs root: run the tests as root")
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("no mkfs.ext4: apt-get install e2fsprogs")
    image, place = tmp_path / "disk", tmp_path / "mounted"
    place.mkdir()
    image.touch()
    os.truncate(image, DISK)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=True, capture_output=True)
    if subprocess.run(["mount", "-o", "loop", str(image), str(place)], check=False, capture_output=True).returncode:
        pytest.skip("this machine cannot mount a file (no loop devices): the kernel of scripts/vm can")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.fixture
def running_node(own_containerd, small_disk):
    """Runs a node: `async with running_node("name") as node`."""

    @asynccontextmanager
    async def run(name, **options):
        threads = Threads(limit=2)
        try:
            async with (
                own_containerd(name, root=small_disk, **options) as daemon,
                connect(runtime_endpoint=daemon.endpoint, timeout=REQUEST_TIMEOUT) as client,
            ):
                yield Node(daemon, client, threads, small_disk)
        finally:
            threads.close()

    return run


async def test_a_disk_that_is_too_full_is_freed_to_the_low_threshold_and_no_further(running_node):
    async with running_node("gc-low") as node:
        names = [f"klet.test/i{number}:1" for number in range(IMAGES)]
        for name in names:
            await node.load(name)
        full = as_disk_space(await node.disk.image_fs())
        low = full.used_percent - 20
        gc = node.collector(high=full.used_percent, low=low)
        preview = await node.views(gc).preview()
        planned = [fate.image.tags[0] for fate in preview.fates if fate.removed and fate.image.tags]
        assert await node.names() >= set(names), "the preview removes nothing"
        node.disk.available.clear()
        await gc.collect()
        gone = [name for name in names if name not in await node.names()]
        removed = [each.finding.measurements["image"] for each in node.journal.all()]
        assert gone == [name for name in removed if name in names]
        # Those that were loaded first went, and fewer than their own sizes ask for: what is unpacked goes with them.
        assert removed == planned[: len(removed)]
        assert 0 < len(gone) < IMAGES / 2
        wanted = full.capacity * (100 - low) // 100
        reached = next(number for number, left in enumerate(node.disk.available) if left >= wanted)
        assert len(removed) == reached, "one measurement before all, one after each, and the first that is enough ends"
        node.disk.available.clear()
        await gc.collect()
        assert len(node.disk.available) == 1
        assert [name for name in names if name not in await node.names()] == gone


async def test_nothing_in_use_goes_and_the_rest_does(running_node):
    async with running_node("gc-used") as node:
        used, unused = "klet.test/used:1", "klet.test/unused:1"
        for name in (used, unused):
            await node.load(name)
        sandbox, config = await node.make_sandbox()
        await node.make_container(used, sandbox=sandbox, config=config)
        before = await node.names()
        gc = node.collector(high=1, low=0)
        with pytest.raises(ImageGcFailed, match="Insufficient free disk space on the node's image filesystem"):
            await gc.collect()
        left = await node.names()
        assert before - left == {unused, BUSYBOX_IMAGE} & before
        assert used in left
        assert any("/pause:" in name for name in left), "sandboxes are made of it"
        [full] = [each.finding for each in node.journal.all() if each.finding.decision == "FreeDiskSpaceFailed"]
        assert f"image {used}, 8.0 MiB, used by container used, which is of no pod" in full.measurements["heldBy"]


async def test_a_pinned_image_stays(running_node, newer_programs):
    async with running_node("gc-pin", programs=newer_programs) as node:
        pinned, unused = "klet.test/pinned:1", "klet.test/unused:1"
        for name in (pinned, unused):
            await node.load(name)
        program = shutil.which("ctr", path=node.daemon.path)
        address = ["--address", str(node.daemon.settings.socket), "--namespace", "k8s.io"]
        label = ["images", "label", pinned, "io.cri-containerd.pinned=pinned"]
        await asyncio.to_thread(subprocess.run, [program, *address, *label], check=True, capture_output=True)
        gc = node.collector(high=1, low=0)
        preview = await _until_pinned(node, gc, pinned)
        assert [fate.reason for fate in preview.fates if pinned in fate.image.tags] == ["pinned"]
        with pytest.raises(ImageGcFailed):
            await gc.collect()
        left = await node.names()
        assert pinned in left
        assert unused not in left


async def _until_pinned(node, gc, name):
    """Return a preview as soon as the runtime's list shows the label, which it learns of by an event."""
    while True:
        preview = await node.views(gc).preview()
        if any(fate.image.pinned for fate in preview.fates if name in fate.image.tags):
            return preview
        await node.clock.sleep(timedelta(milliseconds=20))

"""Volumes that the kernel counts, on filesystems with project quotas: ext4 and XFS, on loop devices."""

import os
import subprocess
import sys

import pytest

from klet.aio.clock import SystemClock
from klet.aio.threads import Threads
from klet.api.quantity import Quantity
from klet.host.beneath import open_directory
from klet.host.disk_usage import DiskTarget, DiskTargetKind, HostDiskMeter
from klet.host.project_files import FIRST_PROJECT, ProjectFilePaths
from klet.host.project_quotas import HostProjectQuotas
from klet.host.quotactl import KernelProjects, ProjectMark, has_quotactl_fd
from klet.host.tree_usage import TreeWalk
from klet.model.allocation import desired_allocation
from klet.model.pods import PodUID
from klet.model.volumes import UsageSource
from klet.volumes.host_mounter import HostMounter
from klet.volumes.media import ScratchRules
from klet.volumes.names import Layout
from klet.volumes.plugins.base import MountRequest
from klet.volumes.plugins.empty_dir import EmptyDirPlugin
from klet.volumes.scratch import ScratchDirectories
from klet.volumes.spec import VolumeSpec
from klet.volumes.volume_directories import DEPTH

pytestmark = [pytest.mark.root, pytest.mark.real_machine]

MIB = 1 << 20
EXT4 = ("mkfs.ext4", "-q", "-O", "quota,project", "-E", "quotatype=prjquota")
XFS = ("mkfs.xfs", "-q")
WITH_QUOTAS = [
    pytest.param((EXT4, "prjquota"), id="ext4"),
    pytest.param((EXT4, "defaults"), id="ext4 that only counts"),
    pytest.param((XFS, "prjquota"), id="xfs"),
    pytest.param((XFS, "pqnoenforce"), id="xfs that only counts"),
]
WITHOUT = [
    pytest.param((("mkfs.ext4", "-q"), "defaults"), id="ext4 without quotas"),
    pytest.param((XFS, "defaults"), id="xfs without quotas"),
]
GIVE_AWAY = """
import fcntl, os, struct, sys
opened = os.open(sys.argv[1], os.O_RDONLY)
found = bytearray(fcntl.ioctl(opened, 0x801C581F, bytes(28)))
struct.pack_into("=I", found, 12, 0)
fcntl.ioctl(opened, 0x401C5820, bytes(found))
"""


class Resources:
    def allocatable(self):
        return {"memory": Quantity.of(64 * MIB)}


class QuotaNode:
    """Volumes of one node, and what measures them. Each agent knows what it has done itself."""

    def __init__(self, root, files, threads):
        self.root = root
        self.files = files
        self.threads = threads
        self.kernel = KernelProjects(has_quotactl_fd=has_quotactl_fd())
        self.start()

    def start(self):
        clock = SystemClock()
        self.quotas = HostProjectQuotas(files=self.files, kernel=self.kernel, threads=self.threads, clock=clock)
        self.meter = HostDiskMeter(threads=self.threads, clock=clock, quotas=self.quotas)
        self.plugin = EmptyDirPlugin(
            layout=Layout(self.root),
            scratches=ScratchDirectories(mounter=HostMounter()),
            rules=ScratchRules(node=Resources(), noswap=False),
            quotas=self.quotas,
            threads=self.threads,
        )

    def path(self, name="v"):
        return self.root / "pods" / "u" / "volumes" / "kubernetes.io~empty-dir" / name

    async def set_up(self, pod_with, name="v", **spec):
        pod = pod_with({"name": name, "emptyDir": {}}, **spec)
        request = MountRequest(pod=pod, allocation=desired_allocation(pod), spec=VolumeSpec(pod.spec.volumes[0]))
        await self.plugin.set_up(request)
        return self.path(name)

    async def tear_down(self, name="v"):
        await self.plugin.tear_down(PodUID("u"), name)

    async def measure(self, name="v"):
        target = DiskTarget(DiskTargetKind.TREE, str(self.path(name)), DEPTH)
        return (await self.meter.measure([target]))[target]

    def walk(self, name="v"):
        os.sync()
        with open_directory(self.path(name)) as directory:
            walk = TreeWalk(directory)
            while not walk.step(1000):
                pass
            return walk.usage

    def counted(self, project):
        with open_directory(self.root) as directory:
            return self.kernel.usage(directory, project)


@pytest.fixture
def threads():
    made = Threads(limit=4)
    yield made
    made.close()


@pytest.fixture
def node(request, tmp_path, threads):
    """A node on a filesystem of its own."""
    if os.geteuid() != 0:
        pytest.skip("needs root: run the tests as root")
    make, option = request.param
    image, place = tmp_path / "disk", tmp_path / "root"
    place.mkdir()
    (tmp_path / "etc").mkdir()
    image.touch()
    os.truncate(image, 400 * MIB)
    try:
        subprocess.run([*make, str(image)], check=True, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip(f"no {make[0]}: apt-get install e2fsprogs xfsprogs")
    mount = ["mount", "-o", f"loop,{option}", str(image), str(place)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("this kernel cannot mount that (CONFIG_QFMT_V2, CONFIG_XFS_QUOTA): that of scripts/vm can")
    try:
        yield QuotaNode(place, ProjectFilePaths(tmp_path / "etc/projects", tmp_path / "etc/projid"), threads)
    finally:
        subprocess.run(["umount", str(place)], check=True)


def give_away(path, namespace):
    """Try to take a file out of its project, with what an owner may do."""
    command = [*namespace, sys.executable, "-c", GIVE_AWAY, str(path)]
    subprocess.run(command, check=False, capture_output=True)


NAMESPACED = {"hostUsers": False}
with_quotas = pytest.mark.parametrize("node", WITH_QUOTAS, indirect=True)


@with_quotas
async def test_what_is_written_is_counted_at_once_and_without_a_walk(node, pod_with):
    volume = await node.set_up(pod_with, **NAMESPACED)
    (volume / "file").write_bytes(b"x" * MIB)
    found = await node.measure()
    assert found.source is UsageSource.FSQUOTA
    assert (found.entries, found.inodes) == (0, 2)
    assert MIB <= found.used <= MIB + 64 * 1024
    assert found.filesystem.capacity > 100 * MIB


@with_quotas
async def test_the_quota_says_what_a_walk_says(node, pod_with):
    volume = await node.set_up(pod_with, **NAMESPACED)
    (volume / "a" / "b").mkdir(parents=True)
    for number in range(200):
        (volume / "a" / "b" / str(number)).write_bytes(b"x" * 5000)
    (volume / "a" / "hole").touch()
    os.truncate(volume / "a" / "hole", 50 * MIB)
    (volume / "link").symlink_to("a")
    os.link(volume / "a" / "b" / "1", volume / "twice")
    walked, found = node.walk(), await node.measure()
    assert (found.used, found.inodes) == (walked.used, walked.inodes)
    assert walked.inodes == 205


@with_quotas
async def test_each_volume_is_counted_alone(node, pod_with):
    one, two = [await node.set_up(pod_with, name, **NAMESPACED) for name in ("one", "two")]
    (one / "file").write_bytes(b"x" * MIB)
    (two / "file").write_bytes(b"x" * 3 * MIB)
    assert (await node.measure("one")).used < 2 * MIB
    assert (await node.measure("two")).used >= 3 * MIB


@with_quotas
async def test_the_next_agent_goes_on_counting(node, pod_with):
    volume = await node.set_up(pod_with, **NAMESPACED)
    (volume / "file").write_bytes(b"x" * MIB)
    listed = node.files.projects.read_text()
    node.start()
    assert (await node.measure()).source is UsageSource.DU
    await node.set_up(pod_with, **NAMESPACED)
    found = await node.measure()
    assert (found.source, found.inodes) == (UsageSource.FSQUOTA, 2)
    assert node.files.projects.read_text() == listed


@with_quotas
async def test_a_volume_from_before_the_gate_was_on_is_counted_with_all_in_it(node, pod_with):
    volume = await node.set_up(pod_with)
    (volume / "a").mkdir()
    (volume / "a" / "file").write_bytes(b"x" * MIB)
    assert (await node.measure()).source is UsageSource.DU
    await node.set_up(pod_with, **NAMESPACED)
    (volume / "a" / "another").write_bytes(b"x" * MIB)
    found, walked = await node.measure(), node.walk()
    assert (found.source, found.inodes) == (UsageSource.FSQUOTA, walked.inodes)
    assert found.used >= 2 * MIB


@with_quotas
async def test_a_volume_that_is_taken_down_leaves_nothing(node, pod_with):
    volume = await node.set_up(pod_with, **NAMESPACED)
    (volume / "file").write_bytes(b"x" * MIB)
    assert node.files.projects.read_text() == f"{FIRST_PROJECT}:{volume}\n"
    assert node.counted(FIRST_PROJECT).has_limits
    await node.tear_down()
    assert not volume.exists()
    assert (node.files.projects.read_text(), node.files.names.read_text()) == ("", "")
    assert not node.counted(FIRST_PROJECT).has_limits


@with_quotas
async def test_a_kernel_that_wants_the_name_of_the_device_is_asked_so(node, pod_with):
    node.kernel = KernelProjects(has_quotactl_fd=False)
    node.start()
    volume = await node.set_up(pod_with, **NAMESPACED)
    (volume / "file").write_bytes(b"x" * MIB)
    found = await node.measure()
    assert (found.source, found.inodes) == (UsageSource.FSQUOTA, 2)
    assert found.used >= MIB


@with_quotas
async def test_the_limit_holds_nobody_back(node, pod_with):
    volume = await node.set_up(pod_with, **NAMESPACED)
    (volume / "file").write_bytes(b"x" * 64 * MIB)
    inside, outside = os.statvfs(volume), os.statvfs(node.root)
    assert (inside.f_blocks, inside.f_files) == (outside.f_blocks, outside.f_files)


@with_quotas
@pytest.mark.parametrize(
    ("namespace", "is_kept"),
    [
        pytest.param(("unshare", "--user", "--map-root-user"), True, id="not from a user namespace"),
        pytest.param((), False, id="but by the owner outside of one, so that quotas are not for such pods"),
    ],
)
async def test_a_file_can_be_given_to_another_project(node, pod_with, namespace, is_kept):
    volume = await node.set_up(pod_with, **NAMESPACED)
    (volume / "file").write_bytes(b"x" * MIB)
    give_away(volume / "file", namespace)
    with (volume / "file").open() as file:
        assert node.kernel.read_mark(file.fileno()) == ProjectMark(FIRST_PROJECT if is_kept else 0)
    assert ((await node.measure()).used >= MIB) is is_kept


@pytest.mark.parametrize("node", WITHOUT, indirect=True)
async def test_a_filesystem_without_quotas_is_walked(node, pod_with):
    volume = await node.set_up(pod_with, **NAMESPACED)
    (volume / "file").write_bytes(b"x" * MIB)
    found = await node.measure()
    assert (found.source, found.entries) == (UsageSource.DU, 1)
    assert not node.files.projects.exists()
    await node.tear_down()
    assert not volume.exists()

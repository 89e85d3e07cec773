"""The CSI plugin with a driver that makes real bind mounts and loop devices, in this process and in one of its own."""

import asyncio
import shutil
import stat
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from klet.csi.client import NodeCapability
from klet.errors import KletError
from klet.host.filesystems import is_mount_root
from klet.host.mounts import list_mounts, mount, unmount_tree
from klet.testing.csi.backing import MountBacking
from klet.testing.csi.bench import open_bench
from klet.testing.csi.faults import DriverFault, Mishap, Moment
from klet.volumes.errors import UncertainProgress
from klet.wire.codes import Code

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("root"), pytest.mark.real_machine]

NEEDS_LOOP = pytest.mark.skipif(
    not Path("/dev/loop-control").exists() or shutil.which("losetup") is None,
    reason="there are no loop devices: modprobe loop",
)


@pytest.fixture
async def bench(tmp_path):
    backing = MountBacking(root=tmp_path / "backing")
    async with open_bench(tmp_path / "root", tmp_path / "d.sock", backing) as opened:
        yield opened
    unmount_tree(tmp_path)


def write_start(device):
    with open(device, "r+b") as opened:
        opened.write(b"klet")


def mode_of(path):
    return Path(path).stat().st_mode


def mounted_below(path):
    return [each.mount_point for each in list_mounts() if each.mount_point.startswith(f"{path}/")]


async def test_a_volume_is_bound_and_nothing_stays(bench):
    (bench.driver.content("vol-0a1b") / "file").write_text("data")
    await bench.stage()
    await bench.publish(bench.persistent(read_only=True))
    assert is_mount_root(bench.staging)
    assert (bench.target() / "file").read_text() == "data"
    with pytest.raises(OSError, match="Read-only file system"):
        (bench.target() / "other").write_text("x")
    await bench.unpublish()
    await bench.unstage()
    assert (mounted_below(bench.root), bench.leftovers()) == ([], [])
    assert (bench.driver.content("vol-0a1b") / "file").read_text() == "data"


async def test_files_are_given_to_the_group_through_the_mount(bench):
    content = bench.driver.content("vol-0a1b")
    (content / "file").write_text("data")
    bench.allow()
    await bench.publish(pod=bench.pod(securityContext={"fsGroup": 4242}))
    assert (content.stat().st_gid, (content / "file").stat().st_gid) == (4242, 4242)
    assert stat.S_IMODE((content / "file").stat().st_mode) & 0o660 == 0o660
    await bench.unpublish()


async def test_a_driver_that_only_says_so_keeps_the_mount_and_everything_in_it(bench):
    content = bench.driver.content("vol-0a1b")
    (content / "file").write_text("precious")
    await bench.stage()
    await bench.publish()
    bench.driver.faults.add(DriverFault(rpc="NodeUnpublishVolume", does=Mishap.LIE))
    with pytest.raises(KletError, match="is still a mount point"):
        await bench.unpublish()
    bench.driver.memory.published.clear()
    bench.driver.faults.add(DriverFault(rpc="NodeUnstageVolume", does=Mishap.LIE))
    with pytest.raises(KletError, match="is still a mount point"):
        await bench.unstage()
    assert (bench.target() / "file").read_text() == "precious"
    assert len(bench.data_files()) == 2, "what is needed to try again is there"
    await bench.unpublish()
    await bench.unstage()
    assert (content / "file").read_text() == "precious"
    assert bench.leftovers() == []


@pytest.mark.parametrize("at", [Moment.PARTIAL, Moment.AFTER])
async def test_a_final_error_never_removes_what_is_mounted(bench, at):
    (bench.driver.content("vol-0a1b") / "file").write_text("precious")
    bench.allow()
    bench.driver.faults.add(DriverFault(rpc="NodePublishVolume", does=Code.INTERNAL, at=at))
    with pytest.raises(KletError) as caught:
        await bench.publish()
    is_mounted = at is Moment.AFTER
    assert isinstance(caught.value, UncertainProgress) == is_mounted
    assert bool(mounted_below(bench.root)) == is_mounted
    await bench.unpublish()
    assert (mounted_below(bench.root), bench.leftovers()) == ([], [])
    assert (bench.driver.content("vol-0a1b") / "file").read_text() == "precious"


async def test_file_systems_mounted_where_directories_are_removed_lose_nothing(bench, tmp_path):
    """A marked file system at each directory that is ever removed: no marker may be lost."""
    await bench.stage()
    await bench.publish()
    places = [bench.target(), bench.target().parent, bench.staging, bench.staging.parent]
    places += [bench.root / "plugins/kubernetes.io/csi/volumeDevices/pv/data"]
    for place in places:
        place.mkdir(parents=True, exist_ok=True)
        mount("tmpfs", place, fs_type="tmpfs")
        (place / "marker").write_text("x")
    for end in (bench.unpublish(), bench.unstage(), bench.unmap_device(), bench.plugin.find_devices(())):
        try:
            await end
        except KletError:
            continue
    assert [str(place) for place in places if not (place / "marker").exists()] == [
        str(bench.target()),  # covered by the file system above it, which has it unchanged
        str(bench.staging),
    ]
    for place in (bench.target().parent, bench.staging.parent):
        unmount_tree(place)
        assert not list(place.parent.glob("marker"))


@NEEDS_LOOP
async def test_a_device_is_a_block_device_and_nothing_stays(bench):
    _, device = await bench.map_device()
    assert stat.S_ISBLK(mode_of(device))
    write_start(device)
    await bench.unmap_device()
    assert (mounted_below(bench.root), bench.leftovers()) == ([], [])
    image = bench.driver.content("x").parent / "vol-0a1b.img"
    assert image.read_bytes()[:4] == b"klet"


@asynccontextmanager
async def running(bench, tmp_path, *arguments):
    """Run the driver as a process of its own in place of the one here."""
    await bench.server.die()
    (tmp_path / "state").mkdir(exist_ok=True)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "klet.testing.csi_driver", "--socket", str(bench.server.socket),
        "--root", str(tmp_path / "state"), "--capability", NodeCapability.STAGE_UNSTAGE_VOLUME, *arguments,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert await process.stdout.readline() == b"serving\n"
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.parametrize("rpc", ["NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"])
@pytest.mark.parametrize("at", [Moment.BEFORE, Moment.AFTER])
async def test_a_driver_that_dies_in_a_call_leaves_nothing_in_the_end(bench, tmp_path, rpc, at):
    async def through():
        for step in (bench.stage, bench.publish, bench.unpublish, bench.unstage):
            await step()

    async with running(bench, tmp_path, "--fault", f"{rpc}:{at}:die") as process:
        with pytest.raises(KletError):
            await through()
        assert await process.wait() == 137
    async with running(bench, tmp_path):
        await bench.unpublish()
        await bench.unstage()
    assert (mounted_below(bench.root), bench.leftovers()) == ([], [])


@pytest.mark.parametrize("at", [Moment.BEFORE, Moment.AFTER])
async def test_a_publish_that_nobody_waits_for_any_more_and_the_next_one_show_the_same(bench, at):
    (bench.driver.content("vol-0a1b") / "file").write_text("data")
    await bench.stage()
    bench.driver.faults.add(DriverFault(rpc="NodePublishVolume", does=Mishap.HANG, at=at))
    async with asyncio.TaskGroup() as group:
        call = group.create_task(bench.publish())
        await bench.driver.faults.reached.wait()
        call.cancel()
    bench.driver.faults.release()
    await bench.stage()
    await bench.publish()
    assert (bench.target() / "file").read_text() == "data"
    assert len(mounted_below(bench.target().parent)) == 1
    await bench.unpublish()
    await bench.unstage()
    assert (mounted_below(bench.root), bench.leftovers()) == ([], [])

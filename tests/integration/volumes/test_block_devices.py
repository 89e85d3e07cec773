"""Block volumes on real loop devices: bound, linked, locked, and never removed together with what they hold."""

import asyncio
import os
import stat
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from klet.aio.clock import SystemClock
from klet.errors import KletError
from klet.host import mounts
from klet.host.loop_devices import LoopDevices
from klet.volumes.device_host import BlockMapping
from klet.volumes.host_devices import DeviceFiles, HostDevices, is_in_use

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("root"), pytest.mark.real_machine]

SIZE = 2 << 20


def is_free_soon(loops, backing):
    """Whether nothing is on a file or device any more: the kernel waits for others that look at the loop device."""
    for _ in range(200):
        if loops.find(backing) is None:
            return True
        time.sleep(0.05)
    return False


@pytest.fixture
def loops():
    return LoopDevices()


@pytest.fixture
def disk(root, loops):
    """A loop device of this test alone, as if it were a disk."""
    image = root / "image"
    image.write_bytes(b"klet" + bytes(SIZE - 4))
    with image.open("r+b") as file:
        try:
            device = loops.take(file.fileno(), image)
        except KletError as error:
            pytest.skip(f"no loop device can be made: impossible here ({error})")
    yield device
    loops.release(device)
    assert is_free_soon(loops, image)


@pytest.fixture
def files(root, loops):
    return DeviceFiles(root=root, loops=loops)


@pytest.fixture
def mapping(root):
    link = root / "pods" / "u" / "volumeDevices" / "example.org~disk" / "pv"
    return BlockMapping(map_path=str(root / "plugins" / "disk" / "volumeDevices" / "pv"), uid="u", link=link)


@contextmanager
def mapped(files, mapping, disk, loops):
    """A device of a pod that does not stay behind, whatever the test finds."""
    try:
        files.map_device(mapping, disk)
        yield
    finally:
        unmap(files, mapping, loops)


def unmap(files, mapping, loops):
    files.unlock(mapping)
    assert is_free_soon(loops, Path(mapping.map_path) / mapping.uid)
    files.unbind(mapping)


def begin_of(path):
    with path.open("rb") as file:
        return file.read(4)


def test_a_device_is_bound_linked_and_locked_and_all_of_it_goes(files, mapping, disk, loops):
    bound = Path(mapping.map_path) / "u"
    with mapped(files, mapping, disk, loops):
        files.map_device(mapping, disk)  # a second time, which changes nothing
        assert stat.S_ISBLK(bound.stat().st_mode)
        assert begin_of(bound) == b"klet"
        assert mapping.link.readlink() == disk
        lock = loops.find(bound)
        assert lock is not None
        assert lock != disk
        assert files.mapped(mapping.map_path) == ["u"]
    unmap(files, mapping, loops)
    assert not bound.exists()
    assert files.mapped(mapping.map_path) == []
    files.unlink(mapping)
    assert not mapping.link.is_symlink()
    files.remove_map(mapping.map_path)
    assert not Path(mapping.map_path).exists()
    assert begin_of(disk) == b"klet"


def test_two_pods_have_a_bind_each(files, mapping, disk, loops):
    other = BlockMapping(
        map_path=mapping.map_path, uid="v", link=mapping.link.parents[3] / "v" / "volumeDevices" / "p" / "pv"
    )
    with mapped(files, other, disk, loops):
        with mapped(files, mapping, disk, loops):
            assert files.mapped(mapping.map_path) == ["u", "v"]
        assert files.mapped(mapping.map_path) == ["v"]
    assert files.mapped(mapping.map_path) == []


def test_the_directory_of_binds_is_not_removed_while_one_is_there(files, mapping, disk, loops):
    with mapped(files, mapping, disk, loops):
        with pytest.raises(KletError, match="mount point"):
            files.remove_map(mapping.map_path)
        assert files.mapped(mapping.map_path) == ["u"]
    assert begin_of(disk) == b"klet"


def test_a_pod_cannot_have_the_link_lead_its_device_elsewhere(files, mapping, disk, root):
    """A file that is no plain file is not bound over, wherever it leads."""
    outside = root / "outside"
    outside.write_text("x")
    Path(mapping.map_path).mkdir(parents=True)
    (Path(mapping.map_path) / "u").symlink_to(outside)
    with pytest.raises(KletError):
        files.map_device(mapping, disk)
    assert outside.read_text() == "x"
    assert not mounts.is_mountpoint(outside)


def test_a_device_that_is_mounted_is_in_use(disk):
    assert not is_in_use(disk)
    held = os.open(disk, os.O_RDONLY | os.O_EXCL)
    try:
        assert is_in_use(disk)
    finally:
        os.close(held)
    assert not is_in_use(disk)


def test_a_device_for_reading_only_is_locked_too(root, loops):
    image = root / "fixed"
    image.write_bytes(bytes(SIZE))
    with image.open("rb") as file:
        try:
            device = loops.take(file.fileno(), image)
        except KletError as error:
            pytest.skip(f"no loop device can be made: impossible here ({error})")
    try:
        assert (Path("/sys/block") / device.name / "ro").read_text() == "1\n"
    finally:
        loops.release(device)
        assert is_free_soon(loops, image)


async def test_it_works_from_the_loop_as_well(root, loops, threads, mapping, disk):
    host = HostDevices(root=root, loops=loops, threads=threads, clock=SystemClock())
    link = root / "by-id"
    link.symlink_to(disk)
    found = await host.resolve(str(link))
    assert found == str(disk)
    await host.announce(mapping)
    try:
        await host.map_device(mapping, found)
        assert await host.mapped(mapping.map_path) == ["u"]
        assert str(Path(mapping.map_path) / "u") in {entry.mount_point for entry in await host.mounts()}
        assert not await host.is_in_use("/dev/null")
    finally:
        await host.unmap_device(mapping)
    await host.unlink(mapping)
    await host.remove_map(mapping.map_path)
    assert await host.references(str(root)) == ()


async def test_a_lock_that_others_look_at_goes_before_its_bind(root, loops, threads, mapping, disk):
    """As udev does on a machine: it opens each loop device that changes, and the kernel keeps what is open."""
    host = HostDevices(root=root, loops=loops, threads=threads, clock=SystemClock())
    await host.map_device(mapping, str(disk))
    lock = loops.find(Path(mapping.map_path) / "u")
    looking = os.open(lock, os.O_RDONLY)
    asyncio.get_running_loop().call_later(0.3, os.close, looking)
    await host.unmap_device(mapping)
    assert loops.find(Path(mapping.map_path) / "u") is None
    assert await host.mapped(mapping.map_path) == []

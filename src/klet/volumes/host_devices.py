"""Devices of volumes on this machine. Every step below the agent's root is taken by descriptor; all of it blocks.

Drivers with a hostPath write next to these files. A name that is swapped for a link meanwhile leads nowhere.
"""

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Final

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.host.beneath import list_directory, make_directories, open_directory, remove_below, unlink_below
from klet.host.errors import FileMissing, file_error
from klet.host.files import is_plain_name
from klet.host.loop_devices import LoopDevices
from klet.host.mountinfo import MountEntry, find_references
from klet.host.mounts import bind, list_mounts, unmount
from klet.volumes.device_host import BlockMapping
from klet.volumes.errors import VolumeSetupError, doing

MODE: Final = 0o750
UNLOCK_PATIENCE: Final = timedelta(seconds=5)
"""How long a bind waits for its lock to be gone; after that unmounting fails, and is tried again later."""
_UNLOCK_CHECK: Final = timedelta(milliseconds=50)
_NEW_LINK: Final = ".new-link"


class HostDevices:
    """Carries the work out on threads."""

    def __init__(self, *, root: Path, loops: LoopDevices, threads: Threads, clock: Clock) -> None:
        self._files = DeviceFiles(root=root, loops=loops)
        self._threads = threads
        self._clock = clock

    async def mounts(self) -> Sequence[MountEntry]:
        return await self._threads.run(list_mounts)

    async def references(self, path: str) -> Sequence[str]:
        return await self._threads.run(_references, path)

    async def is_in_use(self, device: str) -> bool:
        return await self._threads.run(is_in_use, Path(device))

    async def resolve(self, device: str) -> str:
        return await self._threads.run(_resolve, Path(device))

    async def announce(self, mapping: BlockMapping) -> None:
        await self._threads.run(self._files.announce, mapping)

    async def map_device(self, mapping: BlockMapping, device: str) -> None:
        await self._threads.run(self._files.map_device, mapping, Path(device))

    async def unmap_device(self, mapping: BlockMapping) -> None:
        await self._threads.run(self._files.unlock, mapping)
        # udev looks into each loop device that changes, and the kernel keeps the lock until the last one has closed it.
        await self._clock.wait(self._until_unlocked(mapping), at_most=UNLOCK_PATIENCE)
        await self._threads.run(self._files.unbind, mapping)

    async def unlink(self, mapping: BlockMapping) -> None:
        await self._threads.run(self._files.unlink, mapping)

    async def mapped(self, map_path: str) -> Sequence[str]:
        return await self._threads.run(self._files.mapped, map_path)

    async def remove_map(self, map_path: str) -> None:
        await self._threads.run(self._files.remove_map, map_path)

    async def _until_unlocked(self, mapping: BlockMapping) -> None:
        while await self._threads.run(self._files.is_locked, mapping):
            await self._clock.sleep(_UNLOCK_CHECK)


class DeviceFiles:
    """The binds, links and locks of block volumes below the agent's root."""

    def __init__(self, *, root: Path, loops: LoopDevices) -> None:
        self._root = root
        self._loops = loops

    def announce(self, mapping: BlockMapping) -> None:
        if not mapping.link.is_symlink():
            self._make_link(mapping.link, _bind_path(mapping))

    def map_device(self, mapping: BlockMapping, device: Path) -> None:
        names = self._names(mapping.map_path)
        make_directories(self._root, *names, mode=MODE)
        with open_directory(self._root, *names) as directory:
            shown = _bind_path(mapping)
            self._bind(directory, mapping.uid, device, shown)
            self._make_link(mapping.link, device)
            if self._loops.find(shown) is None:
                with _opened_device(directory, mapping.uid, shown) as found:
                    self._loops.take(found, shown)

    def unlock(self, mapping: BlockMapping) -> None:
        loop = self._loops.find(_bind_path(mapping))
        if loop is not None:
            self._loops.release(loop)

    def is_locked(self, mapping: BlockMapping) -> bool:
        return self._loops.find(_bind_path(mapping)) is not None

    def unbind(self, mapping: BlockMapping) -> None:
        """Take the bind off. While something holds the device by it, its lock for instance, that fails."""
        shown = _bind_path(mapping)
        try:
            root, names = self._place(Path(mapping.map_path))
            with open_directory(root, *names, one_mount=True) as directory:
                _unbind(directory, mapping.uid, shown)
        except FileMissing:
            return

    def unlink(self, mapping: BlockMapping) -> None:
        root, names = self._place(mapping.link)
        unlink_below(root, *names)

    def mapped(self, map_path: str) -> list[str]:
        names = self._names(map_path)
        try:
            with open_directory(self._root, *names) as directory:
                entries = list_directory(self._root, *names)
                return [entry.name for entry in entries if _is_device(directory, entry.name)]
        except FileMissing:
            return []

    def remove_map(self, map_path: str) -> None:
        root, names = self._place(Path(map_path))
        remove_below(root, *names)

    def _bind(self, directory: int, name: str, device: Path, shown: Path) -> None:
        if _is_device(directory, name):
            return
        # A run that was killed may have left it. Whatever else it is by now, the bind below goes by descriptor.
        with doing("make", shown), suppress(FileExistsError):
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE, dir_fd=directory))
        with doing("open", device):
            source = os.open(device, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if not stat.S_ISBLK(os.fstat(source).st_mode):
                raise VolumeSetupError(f"{device} is not a block device")
            with doing("open", shown):
                target = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
            try:
                if not stat.S_ISREG(os.fstat(target).st_mode):
                    raise VolumeSetupError(f"{shown} is not a regular file")
                bind(Path(f"/proc/self/fd/{source}"), Path(f"/proc/self/fd/{target}"), shown=shown)
            finally:
                os.close(target)
        finally:
            os.close(source)

    def _make_link(self, link: Path, device: Path) -> None:
        root, (*above, name) = self._place(link)
        make_directories(root, *above, mode=MODE)
        with open_directory(root, *above, one_mount=True) as directory, doing("link", link):
            with suppress(FileNotFoundError):
                os.unlink(_NEW_LINK, dir_fd=directory)
            os.symlink(device, _NEW_LINK, dir_fd=directory)
            os.rename(_NEW_LINK, name, src_dir_fd=directory, dst_dir_fd=directory)

    def _names(self, map_path: str) -> tuple[str, ...]:
        return self._names_of(Path(map_path))

    def _place(self, path: Path) -> tuple[Path, tuple[str, ...]]:
        """Return the directory of all pods or plugins, and the names below. A disk may be mounted on these two."""
        first, *names = self._names_of(path)
        return self._root / first, tuple(names)

    def _names_of(self, path: Path) -> tuple[str, ...]:
        """Return the names of a path below the agent's root; all others are refused."""
        if not path.is_relative_to(self._root):
            raise VolumeSetupError(f"{path} is not below {self._root}")
        names = path.relative_to(self._root).parts
        if not names or not all(is_plain_name(name) for name in names):
            raise VolumeSetupError(f"{path} is no plain path below {self._root}")
        return names


def is_in_use(device: Path) -> bool:
    """Return whether a device is open exclusively: mounted, or part of another device."""
    try:
        if not stat.S_ISBLK(device.stat().st_mode):
            return False
        os.close(os.open(device, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC | os.O_NONBLOCK))
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno == errno.EBUSY:
            return True
        raise file_error("open", device, error) from error
    return False


def _bind_path(mapping: BlockMapping) -> Path:
    return Path(mapping.map_path) / mapping.uid


def _references(path: str) -> tuple[str, ...]:
    return find_references(list_mounts(), os.path.realpath(path))


def _resolve(device: Path) -> str:
    with doing("look at", device):
        return str(device.resolve(strict=True))


def _is_device(directory: int, name: str) -> bool:
    try:
        mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return False
    return stat.S_ISBLK(mode) or stat.S_ISCHR(mode)


def _unbind(directory: int, name: str, shown: Path) -> None:
    if _is_device(directory, name):
        unmount(Path(f"/proc/self/fd/{directory}/{name}"), shown=shown)
    with doing("remove", shown), suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)


@contextmanager
def _opened_device(directory: int, name: str, shown: Path) -> Iterator[int]:
    with doing("open", shown):
        try:
            found = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=directory)
        except OSError as error:
            if error.errno not in {errno.EROFS, errno.EACCES}:
                raise
            found = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=directory)
    try:
        if not stat.S_ISBLK(os.fstat(found).st_mode):
            raise VolumeSetupError(f"{shown} is not a block device")
        yield found
    finally:
        os.close(found)

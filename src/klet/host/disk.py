"""Disk space: what a filesystem has (upstream's statfs provider). It blocks."""

import os
from pathlib import Path

from msgspec import Struct

from klet.aio.threads import Threads
from klet.host.errors import FileError, file_error


class FilesystemUsage(Struct, frozen=True, kw_only=True):
    """A filesystem, in bytes and inodes. `available` is what is left for others than root."""

    device: int
    capacity: int
    available: int
    used: int
    inodes: int
    inodes_free: int

    @property
    def inodes_used(self) -> int:
        return self.inodes - self.inodes_free


class FilesystemCapacity:
    """The size of the filesystem that holds a path: read until it succeeds once, then kept."""

    def __init__(self, *, path: Path, threads: Threads) -> None:
        self._path = path
        self._threads = threads
        self._size: int | None = None

    async def read(self) -> int | None:
        """Return the size in bytes; None while it cannot be read."""
        if self._size is None:
            try:
                self._size = (await self._threads.run(filesystem_usage, self._path)).capacity
            except FileError:
                return None
        return self._size


def filesystem_usage(path: Path) -> FilesystemUsage:
    """Return the filesystem that holds a path. Two paths with the same device are on the same one."""
    try:
        return filesystem_of(path)
    except OSError as error:
        raise file_error("read the filesystem of", path, error) from error


def filesystem_of(place: Path | int) -> FilesystemUsage:
    """Return the same for a path or an open descriptor; raises OSError."""
    found = os.statvfs(place)
    return FilesystemUsage(
        device=os.stat(place).st_dev,  # noqa: PTH116 - also of a descriptor
        capacity=found.f_blocks * found.f_frsize,
        available=found.f_bavail * found.f_frsize,
        used=(found.f_blocks - found.f_bfree) * found.f_frsize,
        inodes=found.f_files,
        inodes_free=found.f_ffree,
    )

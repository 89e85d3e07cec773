"""Mounts, by system call: no mount(8) is run. Functions block; `HostMounts` puts them on threads.

Network filesystems that need a helper of mount(8) are not for this module.
"""

import ctypes
import errno
import os
import sys
from collections.abc import Iterable
from enum import IntFlag, StrEnum
from pathlib import Path
from typing import Final

from klet.aio.threads import Threads
from klet.host.errors import MountError, file_error
from klet.host.files import read_text
from klet.host.mountinfo import MountEntry, find_mount, mounts_under, parse_mountinfo


class MountFlag(IntFlag):
    """The flags of mount(2)."""

    READ_ONLY = 1
    NOSUID = 2
    NODEV = 4
    NOEXEC = 8
    SYNCHRONOUS = 16
    REMOUNT = 32
    DIRSYNC = 128
    NOATIME = 1 << 10
    NODIRATIME = 1 << 11
    BIND = 1 << 12
    MOVE = 1 << 13
    RECURSIVE = 1 << 14
    SILENT = 1 << 15
    UNBINDABLE = 1 << 17
    PRIVATE = 1 << 18
    SLAVE = 1 << 19
    SHARED = 1 << 20
    RELATIME = 1 << 21
    STRICTATIME = 1 << 24
    LAZYTIME = 1 << 25


class Propagation(StrEnum):
    """Whether mounts made on one side appear on the other."""

    PRIVATE = "private"
    SLAVE = "slave"
    SHARED = "shared"
    UNBINDABLE = "unbindable"


MOUNT_EVENT: Final = "klet.mount"
UNMOUNT_EVENT: Final = "klet.umount"
"""Auditing events with the path, as Python raises them for the system calls of `os`: a call through ctypes has none."""

# A mount whose backing is gone answers stat with one of these; it can still be unmounted.
CORRUPTED = frozenset({
    errno.ENOTCONN, errno.ESTALE, errno.EIO, errno.EACCES, errno.EHOSTDOWN, errno.EWOULDBLOCK, errno.ENODEV,
})  # fmt: skip

_OPTIONS = {
    "ro": MountFlag.READ_ONLY,
    "nosuid": MountFlag.NOSUID,
    "nodev": MountFlag.NODEV,
    "noexec": MountFlag.NOEXEC,
    "sync": MountFlag.SYNCHRONOUS,
    "dirsync": MountFlag.DIRSYNC,
    "remount": MountFlag.REMOUNT,
    "noatime": MountFlag.NOATIME,
    "nodiratime": MountFlag.NODIRATIME,
    "relatime": MountFlag.RELATIME,
    "strictatime": MountFlag.STRICTATIME,
    "lazytime": MountFlag.LAZYTIME,
    "bind": MountFlag.BIND,
    "rbind": MountFlag.BIND | MountFlag.RECURSIVE,
}
_CLEARING = {
    "rw": MountFlag.READ_ONLY,
    "suid": MountFlag.NOSUID,
    "dev": MountFlag.NODEV,
    "exec": MountFlag.NOEXEC,
    "async": MountFlag.SYNCHRONOUS,
    "atime": MountFlag.NOATIME,
    "diratime": MountFlag.NODIRATIME,
}
_FOR_OTHERS = frozenset({"defaults", "_netdev", "auto", "noauto", "nofail", "user", "nouser"})
_STATVFS = {
    os.ST_RDONLY: MountFlag.READ_ONLY,
    os.ST_NOSUID: MountFlag.NOSUID,
    os.ST_NODEV: MountFlag.NODEV,
    os.ST_NOEXEC: MountFlag.NOEXEC,
    os.ST_NOATIME: MountFlag.NOATIME,
    os.ST_NODIRATIME: MountFlag.NODIRATIME,
    os.ST_RELATIME: MountFlag.RELATIME,
}
_OF_ONE_MOUNT = (
    MountFlag.READ_ONLY
    | MountFlag.NOSUID
    | MountFlag.NODEV
    | MountFlag.NOEXEC
    | MountFlag.NOATIME
    | MountFlag.NODIRATIME
    | MountFlag.RELATIME
)
"""The flags that one mount of a filesystem can have and another not."""
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_FORCE, _DETACH, _NOFOLLOW = 1, 2, 8
_MAX_STACKED = 100


def parse_mount_options(options: Iterable[str]) -> tuple[MountFlag, str]:
    """Split options into the flags of mount(2) and the data for the filesystem, as mount(8) does."""
    flags = MountFlag(0)
    data: list[str] = []
    for option in options:
        if option in _OPTIONS:
            flags |= _OPTIONS[option]
        elif option in _CLEARING:
            flags &= ~_CLEARING[option]
        elif option and option not in _FOR_OTHERS:
            data.append(option)
    return flags, ",".join(data)


def list_mounts(mountinfo: Path = Path("/proc/self/mountinfo")) -> tuple[MountEntry, ...]:
    return parse_mountinfo(read_text(mountinfo))


def is_mountpoint(path: Path) -> bool:
    """Return whether something is mounted at exactly this path. Sees bind mounts, needs no access to them."""
    return find_mount(list_mounts(), str(_resolved(path))) is not None


def has_mounts_under(path: Path) -> bool:
    """Return whether something is mounted at a path or below it."""
    return bool(mounts_under(list_mounts(), str(_resolved(path))))


def mount(source: str, target: Path, *, fs_type: str, options: Iterable[str] = (), shown: Path | None = None) -> None:
    """Mount a filesystem. The options do not appear in errors: they may hold secrets.

    A target that is a descriptor in /proc is `shown` in errors by its path.
    """
    flags, data = parse_mount_options(options)
    _mount(source, target, fs_type, flags, data, shown)


def bind(
    source: Path, target: Path, *, options: Iterable[str] = (), recursive: bool = False, shown: Path | None = None
) -> None:
    """Bind a file or directory. Options need a remount, which keeps what the source's filesystem already forbids."""
    flags, _ = parse_mount_options(options)
    _mount(str(source), target, "", MountFlag.BIND | (MountFlag.RECURSIVE if recursive else MountFlag(0)), "", shown)
    if flags & ~(MountFlag.BIND | MountFlag.RECURSIVE):
        try:
            remount_bind(target, flags)
        except MountError:
            unmount(target)
            raise


def restrict_bind(target: Path, options: Iterable[str]) -> None:
    """Give a bind mount the options that it does not have yet. What only a whole filesystem can have is ignored."""
    flags, _ = parse_mount_options(options)
    wanted = flags & _OF_ONE_MOUNT
    if wanted & ~_present_flags(target):
        remount_bind(target, wanted)


def remount_bind(target: Path, flags: MountFlag) -> None:
    """Add flags to a bind mount; those it has stay, as a user namespace may not drop them."""
    flags |= _present_flags(target)
    _mount("none", target, "", MountFlag.REMOUNT | MountFlag.BIND | flags & ~MountFlag.RECURSIVE, "")


def _present_flags(target: Path) -> MountFlag:
    try:
        present = os.statvfs(target).f_flag
    except OSError as error:
        raise file_error("read the mount flags of", target, error) from error
    flags = MountFlag(0)
    for bit, flag in _STATVFS.items():
        if present & bit:
            flags |= flag
    return flags


def set_propagation(target: Path, propagation: Propagation, *, recursive: bool = False) -> None:
    flag = MountFlag[propagation.name] | (MountFlag.RECURSIVE if recursive else MountFlag(0))
    _mount("none", target, "", flag, "")


def unmount(target: Path, *, lazy: bool = False, force: bool = False, shown: Path | None = None) -> bool:
    """Unmount what is on top at a path, never through a symlink; False if nothing was mounted there."""
    flags = _NOFOLLOW | (_DETACH if lazy else 0) | (_FORCE if force else 0)
    sys.audit(UNMOUNT_EVENT, os.fspath(target))
    if _LIBC.umount2(os.fsencode(target), flags) == 0:
        return True
    number = ctypes.get_errno()
    if number in {errno.EINVAL, errno.ENOENT}:
        return False
    raise MountError(f"cannot unmount {shown or target}: {os.strerror(number)}", errno=number)


def unmount_tree(path: Path, *, lazy: bool = False) -> int:
    """Unmount all at a path and below it, deepest first; returns how many. Mounts stacked on one another count each."""
    count = 0
    # Unmounting one may uncover others, so look again until nothing is left.
    for _ in range(_MAX_STACKED):
        found = mounts_under(list_mounts(), str(_resolved(path)))
        done = sum(unmount(Path(entry.mount_point), lazy=lazy) for entry in found)
        count += done
        if not found or not done:
            break
    return count


def cleanup_mount_point(path: Path, *, lazy: bool = False) -> None:
    """Unmount whatever is at a path and remove the empty directory or file that it was mounted on."""
    for _ in range(_MAX_STACKED):
        if not unmount(path, lazy=lazy):
            break
    try:
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
    except FileNotFoundError:
        return
    except OSError as error:
        raise file_error("remove the mount point", path, error) from error


class HostMounts:
    """The mount calls, on threads: a mount can hang for as long as its backing does."""

    def __init__(self, *, threads: Threads) -> None:
        self._threads = threads

    async def list(self) -> tuple[MountEntry, ...]:
        return await self._threads.run(list_mounts)

    async def is_mountpoint(self, path: Path) -> bool:
        return await self._threads.run(is_mountpoint, path)

    async def has_mounts_under(self, path: Path) -> bool:
        return await self._threads.run(has_mounts_under, path)

    async def mount(self, source: str, target: Path, *, fs_type: str, options: Iterable[str] = ()) -> None:
        await self._threads.run(mount, source, target, fs_type=fs_type, options=options)

    async def bind(self, source: Path, target: Path, *, options: Iterable[str] = (), recursive: bool = False) -> None:
        await self._threads.run(bind, source, target, options=options, recursive=recursive)

    async def set_propagation(self, target: Path, propagation: Propagation, *, recursive: bool = False) -> None:
        await self._threads.run(set_propagation, target, propagation, recursive=recursive)

    async def unmount(self, target: Path, *, lazy: bool = False, force: bool = False) -> bool:
        return await self._threads.run(unmount, target, lazy=lazy, force=force)

    async def unmount_tree(self, path: Path, *, lazy: bool = False) -> int:
        return await self._threads.run(unmount_tree, path, lazy=lazy)

    async def cleanup_mount_point(self, path: Path, *, lazy: bool = False) -> None:
        await self._threads.run(cleanup_mount_point, path, lazy=lazy)


def _mount(source: str, target: Path, fs_type: str, flags: MountFlag, data: str, shown: Path | None = None) -> None:
    sys.audit(MOUNT_EVENT, os.fspath(target))
    result = _LIBC.mount(
        os.fsencode(source), os.fsencode(target), fs_type.encode() or None, ctypes.c_ulong(flags), data.encode() or None
    )
    if result != 0:
        number = ctypes.get_errno()
        raise MountError(f"cannot mount {source} at {shown or target}: {os.strerror(number)}", errno=number)


def _resolved(path: Path) -> Path:
    """Resolve the parents only: the path itself may be a mount that does not answer."""
    return path.parent.resolve() / path.name

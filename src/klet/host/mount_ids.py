"""Which mount a file is reached through: what distinguishes a mount from a directory when both are of one filesystem.

A bind mount has the same `st_dev` as what it covers, so that number is no proof. Neither function asks the filesystem
itself: one whose server is gone would not answer. They block.
"""

import ctypes
import os
from pathlib import Path
from typing import Final, NamedTuple

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_EMPTY_PATH: Final = 0x1000
_NO_FOLLOW: Final = 0x100
_NO_AUTOMOUNT: Final = 0x800
_DONT_SYNC: Final = 0x4000
_TYPE, _MOUNT_ID = 0x1, 0x1000
# Offsets in `struct statx`, which is the same on every architecture.
_MODE_AT, _MOUNT_ID_AT, _SIZE = 28, 144, 256


class EntryLook(NamedTuple):
    """What has a name in a directory."""

    mode: int
    """Its type; the bits of its permissions may be missing."""
    mount: int


def mount_id(descriptor: int) -> int:
    """Return the number of the mount that an open file is on."""
    return _statx(descriptor, "", _EMPTY_PATH).mount


def look_at(directory: int, name: str) -> EntryLook:
    """Return what has a name in an open directory, never through a link; raises OSError."""
    return _statx(directory, name, _NO_FOLLOW)


def is_in_directory(descriptor: int, directory: Path) -> bool:
    """Return whether an open file is on the mount of a directory; raises OSError."""
    above = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return mount_id(descriptor) == mount_id(above)
    finally:
        os.close(above)


def _statx(directory: int, name: str, flags: int) -> EntryLook:
    buffer = ctypes.create_string_buffer(_SIZE)
    flags |= _NO_AUTOMOUNT | _DONT_SYNC
    if _LIBC.statx(directory, os.fsencode(name), flags, _TYPE | _MOUNT_ID, buffer) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)
    mode = ctypes.c_uint16.from_buffer(buffer, _MODE_AT).value
    if not ctypes.c_uint32.from_buffer(buffer).value & _MOUNT_ID:
        return EntryLook(mode, _read_mount_id(directory, name))  # a kernel before 5.8
    return EntryLook(mode, ctypes.c_uint64.from_buffer(buffer, _MOUNT_ID_AT).value)


def _read_mount_id(directory: int, name: str) -> int:
    found = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory) if name else os.dup(directory)
    try:
        lines = Path(f"/proc/self/fdinfo/{found}").read_text(encoding="ascii").splitlines()
        return next(int(line.partition(":")[2]) for line in lines if line.startswith("mnt_id:"))
    finally:
        os.close(found)

"""What kind of filesystem holds a path, and whether a path is where something is mounted. It blocks.

The kernel is asked about the one path: reading the whole mount table costs more the more pods there are.
"""

import ctypes
import errno
import os
from enum import IntEnum
from pathlib import Path
from typing import Final

from klet.host.errors import file_error
from klet.host.mounts import is_mountpoint

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_AT_FDCWD: Final = -100
_AT_SYMLINK_NOFOLLOW: Final = 0x100
_AT_NO_AUTOMOUNT: Final = 0x800
_AT_STATX_DONT_SYNC: Final = 0x4000
"""Take what the kernel knows: a server that is gone would be waited for without an end."""
_STATX_ATTR_MOUNT_ROOT: Final = 0x2000
# Offsets in `struct statx`, which is the same on every architecture.
_ATTRIBUTES, _ATTRIBUTES_MASK, _STATX_SIZE = 8, 56, 256
_STATFS_SIZE: Final = 256
"""More than any architecture's `struct statfs` takes."""


class Magic(IntEnum):
    """Filesystem types, as statfs(2) returns them."""

    TMPFS = 0x01021994
    HUGETLBFS = 0x958458F6


def filesystem_type(path: Path) -> int:
    """Return the magic number of the filesystem that holds a path."""
    buffer = ctypes.create_string_buffer(_STATFS_SIZE)
    if _LIBC.statfs(os.fsencode(path), buffer) != 0:
        raise file_error("read the filesystem of", path, _os_error())
    return ctypes.c_ulong.from_buffer(buffer).value & 0xFFFFFFFF


def is_mount_root(path: Path) -> bool:
    """Return whether something is mounted at exactly this path; raises FileMissing if it is not there.

    The filesystem that is mounted there is not asked.
    """
    buffer = ctypes.create_string_buffer(_STATX_SIZE)
    flags = _AT_SYMLINK_NOFOLLOW | _AT_NO_AUTOMOUNT | _AT_STATX_DONT_SYNC
    if _LIBC.statx(_AT_FDCWD, os.fsencode(path), flags, 0, buffer) != 0:
        error = _os_error()
        if error.errno != errno.ENOSYS:
            raise file_error("look at", path, error)
        return is_mountpoint(path)
    mask = ctypes.c_uint64.from_buffer(buffer, _ATTRIBUTES_MASK).value
    if not mask & _STATX_ATTR_MOUNT_ROOT:
        return is_mountpoint(path)  # a kernel before 5.8
    return bool(ctypes.c_uint64.from_buffer(buffer, _ATTRIBUTES).value & _STATX_ATTR_MOUNT_ROOT)


def _os_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number)) if number != errno.ENOENT else FileNotFoundError(number, "missing")

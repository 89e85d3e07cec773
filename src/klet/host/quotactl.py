"""Project quotas as the kernel has them: the project of a directory, and what the files of a project take. It blocks.

The same calls do for every filesystem: the kernel translates `Q_GETQUOTA` and `Q_SETQUOTA` for XFS, too.
"""

import ctypes
import errno
import fcntl
import os
import struct
from functools import cache
from pathlib import Path
from typing import Final

from msgspec import Struct

from klet.host.mounts import list_mounts

# The ioctls of <linux/fs.h>, and `struct fsxattr`: flags, extent size, extents, project, and what is only passed on.
_GET_ATTRIBUTES: Final = 0x801C581F
_SET_ATTRIBUTES: Final = 0x401C5820
_ATTRIBUTES: Final = struct.Struct("=IIII12s")
_INHERIT: Final = 0x200
"""What is made in the directory gets its project (`FS_XFLAG_PROJINHERIT`)."""

_QUOTACTL_FD: Final = 443  # the same on every architecture; Linux 5.14
_PROJECT_QUOTA: Final = 2
_GET_QUOTA, _SET_QUOTA, _GET_STATE = 0x800007, 0x800008, 0x5805
_QUOTA: Final = struct.Struct("=QQQQQQQQI4x")
"""`struct if_dqblk`: hard and soft limit of space, space in use, the same of inodes, two times, what is valid."""
_SPACE_LIMITS_VALID: Final = 1
_STATE_SIZE: Final = 128
"""More than `struct fs_quota_stat` takes; the flags are two bytes at this offset."""
_STATE_FLAGS: Final = 2
_IS_COUNTED: Final = 0x10
_UNIT: Final = 1024
"""Bytes in which limits are given; usage is in bytes."""
_NO_PROJECT: Final = frozenset({errno.ENOENT, errno.ESRCH})
"""No file of that project was ever seen."""


class ProjectMark(Struct, frozen=True):
    """The project of a file or directory."""

    project: int = 0
    """0 stands for none."""
    inherits: bool = False
    """Whether what is made in the directory belongs to it, too."""


class ProjectUsage(Struct, frozen=True, kw_only=True):
    """What the kernel has counted of one project on one filesystem."""

    used: int = 0
    """Bytes."""
    inodes: int = 0
    has_limits: bool = False

    @property
    def is_free(self) -> bool:
        """Whether nobody uses the project: it has no files, and nobody has limited it."""
        return not (self.used or self.inodes or self.has_limits)


class KernelProjects:
    """The calls, on open descriptors: of a directory, or of a regular file. All of them raise OSError."""

    def __init__(self, *, has_quotactl_fd: bool) -> None:
        self._has_quotactl_fd = has_quotactl_fd

    def counts_projects(self, directory: int) -> bool:
        """Return whether the filesystem of a directory counts what each project takes (it has project quotas)."""
        buffer = ctypes.create_string_buffer(_STATE_SIZE)
        try:
            self._quotactl(directory, _GET_STATE, 0, buffer)
        except OSError:
            # A filesystem without any, one whose quotas are off, or one without a device: each has its own answer.
            return False
        return bool(int.from_bytes(buffer.raw[_STATE_FLAGS : _STATE_FLAGS + 2], "little") & _IS_COUNTED)

    def read_mark(self, opened: int) -> ProjectMark:
        flags, _, _, project, _ = _ATTRIBUTES.unpack(fcntl.ioctl(opened, _GET_ATTRIBUTES, bytes(_ATTRIBUTES.size)))
        return ProjectMark(project, inherits=bool(flags & _INHERIT))

    def write_mark(self, opened: int, mark: ProjectMark) -> None:
        before = fcntl.ioctl(opened, _GET_ATTRIBUTES, bytes(_ATTRIBUTES.size))
        flags, extent_size, extents, _, rest = _ATTRIBUTES.unpack(before)
        flags = flags | _INHERIT if mark.inherits else flags & ~_INHERIT
        fcntl.ioctl(opened, _SET_ATTRIBUTES, _ATTRIBUTES.pack(flags, extent_size, extents, mark.project, rest))

    def usage(self, directory: int, project: int) -> ProjectUsage:
        buffer = ctypes.create_string_buffer(_QUOTA.size)
        try:
            self._quotactl(directory, _GET_QUOTA, project, buffer)
        except OSError as error:
            if error.errno in _NO_PROJECT:
                return ProjectUsage()
            raise
        hard, soft, used, inodes_hard, inodes_soft, inodes, *_ = _QUOTA.unpack(buffer.raw)
        return ProjectUsage(used=used, inodes=inodes, has_limits=any((hard, soft, inodes_hard, inodes_soft)))

    def limit(self, directory: int, project: int, size: int) -> None:
        """Set how many bytes the project may take on the filesystem of a directory; 0 stands for no limit."""
        blocks = size // _UNIT
        packed = _QUOTA.pack(blocks, blocks, 0, 0, 0, 0, 0, 0, _SPACE_LIMITS_VALID)
        self._quotactl(directory, _SET_QUOTA, project, ctypes.create_string_buffer(packed, _QUOTA.size))

    def _quotactl(self, directory: int, command: int, project: int, buffer: "ctypes.Array[ctypes.c_char]") -> None:
        command = command << 8 | _PROJECT_QUOTA
        if self._has_quotactl_fd:
            done = _libc().syscall(_QUOTACTL_FD, directory, ctypes.c_uint(command), ctypes.c_uint(project), buffer)
        else:
            device = os.fsencode(_find_device(directory))
            done = _libc().quotactl(ctypes.c_int(command), device, ctypes.c_uint(project), buffer)
        if done != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def has_quotactl_fd() -> bool:
    """Return whether the kernel takes an open directory; before Linux 5.14 it wants the name of the device."""
    _libc().syscall(_QUOTACTL_FD, -1, 0, 0, None)
    return ctypes.get_errno() != errno.ENOSYS


def _find_device(directory: int) -> Path:
    """Return the block device of a directory's filesystem, for kernels that want its name; raises OSError."""
    number = os.fstat(directory).st_dev
    shown = f"{os.major(number)}:{os.minor(number)}"
    for entry in list_mounts():
        if entry.device == shown and entry.source.startswith("/"):
            device = Path(entry.source)
            # The name is what somebody has given to mount(8), who may have seen another /dev.
            if device.is_block_device() and device.stat().st_rdev == number:
                return device
    raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)

"""Loop devices, by the ioctls of losetup(8). It blocks.

A loop device on another block device keeps that one from being removed, and its number from being given to another.
"""

import errno
import fcntl
import os
import struct
from pathlib import Path
from typing import Final

from klet.host.errors import file_error

_LOOP_SET_FD: Final = 0x4C00
_LOOP_CLR_FD: Final = 0x4C01
_LOOP_CTL_GET_FREE: Final = 0x4C82
_LOOP_SET_STATUS64: Final = 0x4C04
_FLAG_READ_ONLY: Final = 1
_TRIES: Final = 16
"""Between finding a free one and taking it another process may take it."""
_DELETED: Final = " (deleted)"
# struct loop_info64: device, inode, rdevice, offset, sizelimit; number, encryption type, key size, flags; names, key.
_STATUS: Final = struct.Struct("=QQQQQIIII64s64s32sQQ")


class LoopDevices:
    """The loop devices of this machine."""

    def __init__(self, *, devices: Path = Path("/dev"), sysfs: Path = Path("/sys/block")) -> None:
        self._devices = devices
        self._sysfs = sysfs

    def find(self, backing: Path) -> Path | None:
        """Return the loop device of a file or device, by the path that it was made with."""
        names = {str(backing), os.path.realpath(backing)}
        for loop in sorted(self._sysfs.glob("loop*")):
            try:
                text = (loop / "loop" / "backing_file").read_text(errors="surrogateescape")
            except OSError:
                continue  # it is free, or has become so meanwhile
            if text.strip().removesuffix(_DELETED) in names:
                return self._devices / loop.name
        return None

    def take(self, backing: int, shown: Path) -> Path:
        """Put a free loop device on an open file or device; return its path."""
        try:
            for _ in range(_TRIES):
                loop = self._devices / f"loop{self._free()}"
                if self._set(loop, backing, shown):
                    return loop
        except OSError as error:
            raise file_error("make a loop device of", shown, error) from error
        raise file_error("make a loop device of", shown, OSError(errno.EBUSY, os.strerror(errno.EBUSY)))

    def release(self, loop: Path) -> None:
        """Take a loop device off; one that is free is fine."""
        try:
            found = os.open(loop, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        except OSError as error:
            raise file_error("open", loop, error) from error
        try:
            fcntl.ioctl(found, _LOOP_CLR_FD, 0)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise file_error("release", loop, error) from error
        finally:
            os.close(found)

    def _free(self) -> int:
        control = os.open(self._devices / "loop-control", os.O_RDWR | os.O_CLOEXEC)
        try:
            return fcntl.ioctl(control, _LOOP_CTL_GET_FREE)
        finally:
            os.close(control)

    def _set(self, loop: Path, backing: int, shown: Path) -> bool:
        writable = fcntl.fcntl(backing, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR
        found = os.open(loop, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
        try:
            fcntl.ioctl(found, _LOOP_SET_FD, backing)
            name = os.fsencode(shown)[:63]
            flags = 0 if writable else _FLAG_READ_ONLY
            status = _STATUS.pack(0, 0, 0, 0, 0, 0, 0, 0, flags, name, b"", b"", 0, 0)
            fcntl.ioctl(found, _LOOP_SET_STATUS64, status)
        except OSError as error:
            if error.errno == errno.EBUSY:
                return False
            raise
        finally:
            os.close(found)
        return True

"""Which file continues a log that was rotated while it is being followed, and whether the old one is complete.

A follower that is slower than its container has to read the rotated files in between, also those that are compressed
by now: the log's own name is then two files ahead.
"""

import fcntl
import os
import signal
import zlib
from collections.abc import Iterable
from itertools import islice
from typing import Final

from klet.logs.rotation_plan import COMPRESSED, TEMPORARY

MOST_FILES: Final = 10_000
_GZIP: Final = 16 + zlib.MAX_WBITS
_PACKED: Final = 32 * 1024


def find_own_name(directory: int, log: str, descriptor: int) -> str | None:
    """Return the name that an open file got by rotation; None if it has none (any more)."""
    own = os.fstat(descriptor)
    for entry in _rotated(directory, log):
        if entry.inode() == own.st_ino and os.path.samestat(os.stat(entry.name, dir_fd=directory), own):
            return entry.name
    return None


def find_newest_name(directory: int, log: str) -> str:
    """Return the name of the newest rotated file, as it was before it was compressed; empty if there is none."""
    names = (entry.name for entry in _rotated(directory, log))
    return max((_stem(name) for name in names if not name.endswith(TEMPORARY)), default="")


def find_name_after(directory: int, log: str, own: str) -> str:
    """Return the file that was written after the rotated one of that name: the next rotated one, or the log itself."""
    return choose_next(log, own, (entry.name for entry in _rotated(directory, log)))


def choose_next(log: str, own: str, found: Iterable[str]) -> str:
    """Return the oldest name that is newer. Of a file that is being compressed, the one that is whole."""
    later = [name for name in found if not name.endswith(TEMPORARY) and _stem(name) > _stem(own)]
    oldest = min(map(_stem, later), default=log)
    return oldest if oldest in later or oldest == log else oldest + COMPRESSED


def is_open_for_writing(descriptor: int) -> bool:
    """Return whether any process can still write to a file. A file system that does not know says no.

    The kernel grants a read lease only on a file that nobody has open for writing.
    """
    try:
        # A writer who opens it at this moment breaks the lease: the usual signal for that would end the process.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except BlockingIOError:
        return True
    except OSError:
        return False
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False


class Unpacker:
    """Reads a compressed file from its beginning, in pieces of bounded size."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._unpacker = zlib.decompressobj(_GZIP)

    def read(self, size: int) -> bytes:
        """Return the next bytes; empty at the end. Raises OSError or zlib.error."""
        while not self._unpacker.eof:
            packed = self._unpacker.unconsumed_tail or os.read(self._descriptor, _PACKED)
            if chunk := self._unpacker.decompress(packed, size):
                return chunk
            if not packed:
                break
        return b""


def _stem(name: str) -> str:
    return name.removesuffix(COMPRESSED)


def _rotated(directory: int, log: str) -> list["os.DirEntry[str]"]:
    readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    try:
        with os.scandir(readable) as entries:
            named = (entry for entry in entries if entry.name.startswith(f"{log}."))
            return [entry for entry in islice(named, MOST_FILES) if entry.is_file(follow_symlinks=False)]
    finally:
        os.close(readable)

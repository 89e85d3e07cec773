"""What a tree of files takes on disk (upstream's du provider), measured a piece at a time. It blocks.

The tree belongs to a pod, which may change it meanwhile and make it as large, as deep and as odd as it likes. So every
step is taken by descriptor, no link and no mount is followed, and memory and open descriptors are bounded. What is
beyond the bounds is not counted, and the result says so.
"""

import ctypes
import errno
import os
import stat
from collections.abc import Iterator
from functools import cache
from typing import Final

from msgspec import Struct

BLOCK: Final = 512
"""Bytes of a block in `st_blocks`, whatever the filesystem's own blocks are."""
MOST_OPEN: Final = 16
"""Directories that are open at a time; one that is further up is opened again on the way back."""
MOST_LEVELS: Final = 10_000
MOST_LINKED: Final = 100_000
"""Inodes with several names that are remembered, to count each once."""
MOST_REPEATED: Final = 1_000_000
"""Entries read twice, because their directory was closed meanwhile."""

_OPENAT2: Final = 437  # the same on every architecture
_RESOLVE_NO_XDEV, _RESOLVE_NO_SYMLINKS = 0x01, 0x04
_STEP: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE})
"""Of an entry that was there a moment ago, or has become something else."""


class TreeUsage(Struct, frozen=True, kw_only=True):
    """What a tree takes."""

    used: int = 0
    """Bytes on disk: a file with holes takes less than its length."""
    inodes: int = 0
    entries: int = 0
    """How many entries were looked at: what the walk has cost."""
    is_complete: bool = True
    """Whether everything was counted; otherwise it is at least that."""


class TreeWalk:
    """One walk through a tree. Its descriptors are closed at its end, or by `close`."""

    def __init__(self, root: int, *, is_flat: bool = False) -> None:
        """Begin at an open directory, which stays the caller's. `is_flat`: count only the files directly in it."""
        self._is_flat = is_flat
        self._frames: list[_Frame] = []
        self._linked: set[int] = set()
        self._blocks = 0
        self._inodes = 0.0
        self._entries = 0
        self._repeated = 0
        self._is_complete = True
        found = os.fstat(root)
        self._device = found.st_dev
        self._frames.append(_Frame(os.open(".", _STEP, dir_fd=root), found))
        if not is_flat:
            self._count(found)

    @property
    def usage(self) -> TreeUsage:
        return TreeUsage(
            used=self._blocks * BLOCK,
            inodes=round(self._inodes),
            entries=self._entries,
            is_complete=self._is_complete and not self._frames,
        )

    def step(self, most: int) -> int:
        """Look at up to so many entries; return how many of these are left when the walk has ended, 0 while it has not.

        Raises OSError for what cannot be read; the walk is closed then.
        """
        try:
            return self._step(most)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        while self._frames:
            self._frames.pop().close()

    def _step(self, most: int) -> int:
        while self._frames and most > 0:
            most -= 1
            frame = self._frames[-1]
            entry = frame.read()
            if entry is None:
                self._leave()
            elif frame.repeats():
                self._repeated += 1
                if self._repeated > MOST_REPEATED:
                    self._is_complete = False
                    self._leave()
            else:
                self._entries += 1
                self._look_at(entry, frame)
        return 0 if self._frames else max(1, most)

    def _look_at(self, entry: "os.DirEntry[str]", frame: "_Frame") -> None:
        try:
            if entry.is_dir(follow_symlinks=False):
                if not self._is_flat:
                    self._enter(entry.name, frame)
                return
            found = entry.stat(follow_symlinks=False)
        except OSError as error:
            if error.errno in _GONE:
                return
            raise
        if found.st_dev == self._device and (not self._is_flat or stat.S_ISREG(found.st_mode)):
            self._count(found)

    def _enter(self, name: str, frame: "_Frame") -> None:
        # Opened before anything else is asked about it: a mount there is never touched, its server may be dead.
        opened = open_same_mount(name, frame.descriptor)
        if opened is None:
            return
        try:
            found = os.fstat(opened)
            if found.st_dev != self._device:
                os.close(opened)
                return
            self._count(found)
            if len(self._frames) >= MOST_LEVELS:
                self._is_complete = False
                os.close(opened)
                return
            self._frames.append(_Frame(opened, found))
        except BaseException:
            os.close(opened)
            raise
        if len(self._frames) > MOST_OPEN:
            # The root stays open: there is always a way back to it.
            self._frames[-MOST_OPEN].close()

    def _leave(self) -> None:
        """Go back to the directory above. One that was moved meanwhile cannot be read to its end."""
        left = self._frames.pop()
        try:
            if self._frames and self._frames[-1].is_closed and not self._frames[-1].reopen(left.descriptor):
                self._is_complete = False
                while self._frames[-1].is_closed:
                    self._frames.pop()
        finally:
            left.close()

    def _count(self, found: os.stat_result) -> None:
        if found.st_nlink <= 1 or stat.S_ISDIR(found.st_mode):
            self._inodes += 1
            self._blocks += found.st_blocks
        elif found.st_ino in self._linked:
            return
        elif len(self._linked) < MOST_LINKED:
            self._linked.add(found.st_ino)
            self._inodes += 1
            self._blocks += found.st_blocks
        else:
            # Too many to remember: each name counts its share. Links do not leave a mount, so all names are here.
            self._inodes += 1 / found.st_nlink
            self._blocks += found.st_blocks // found.st_nlink


class _Frame:
    """A directory that is being read."""

    __slots__ = ("_entries", "_read", "_repeated", "descriptor", "inode")

    def __init__(self, descriptor: int, found: os.stat_result) -> None:
        self.descriptor = descriptor
        self.inode = found.st_ino
        self._entries: Iterator[os.DirEntry[str]] | None = None
        self._read = 0
        self._repeated = 0

    @property
    def is_closed(self) -> bool:
        return self.descriptor < 0

    def read(self) -> "os.DirEntry[str] | None":
        if self._entries is None:
            self._entries = os.scandir(self.descriptor)
        self._read += 1
        try:
            return next(self._entries, None)
        except OSError as error:
            if error.errno in _GONE:
                return None
            raise

    def repeats(self) -> bool:
        """Return whether the entry that was just read had been read before the directory was closed."""
        return self._read <= self._repeated

    def reopen(self, below: int) -> bool:
        """Open the directory again from one in it; False if that is in another one now."""
        try:
            opened = os.open("..", _STEP, dir_fd=below)
        except OSError as error:
            if error.errno in _GONE:
                return False
            raise
        if os.fstat(opened).st_ino != self.inode:
            os.close(opened)
            return False
        self.descriptor = opened
        self._read, self._repeated = 0, self._read
        return True

    def close(self) -> None:
        if self._entries is not None:
            # scandir has a descriptor of its own.
            self._entries.close()  # type: ignore[attr-defined]  # of the iterator that scandir returns
            self._entries = None
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_same_mount(name: str, directory: int) -> int | None:
    """Return a descriptor of a directory in another one; None if it is gone, a link, or where something is mounted."""
    how = _OpenHow(_STEP, 0, _RESOLVE_NO_XDEV | _RESOLVE_NO_SYMLINKS)
    opened = _libc().syscall(_OPENAT2, directory, os.fsencode(name), ctypes.byref(how), ctypes.sizeof(how))
    if opened >= 0:
        return int(opened)
    number = ctypes.get_errno()
    if number in {errno.ENOSYS, errno.EPERM}:  # a kernel before 5.6, or a filter of system calls
        return os.open(name, _STEP, dir_fd=directory)
    if number == errno.EXDEV or number in _GONE:
        return None
    raise OSError(number, os.strerror(number))


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)

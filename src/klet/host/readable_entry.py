"""A file or a directory below a root that others may write to, opened to be read on threads.

A caller that is cancelled does not wait for the thread that reads for it. So closing waits for the readers instead:
the descriptor goes with the last of them, and no thread ever uses the number of a descriptor that is another's by now.
"""

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import TypeVar

from klet.host.contained import open_readable
from klet.host.errors import FileError, FileMissing, file_error

T = TypeVar("T")


class ReadableEntry:
    """A regular file or a directory."""

    def __init__(self, *, descriptor: int, path: Path) -> None:
        self._descriptor = descriptor
        self._path = path
        self._lock = threading.Lock()
        self._readers = 0
        self._is_closed = False
        self._entries: Iterator[os.DirEntry[str]] | None = None
        self._listing = ExitStack()
        facts = os.fstat(descriptor)
        self.is_directory = stat.S_ISDIR(facts.st_mode)
        self.size = facts.st_size
        self.modified = int(facts.st_mtime)
        """Seconds since the epoch, as whoever may write the file has set them."""

    @classmethod
    def open(cls, root: Path, relative: str) -> "ReadableEntry":
        """Open what is at a path below the root. Raises FileError; blocks."""
        if "\0" in relative:
            raise FileMissing("cannot open a path with zero bytes", path=root, errno=errno.ENOENT)
        return cls(descriptor=open_readable(root, relative), path=root / relative.lstrip("/"))

    def read(self, size: int, at: int) -> bytes:
        """Read up to that many bytes; none at the end of the file. Raises FileError."""
        return self._use(lambda: os.pread(self._descriptor, size, at))

    def list_more(self, count: int) -> list[tuple[str, bool]]:
        """Return the next names of a directory, each with whether it is a directory itself. Raises FileError."""
        return self._use(lambda: self._list_more(count))

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._close_unused()

    def _list_more(self, count: int) -> list[tuple[str, bool]]:
        if self._entries is None:
            self._entries = self._listing.enter_context(os.scandir(self._descriptor))
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in islice(self._entries, count)]

    def _use(self, function: Callable[[], T]) -> T:
        with self._lock:
            if self._is_closed:
                raise FileError(f"cannot read {self._path}: it is closed", path=self._path, errno=errno.EBADF)
            self._readers += 1
        try:
            return function()
        except OSError as error:
            raise file_error("read", self._path, error) from error
        finally:
            with self._lock:
                self._readers -= 1
                self._close_unused()

    def _close_unused(self) -> None:
        if self._is_closed and self._readers == 0 and self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            self._listing.close()

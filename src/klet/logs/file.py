"""The log file as it lies on disk: where its last lines begin, the next bytes, and whether it was rotated or truncated.

Reads are of bounded size, so they are done on the loop; a reader of a whole file gives way between them. Others may
write to log directories, so nothing below the directory of all logs is reached through a link.
"""

import os
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct

from klet.host.beneath import open_directory, open_regular_in, split_end
from klet.host.errors import FileError, FileMissing
from klet.logs.line import LogError

CHUNK: Final = 64 * 1024
DEPTH: Final = 3
"""A log is `<pod>/<container>/<file>` below the directory of all logs."""


class LogFile:
    """One open log file, followed by its name: after a rotation it goes on with the file that took the name."""

    def __init__(self, *, path: Path, directory: int, descriptor: int) -> None:
        self._path = path
        self._directory = directory
        self._descriptor = descriptor
        self._position = 0
        self._is_replaced = False

    @classmethod
    def open(cls, path: Path) -> "LogFile":
        """Open a regular file. A link in the way is refused: it could lead to any file of the machine."""
        try:
            logs, (pod, container, name) = split_end(str(path), DEPTH)
            with open_directory(logs, pod, container) as found:
                descriptor = open_regular_in(found, name, path)
                try:
                    return cls(path=path, directory=os.dup(found), descriptor=descriptor)
                except OSError:
                    os.close(descriptor)
                    raise
        except (FileError, OSError) as error:
            raise LogError(f'failed to try resolving symlinks in path "{path}": {error}') from error

    @property
    def directory(self) -> Path:
        """A path of the very directory that was opened, whatever has its name by now."""
        return Path(f"/proc/self/fd/{self._directory}")

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def seek(self, position: int) -> None:
        self._position = position

    def read_at(self, position: int, size: int) -> bytes:
        try:
            return os.pread(self._descriptor, size, position)
        except OSError as error:
            raise LogError(f'failed to read log file "{self._path}": {error}') from error

    def read(self) -> bytes:
        """Return the next bytes; empty at the present end."""
        chunk = self.read_at(self._position, CHUNK)
        self._position += len(chunk)
        return chunk

    def check_rotation(self) -> "RotationCheck":
        """Check at the end of the file whether another one has taken its name.

        The runtime opens the new file first and may still write to the old one until it has written to the new one.
        So the old file is left only once the new one has content, and only after reading the old one again.
        """
        if self._is_replaced:
            return self._open_successor()
        try:
            current = os.stat(self._path.name, dir_fd=self._directory, follow_symlinks=False)
        except FileNotFoundError:
            return RotationCheck()
        except OSError as error:
            raise LogError(f'failed to open log file "{self._path}": {error}') from error
        if os.path.samestat(current, os.fstat(self._descriptor)):
            if current.st_size >= self._position:
                return RotationCheck()
            self._position = 0
            return RotationCheck(read_again=True, is_new=True)
        self._is_replaced = current.st_size > 0
        return RotationCheck(read_again=self._is_replaced)

    def close(self) -> None:
        os.close(self._descriptor)
        os.close(self._directory)

    def _open_successor(self) -> "RotationCheck":
        self._is_replaced = False
        try:
            successor = open_regular_in(self._directory, self._path.name, self._path)
        except FileMissing:
            return RotationCheck()
        except FileError as error:
            raise LogError(f'failed to open log file "{self._path}": {error}') from error
        os.close(self._descriptor)
        self._descriptor = successor
        self._position = 0
        return RotationCheck(read_again=True, is_new=True)


class RotationCheck(Struct, frozen=True, kw_only=True):
    """What a look at the file's name showed."""

    read_again: bool = False
    is_new: bool = False
    """What is read next does not continue what was read before."""


class Blocks(Protocol):
    """Random access to a file."""

    def size(self) -> int: ...
    def read_at(self, position: int, size: int) -> bytes: ...


class TailSearch:
    """Finds where the last lines of a file begin, one block per step, from the end backwards.

    Only newlines count, so an unterminated last line comes on top of the lines asked for. With `farthest`, no more
    than so many bytes are looked at: then it finds the lines that begin there, however few.
    """

    def __init__(self, *, blocks: Blocks, lines: int, block_size: int = CHUNK, farthest: int | None = None) -> None:
        self._blocks = blocks
        self._block_size = block_size
        self._right = self._first = blocks.size()
        self._floor = 0 if farthest is None else max(0, self._right - farthest)
        # The last of the wanted lines begins after the newline before it.
        self._missing = lines + 1

    def step(self) -> int | None:
        """Look at one more block; the position once it is found."""
        if self._right == 0:
            return 0
        if self._right == self._floor:
            return self._first
        left = max(self._floor, self._right - self._block_size)
        block = self._blocks.read_at(left, self._right - left)
        found = block.count(b"\n")
        if found < self._missing:
            self._missing -= found
            if found:
                self._first = left + block.index(b"\n") + 1
            self._right = left
            return None
        end = len(block)
        for _ in range(self._missing):
            end = block.rfind(b"\n", 0, end)
        return left + end + 1

"""The log file as it lies on disk: where its last lines begin, the next bytes, and whether it was rotated or truncated.

Reads are of bounded size, so they are done on the loop; a reader of a whole file gives way between them. Others may
write to log directories, so nothing below the directory of all logs is reached through a link.
"""

import os
import zlib
from enum import Enum
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct

from klet.host.beneath import open_directory, open_regular_in, split_end
from klet.host.errors import FileError, FileMissing
from klet.logs.line import LogError
from klet.logs.rotation_plan import COMPRESSED
from klet.logs.successors import Unpacker, find_next_name, find_own_name, is_open_for_writing

CHUNK: Final = 64 * 1024
_READS_PER_LOOK: Final = 16
"""How often the name of the log is looked at while there is more to read."""
_PATIENCE: Final = 10
"""How often a follower comes back to a rotated file that nothing is written to, but that somebody has open."""
DEPTH: Final = 3
"""A log is `<pod>/<container>/<file>` below the directory of all logs."""


class _Stage(Enum):
    """What is known of an open file."""

    CURRENT = 0
    REPLACED = 1
    """Another file has its name."""
    CLOSED = 2
    """Nobody can write to it any more."""


class LogFile:
    """One open log file, followed by its name: after a rotation it goes on with the file that took the name."""

    def __init__(self, *, path: Path, directory: int, descriptor: int) -> None:
        self._path = path
        self._directory = directory
        self._descriptor = descriptor
        self._unpacker: Unpacker | None = None
        self._position = 0
        self._reads = 0
        self._rotated: str | None = None
        """The name that the open file has by now, once it was rotated."""
        self._stage = _Stage.CURRENT
        self._patience = 0

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
        if self._unpacker is not None:
            return self._read_packed(self._unpacker)
        self._reads += 1
        if self._reads % _READS_PER_LOOK == 0 and self._stage is _Stage.CURRENT:
            # Later its name may be another once more: a file is compressed when the one after it is rotated.
            self._note_rotation()
        chunk = self.read_at(self._position, CHUNK)
        self._position += len(chunk)
        if chunk:
            self._patience = _PATIENCE
        return chunk

    def check_rotation(self) -> "RotationCheck":
        """Check at the end of the file whether another one continues it.

        The runtime opens the new file first, and may still write to the old one after it has written to the new one.
        So the old file is left only once nobody can write to it, and after it was read again.
        """
        match self._stage:
            case _Stage.CURRENT:
                return self._check_current()
            case _Stage.REPLACED:
                return self._check_replaced()
            case _Stage.CLOSED:
                return self._open_successor()

    def _check_current(self) -> "RotationCheck":
        current = self._note_rotation()
        if current is None:
            return RotationCheck()
        if self._stage is _Stage.REPLACED:
            return self._check_replaced()
        if os.path.samestat(current, os.fstat(self._descriptor)) and current.st_size < self._position:
            self._position = 0
            return RotationCheck(read_again=True, is_new=True)
        return RotationCheck()

    def _check_replaced(self) -> "RotationCheck":
        if self._unpacker is None and self._patience > 0 and is_open_for_writing(self._descriptor):
            self._patience -= 1
            return RotationCheck()
        self._stage = _Stage.CLOSED
        return RotationCheck(read_again=True)

    def _note_rotation(self) -> os.stat_result | None:
        """Look who has the name of the log; None if nobody has it at the moment."""
        try:
            current = os.stat(self._path.name, dir_fd=self._directory, follow_symlinks=False)
            if not os.path.samestat(current, os.fstat(self._descriptor)):
                self._rotated = self._rotated or find_own_name(self._directory, self._path.name, self._descriptor)
                # Nothing in the new one: the runtime may not have changed over yet.
                if current.st_size > 0:
                    self._stage, self._patience = _Stage.REPLACED, _PATIENCE
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LogError(f'failed to open log file "{self._path}": {error}') from error
        return current

    def close(self) -> None:
        os.close(self._descriptor)
        os.close(self._directory)

    def _open_successor(self) -> "RotationCheck":
        name = self._path.name
        try:
            if self._rotated is not None:
                name = find_next_name(self._directory, name, self._rotated)
            successor = open_regular_in(self._directory, name, self._path.with_name(name))
        except FileMissing:
            # It was compressed or rotated at this moment: look again.
            return RotationCheck()
        except (FileError, OSError) as error:
            raise LogError(f'failed to open log file "{self._path}": {error}') from error
        os.close(self._descriptor)
        self._descriptor = successor
        self._position = 0
        self._unpacker = Unpacker(successor) if name.endswith(COMPRESSED) else None
        is_current = name == self._path.name
        self._stage = _Stage.CURRENT if is_current else _Stage.REPLACED
        self._rotated = None if is_current else name
        self._patience = _PATIENCE
        return RotationCheck(read_again=True, is_new=True)

    def _read_packed(self, unpacker: Unpacker) -> bytes:
        try:
            return unpacker.read(CHUNK)
        except (OSError, zlib.error) as error:
            raise LogError(f'failed to read log file "{self._path}": {error}') from error


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

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
from klet.logs.successors import Unpacker, find_name_after, find_newest_name, find_own_name, is_open_for_writing

CHUNK: Final = 64 * 1024
_READS_PER_LOOK: Final = 16
"""How often the name of the log is looked at while there is more to read."""
PATIENCE: Final = 10.0
"""Seconds that a follower gives those who have a rotated file open, but write nothing to it."""
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
        self._older = ""
        """The newest rotated file while this one was the log: what is rotated after it is this one."""
        self._rotated: str | None = None
        """The name that the open file got when it was rotated."""
        self._stage = _Stage.CURRENT
        self._patient_until: float | None = None

    @classmethod
    def open(cls, path: Path) -> "LogFile":
        """Open a regular file. A link in the way is refused: it could lead to any file of the machine."""
        try:
            logs, (pod, container, name) = split_end(str(path), DEPTH)
            with open_directory(logs, pod, container) as found:
                descriptor = open_regular_in(found, name, path)
                try:
                    file = cls(path=path, directory=os.dup(found), descriptor=descriptor)
                except OSError:
                    os.close(descriptor)
                    raise
        except (FileError, OSError) as error:
            raise LogError(f'failed to try resolving symlinks in path "{path}": {error}') from error
        try:
            file._look_around()
        except LogError:
            file.close()
            raise
        return file

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
            self._patient_until = None
        return chunk

    def check_rotation(self, now: float) -> "RotationCheck":
        """Check at the end of the file, at this monotonic time, whether another one continues it.

        The runtime opens the new file first, and may still write to the old one after it has written to the new one.
        So the old file is left only once nobody can write to it, and after it was read again.
        """
        match self._stage:
            case _Stage.CURRENT:
                return self._check_current(now)
            case _Stage.REPLACED:
                return self._check_replaced(now)
            case _Stage.CLOSED:
                return self._open_successor()

    def close(self) -> None:
        os.close(self._descriptor)
        os.close(self._directory)

    def _check_current(self, now: float) -> "RotationCheck":
        current = self._note_rotation()
        if self._stage is _Stage.REPLACED:
            return self._check_replaced(now)
        if current is not None and self._is_open(current) and current.st_size < self._position:
            self._position = 0
            return RotationCheck(read_again=True, is_new=True)
        return RotationCheck()

    def _check_replaced(self, now: float) -> "RotationCheck":
        if self._unpacker is None and is_open_for_writing(self._descriptor):
            if self._patient_until is None:
                self._patient_until = now + PATIENCE
            if now < self._patient_until:
                return RotationCheck(is_held=True)
        self._stage = _Stage.CLOSED
        return RotationCheck(read_again=True)

    def _look_around(self) -> None:
        """Note which rotated files are older than the one that was just opened as the log."""
        try:
            self._older = find_newest_name(self._directory, self._path.name)
        except OSError as error:
            raise self._failure(error) from error
        self._note_rotation()

    def _note_rotation(self) -> os.stat_result | None:
        """Look who has the name of the log; None if nobody has it at the moment."""
        try:
            current = self._find_current()
            if current is not None and self._is_open(current):
                self._rotated = None  # also after a rename that was undone
            else:
                self._rotated = self._rotated or self._find_own_name()
                # Nothing in the new one: the runtime may not have changed over yet. If more were rotated since, it has.
                if (current is not None and current.st_size > 0) or self._find_successor() != self._path.name:
                    self._stage, self._patient_until = _Stage.REPLACED, None
        except OSError as error:
            raise self._failure(error) from error
        return current

    def _find_current(self) -> os.stat_result | None:
        try:
            return os.stat(self._path.name, dir_fd=self._directory, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def _find_own_name(self) -> str | None:
        """Return the name that the open file got. Once it is compressed, only the order of names shows it."""
        own = find_own_name(self._directory, self._path.name, self._descriptor)
        if own is None:
            own = find_name_after(self._directory, self._path.name, self._older)
        return None if own == self._path.name else own

    def _find_successor(self) -> str:
        if self._rotated is None:
            return self._path.name
        return find_name_after(self._directory, self._path.name, self._rotated)

    def _open_successor(self) -> "RotationCheck":
        name = self._path.name
        try:
            name = self._find_successor()
            successor = open_regular_in(self._directory, name, self._path.with_name(name))
        except FileMissing:
            # It was rotated or compressed at this moment. Of the log itself, the runtime opens a new one some time.
            return RotationCheck(is_held=name != self._path.name)
        except (FileError, OSError) as error:
            raise self._failure(error) from error
        os.close(self._descriptor)
        self._descriptor = successor
        self._position = 0
        self._unpacker = Unpacker(successor) if name.endswith(COMPRESSED) else None
        self._patient_until = None
        if name == self._path.name:
            self._stage, self._rotated = _Stage.CURRENT, None
            self._look_around()
        else:
            self._stage, self._rotated = _Stage.REPLACED, name
        return RotationCheck(read_again=True, is_new=True)

    def _is_open(self, found: os.stat_result) -> bool:
        return os.path.samestat(found, os.fstat(self._descriptor))

    def _failure(self, error: Exception) -> LogError:
        return LogError(f'failed to open log file "{self._path}": {error}')

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
    is_held: bool = False
    """Another file continues this one, but not yet: look again soon."""


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

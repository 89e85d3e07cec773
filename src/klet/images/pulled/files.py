"""The two directories with the files of pulled images: bounded reads, atomic writes that survive a loss of power."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Final, Protocol

from klet.aio.threads import Threads
from klet.host.beneath import open_directory, open_regular_in
from klet.host.errors import FileError, FileMissing, file_error
from klet.host.files import is_unfinished, make_directories, remove_file, write_atomic
from klet.images.pulled.format import SIZE_LIMIT, is_file_name

DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600
MOST_NAMES: Final = 100_000
"""Names that are read of a directory: more of them slow nothing down."""


class PullDirectory(StrEnum):
    """Upstream's directories below `image_manager`."""

    PULLING = "pulling"
    PULLED = "pulled"


class PullFiles(Protocol):
    """Keeps small files by name. What was written or removed last counts, even if its caller was cancelled."""

    async def names(self, directory: PullDirectory) -> frozenset[str] | None:
        """Return the names of all files; None if there are too many. Raises FileError."""
        ...

    async def read(self, directory: PullDirectory, name: str) -> bytes | None:
        """Return the content; None if there is no such file. Raises FileError."""
        ...

    async def write(self, directory: PullDirectory, name: str, data: bytes) -> None: ...

    async def remove(self, directory: PullDirectory, name: str) -> None: ...


class PullFileDirectories:
    """Real files. The threads must be a single one: it keeps the order of writes and removals."""

    def __init__(self, *, root: Path, threads: Threads, most_names: int = MOST_NAMES) -> None:
        self._root = root
        self._threads = threads
        self._most_names = most_names

    async def names(self, directory: PullDirectory) -> frozenset[str] | None:
        return await self._threads.run(_list, self._root / directory, self._most_names)

    async def read(self, directory: PullDirectory, name: str) -> bytes | None:
        return await self._threads.run(_read, self._root, directory, name)

    async def write(self, directory: PullDirectory, name: str, data: bytes) -> None:
        await self._threads.run(_write, self._root / directory / name, data)

    async def remove(self, directory: PullDirectory, name: str) -> None:
        await self._threads.run(remove_file, self._root / directory / name)


def _list(directory: Path, most: int) -> frozenset[str] | None:
    """Return the names; what a killed writer left unfinished is removed."""
    found = set()
    try:
        with os.scandir(directory) as entries:
            for entry in islice(entries, most + 1):
                if is_file_name(entry.name):
                    found.add(entry.name)
                elif is_unfinished(entry.name) and is_file_name(entry.name[1:]):
                    remove_file(Path(entry.path))
    except FileNotFoundError:
        return frozenset()
    except OSError as error:
        raise file_error("list", directory, error) from error
    return frozenset(found) if len(found) <= most else None


def _read(root: Path, directory: str, name: str) -> bytes | None:
    shown = root / directory / name
    try:
        with open_directory(root, directory, action="read") as opened:
            data = _read_regular(opened, name, shown)
    except FileMissing:
        return None
    if len(data) > SIZE_LIMIT:
        raise FileError(f"cannot read {shown}: it is longer than {SIZE_LIMIT} bytes", path=shown)
    return data


def _read_regular(directory: int, name: str, shown: Path) -> bytes:
    """Read one byte more than is allowed. A link, a pipe or a device in the place of the file is refused."""
    with _closing(open_regular_in(directory, name, shown)) as found:
        try:
            return os.pread(found, SIZE_LIMIT + 1, 0)
        except OSError as error:
            raise file_error("read", shown, error) from error


@contextmanager
def _closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _write(path: Path, data: bytes) -> None:
    try:
        for directory in (path.parent.parent, path.parent):
            make_directories(directory, mode=DIRECTORY_MODE)
    except OSError as error:
        raise file_error("make", path.parent, error) from error
    write_atomic(path, data, mode=FILE_MODE)

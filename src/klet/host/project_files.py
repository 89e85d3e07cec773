"""The files that name the projects of a machine: `/etc/projects` (which directory) and `/etc/projid` (which name).

xfs_quota(8), repquota(8) and upstream's kubelet (fsquota) use them, too. So they are locked while they are changed,
what is not klet's stays as it is, byte by byte, and nothing in them is taken for granted.
"""

import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from klet.host.beneath import open_directory, open_regular_in
from klet.host.errors import FileError, FileMissing, file_error
from klet.host.files import write_atomic

FIRST_PROJECT: Final = 1_048_577
"""The first number that klet gives, as upstream."""
LAST_PROJECT: Final = 2**32 - 1
LIMIT: Final = 1 << 20
"""Bytes of one file, which are some thousand volumes."""
_MODE: Final = 0o644
# No number of the kernel has more than ten digits, and longer ones would take long to read.
_PROJECT: Final = re.compile(rb"([0-9]{1,10}):(.+)")
_NAME: Final = re.compile(rb"([^#:][^:]*):([0-9]{1,10})")


class ProjectFilePaths(Struct, frozen=True):
    """Where the two files are."""

    projects: Path = Path("/etc/projects")
    names: Path = Path("/etc/projid")


class ProjectFilesBusy(FileError):
    """Another process has the files."""


class ProjectLine(Struct, frozen=True):
    """One line of either file."""

    raw: bytes
    project: int | None = None
    """None if it is a comment, or nothing that is understood."""
    word: bytes = b""
    """The directory, or the name."""


class ProjectTable(Struct, frozen=True, kw_only=True):
    """What both files say."""

    directories: tuple[ProjectLine, ...] = ()
    names: tuple[ProjectLine, ...] = ()

    @property
    def taken(self) -> frozenset[int]:
        lines = (*self.directories, *self.names)
        return frozenset(line.project for line in lines if line.project is not None)

    def project_of(self, path: Path) -> int | None:
        """Return the project of a directory; the first one counts."""
        wanted = os.fsencode(path)
        return next((line.project for line in self.directories if line.word == wanted), None)


def parse_table(directories: bytes, names: bytes) -> ProjectTable:
    return ProjectTable(
        directories=tuple(_parse_directory(line) for line in _lines(directories)),
        names=tuple(_parse_name(line) for line in _lines(names)),
    )


def format_lines(lines: tuple[ProjectLine, ...]) -> bytes:
    return b"".join(line.raw + b"\n" for line in lines)


def add_directory(table: ProjectTable, path: Path, project: int) -> ProjectTable:
    """Add a directory, and the name of its project if it has none."""
    written = os.fsencode(path)
    if b"\n" in written:
        raise FileError(f"cannot list {str(path)!r}: its name has more than one line", path=path)
    line = ProjectLine(b"%d:%s" % (project, written), project, written)
    table = replace(table, directories=(*table.directories, line))
    if any(name.project == project for name in table.names):
        return table
    name = _name_of(project)
    return replace(table, names=(*table.names, ProjectLine(b"%s:%d" % (name, project), project, name)))


def drop_directory(table: ProjectTable, path: Path) -> ProjectTable:
    """Remove a directory, and the names that were given to its projects, unless others belong to these."""
    written = os.fsencode(path)
    dropped = {line.project for line in table.directories if line.word == written}
    kept = tuple(line for line in table.directories if line.project is None or line.word != written)
    unused = dropped - {line.project for line in kept}
    return ProjectTable(
        directories=kept,
        names=tuple(line for line in table.names if line.project not in unused or not _is_given(line)),
    )


class OpenProjectFiles:
    """Both files, locked."""

    def __init__(self, *, table: ProjectTable, paths: ProjectFilePaths, modes: Mapping[Path, int]) -> None:
        self.table = table
        self._paths = paths
        self._modes = modes

    def write(self, table: ProjectTable) -> None:
        """Replace what has changed. The names go first: a directory never has a project that looks free."""
        if table.names != self.table.names:
            self._replace(self._paths.names, table.names)
        if table.directories != self.table.directories:
            self._replace(self._paths.projects, table.directories)
        self.table = table

    def _replace(self, path: Path, lines: tuple[ProjectLine, ...]) -> None:
        data = format_lines(lines)
        if len(data) > LIMIT:
            raise FileError(f"cannot write {path}: it would be longer than {LIMIT} bytes", path=path)
        write_atomic(path, data, mode=self._modes[path])


@contextmanager
def open_project_files(paths: ProjectFilePaths) -> Iterator[OpenProjectFiles]:
    """Lock and read both files, made if need be; raises ProjectFilesBusy instead of waiting for another process.

    Everybody may read the files, and so lock them: who waited could wait without end.
    """
    with ExitStack() as opened:
        # In this order, as upstream does.
        found = {path: _open_locked(opened, path) for path in (paths.projects, paths.names)}
        yield OpenProjectFiles(
            table=parse_table(*(_read(descriptor, path) for path, descriptor in found.items())),
            paths=paths,
            modes={path: _mode_of(descriptor) for path, descriptor in found.items()},
        )


def read_project_files(paths: ProjectFilePaths) -> ProjectTable:
    """Read both files as they are, without a lock; a missing one is empty."""
    found: list[bytes] = []
    for path in (paths.projects, paths.names):
        try:
            with open_directory(path.parent, action="read") as directory:
                descriptor = open_regular_in(directory, path.name, path)
        except FileMissing:
            found.append(b"")
            continue
        try:
            found.append(_read(descriptor, path))
        finally:
            os.close(descriptor)
    return parse_table(*found)


def _open_locked(opened: ExitStack, path: Path) -> int:
    with open_directory(path.parent, action="open") as directory:
        descriptor = open_regular_in(directory, path.name, path, flags=os.O_RDWR | os.O_CREAT)
        opened.callback(os.close, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            there = os.stat(path.name, dir_fd=directory, follow_symlinks=False)
        except BlockingIOError as error:
            raise _busy(path, "another process has locked it") from error
        except FileNotFoundError as error:
            raise _busy(path, "it was removed meanwhile") from error
        except OSError as error:
            raise file_error("lock", path, error) from error
    if not os.path.samestat(there, os.fstat(descriptor)):
        raise _busy(path, "it was replaced meanwhile")
    return descriptor


def _busy(path: Path, why: str) -> ProjectFilesBusy:
    return ProjectFilesBusy(f"cannot change {path}: {why}", path=path, errno=errno.EAGAIN)


def _read(descriptor: int, path: Path) -> bytes:
    data = bytearray()
    try:
        while len(data) <= LIMIT and (piece := os.pread(descriptor, LIMIT + 1 - len(data), len(data))):
            data += piece
    except OSError as error:
        raise file_error("read", path, error) from error
    if len(data) > LIMIT:
        raise FileError(f"cannot read {path}: it is longer than {LIMIT} bytes", path=path)
    return bytes(data)


def _mode_of(descriptor: int) -> int:
    found = os.fstat(descriptor)
    # An empty file may have been made right now, for the owner alone; commands of all users read it.
    return stat.S_IMODE(found.st_mode) & 0o777 if found.st_size else _MODE


def _is_given(line: ProjectLine) -> bool:
    return line.project is not None and line.word == _name_of(line.project)


def _name_of(project: int) -> bytes:
    return b"volume%d" % project


def _lines(data: bytes) -> list[bytes]:
    # Not splitlines(): other bytes that end lines somewhere are part of them here.
    return data.removesuffix(b"\n").split(b"\n") if data else []


def _parse_directory(line: bytes) -> ProjectLine:
    found = _PROJECT.fullmatch(line)
    return ProjectLine(line) if found is None else _line(line, found[1], found[2])


def _parse_name(line: bytes) -> ProjectLine:
    found = _NAME.fullmatch(line)
    return ProjectLine(line) if found is None else _line(line, found[2], found[1])


def _line(line: bytes, number: bytes, word: bytes) -> ProjectLine:
    project = int(number)
    return ProjectLine(line, project, word) if project <= LAST_PROJECT else ProjectLine(line)

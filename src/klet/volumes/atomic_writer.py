"""Puts a set of files into a directory so that readers see all of the old or all of the new (AtomicWriter). It blocks.

    T/..2030_01_01_00_00_00.1234/{a,d/b}    the files
    T/..data -> ..2030_01_01_00_00_00.1234  swung over in one step
    T/a -> ..data/a    T/d -> ..data/d      what users see

The state before stays for GRACE: who has just resolved `..data` still finds its files (docs/decisions/old-states.md).
Nothing that lies in the directory is trusted: a `..data` that points anywhere but to a directory of ours is replaced,
and only directories of ours are removed. Every step is taken by descriptor, without following links: somebody may swap
names in the directory at any moment.
"""

import os
import posixpath
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct

from klet.host.beneath import LONGEST_PATH
from klet.host.contained import read_contained
from klet.host.errors import FileError
from klet.host.files import LONGEST_NAME, remove_entry
from klet.volumes.errors import BadPath, doing
from klet.volumes.places import open_volume

GRACE: Final = timedelta(seconds=10)
"""How long the files that were replaced stay; they are gone with the first write after that."""
DATA: Final = "..data"
_NEW_DATA: Final = "..data_tmp"
_STAMP: Final = "..%Y_%m_%d_%H_%M_%S."
_STAMPED: Final = re.compile(r"\.\.(\d{4})_(\d\d)_(\d\d)_(\d\d)_(\d\d)_(\d\d)\.\d+", re.ASCII)
_ACTION: Final = "write files to"
_LOW_BITS: Final = 0o777
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class FileProjection:
    """One file."""

    data: bytes = field(repr=False)
    mode: int
    uid: int | None = None


Payload: TypeAlias = Mapping[str, FileProjection]
"""By path, relative to the directory."""


class Written(NamedTuple):
    """What came of a write."""

    is_new: bool
    """False if the content was that already."""
    clear_at: datetime | None = None
    """When to write again so that the state before goes; None if there is none."""


def write_payload(target: Path, payload: Payload, *, now: datetime, own: Callable[[], None]) -> Written:
    """Make the directory hold exactly the payload.

    `own` is called between the writing of the files and their appearance, to give everything its owner.
    """
    files = clean_payload(payload)
    with doing(_ACTION, target), open_volume(target, action=_ACTION) as directory:
        volume = _Volume(target, directory)
        is_new = not volume.holds(files)
        before = volume.current()
        if is_new:
            volume.write(files, now, own)
        volume.link(files)
        return Written(is_new, volume.clear(now, replaced=before if is_new else None))


def grace_ends(current: str, now: datetime) -> datetime | None:
    """When the files go that the current directory replaced; None if their time is over.

    Its name says since when it is shown. One that no agent or another clock has given keeps nothing.
    """
    stamp = _STAMPED.fullmatch(current)
    if stamp is None:
        return None
    year, month, day, hour, minute, second = map(int, stamp.groups())
    try:
        shown_since = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    return shown_since + GRACE if shown_since <= now < shown_since + GRACE else None


def clean_payload(payload: Payload) -> dict[str, FileProjection]:
    """The payload under clean paths; a path that could leave the directory, or pass for one of ours, is refused."""
    for path in payload:
        _check_path(path)
    return {posixpath.normpath(path): file for path, file in payload.items()}


def with_parents(files: Iterable[str]) -> set[str]:
    """The paths of a payload and of the directories on the way to them: whatever else is there is to be removed."""
    wanted: set[str] = set()
    for path in files:
        while path and path not in wanted:
            wanted.add(path)
            path = posixpath.dirname(path)
    return wanted


def _check_path(path: str) -> None:
    if not path:
        raise BadPath('must not be empty: ""')
    if path.startswith("/"):
        raise BadPath(f"must be relative path: {path}")
    if len(os.fsencode(path)) > LONGEST_PATH:
        raise BadPath(f"must be less than or equal to {LONGEST_PATH} characters")
    names = path.split("/")
    if ".." in names:
        raise BadPath(f"must not contain '..': {path}")
    if any(len(os.fsencode(name)) > LONGEST_NAME for name in names):
        raise BadPath(f"filenames must be less than or equal to {LONGEST_NAME} characters")
    if names[0].startswith(".."):
        raise BadPath(f"must not start with '..': {path}")
    if "\0" in path or posixpath.normpath(path) == ".":
        raise BadPath(f"must name a file: {path!r}")


class _Volume(Struct, frozen=True):
    """The directory, open: swapped names in it lead us nowhere else."""

    target: Path
    directory: int

    def holds(self, files: Mapping[str, FileProjection]) -> bool:
        """Whether the content that is shown now is the same; modes are not compared."""
        if (current := self.current()) is None:
            return False
        with _opened(current, self.directory) as shown:
            return _is_same(shown, files)

    def write(self, files: Mapping[str, FileProjection], now: datetime, own: Callable[[], None]) -> None:
        name = f"{now.astimezone(UTC).strftime(_STAMP)}{secrets.randbelow(1 << 32)}"
        os.mkdir(name, dir_fd=self.directory)
        try:
            with _opened(name, self.directory) as made:
                os.fchmod(made, 0o755)
                for path, file in files.items():
                    _write_file(made, path, file)
            own()
            self._unlink(_NEW_DATA)  # a crash may have left one
            os.symlink(name, _NEW_DATA, dir_fd=self.directory)
            os.rename(_NEW_DATA, DATA, src_dir_fd=self.directory, dst_dir_fd=self.directory)
        except BaseException:
            remove_entry(self.directory, name, self.target / name)
            raise

    def link(self, files: Mapping[str, FileProjection]) -> None:
        """Make the links that users see, and remove those of what is gone. What others put there stays."""
        wanted = {path.partition("/")[0] for path in files}
        present = set(_names(self.directory))
        for name in sorted(wanted - present):
            os.symlink(f"{DATA}/{name}", name, dir_fd=self.directory)
        for name in sorted(present - wanted):
            if self._link_at(name) == f"{DATA}/{name}":
                self._unlink(name)

    def clear(self, now: datetime, *, replaced: str | None) -> datetime | None:
        """Remove what is not shown any more, but not yet what was replaced; returns when its time is over.

        Of what a crash or a failure has left nothing stays longer.
        """
        current = self.current()
        old = {name for name in _names(self.directory) if name != current and self._is_ours(name)}
        until = None if current is None else grace_ends(current, now)
        kept = set() if until is None else old if replaced is None else old & {replaced}
        for name in sorted(old - kept):
            remove_entry(self.directory, name, self.target / name)
        return until if kept else None

    def current(self) -> str | None:
        """The directory that is shown now, if it is one of ours."""
        name = self._link_at(DATA)  # of what else is in the way the swing gives notice
        return name if name is not None and self._is_ours(name) else None

    def _is_ours(self, name: str) -> bool:
        if not _STAMPED.fullmatch(name):
            return False
        try:
            return stat.S_ISDIR(os.lstat(name, dir_fd=self.directory).st_mode)
        except FileNotFoundError:
            return False

    def _link_at(self, name: str) -> str | None:
        try:
            return os.readlink(name, dir_fd=self.directory)
        except OSError:
            return None  # missing, or not a link

    def _unlink(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.directory)


@contextmanager
def _opened(name: str, directory: int) -> Iterator[int]:
    found = os.open(name, _DIRECTORY, dir_fd=directory)
    try:
        yield found
    finally:
        os.close(found)


def _names(directory: int) -> list[str]:
    return os.listdir(directory)


def _is_same(shown: int, files: Mapping[str, FileProjection]) -> bool:
    return _holds_only(shown, with_parents(files)) and all(_has(shown, path, file.data) for path, file in files.items())


def _holds_only(shown: int, wanted: AbstractSet[str]) -> bool:
    """Whether nothing else is there. Without recursion: the author of a pod says how deep its paths are."""
    frames = [_Frame(os.dup(shown), "", _names(shown))]
    try:
        while frames:
            frame = frames[-1]
            if not frame.names:
                os.close(frames.pop().directory)
                continue
            name = frame.names.pop()
            if frame.base + name not in wanted:
                return False
            if stat.S_ISDIR(os.lstat(name, dir_fd=frame.directory).st_mode):
                below = _Frame(os.open(name, _DIRECTORY, dir_fd=frame.directory), f"{frame.base}{name}/", [])
                frames.append(below)
                below.names.extend(_names(below.directory))
    except (FileNotFoundError, NotADirectoryError):
        return False  # it was changed meanwhile
    finally:
        for frame in frames:
            os.close(frame.directory)
    return True


class _Frame(NamedTuple):
    """A directory on the way down: what has not been looked at yet, and what paths in it begin with."""

    directory: int
    base: str
    names: list[str]


def _has(shown: int, path: str, data: bytes) -> bool:
    try:
        return read_contained(Path(f"/proc/self/fd/{shown}"), path, limit=len(data)) == data
    except FileError:
        return False


def _write_file(made: int, path: str, file: FileProjection) -> None:
    *parents, name = path.split("/")
    with ExitStack() as opened:
        here = made
        for parent in parents:
            with suppress(FileExistsError):
                os.mkdir(parent, dir_fd=here)
            here = opened.enter_context(_opened(parent, here))
        # Nobody can open it before it has its owner and mode.
        descriptor = os.open(name, _NEW_FILE, 0o600, dir_fd=here)
    with open(descriptor, "wb") as opened_file:
        opened_file.write(file.data)
        if file.uid is not None:
            os.fchown(descriptor, file.uid, -1)
        os.fchmod(descriptor, file.mode & _LOW_BITS)

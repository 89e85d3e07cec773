"""Puts a set of files into a directory so that readers see all of the old or all of the new (AtomicWriter). It blocks.

    T/..2030_01_01_00_00_00.1234/{a,d/b}    the files
    T/..data -> ..2030_01_01_00_00_00.1234  replaced in one step
    T/a -> ..data/a    T/d -> ..data/d      what users see

The previous files stay for GRACE: a reader that has just resolved `..data` still finds them
(docs/decisions/old-states.md).
Nothing that lies in the directory is trusted: a `..data` that points anywhere but to a directory of ours is replaced,
and only directories of ours are removed. Every step uses a descriptor and follows no link: a container may swap names
in the directory at any moment.
"""

import os
import posixpath
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct

from klet.host.beneath import LONGEST_PATH
from klet.host.contained import read_contained
from klet.host.errors import FileError
from klet.host.files import LONGEST_NAME, remove_entry
from klet.model.hidden_fields import HidesFields
from klet.volumes.errors import BadPath, doing
from klet.volumes.volume_directories import open_volume

GRACE: Final = timedelta(seconds=10)
"""How long replaced files stay; the first write after that removes them."""
DATA: Final = "..data"
_NEW_DATA: Final = "..data_tmp"
_STAMP: Final = "..%Y_%m_%d_%H_%M_%S."
_STAMPED: Final = re.compile(r"\.\.(\d{4})_(\d\d)_(\d\d)_(\d\d)_(\d\d)_(\d\d)\.\d+", re.ASCII)
_ACTION: Final = "write files to"
_LOW_BITS: Final = 0o777
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class FileProjection(HidesFields, frozen=True):
    """One file."""

    HIDDEN = frozenset({"data"})

    data: bytes
    mode: int
    uid: int | None = None


Payload: TypeAlias = Mapping[str, FileProjection]
"""By path, relative to the directory."""


class Written(NamedTuple):
    """The result of a write."""

    is_new: bool
    """False if the content was the same already."""
    clear_at: datetime | None = None
    """When to write again to remove the previous files; None if there are none."""


def write_payload(
    target: Path, payload: Payload, *, now: datetime, own: Callable[[], None], one_mount: bool = False
) -> Written:
    """Make the directory hold exactly the payload. With `one_mount` nothing may be mounted at it: MountInTree.

    `own` is called after the files are written and before they can be seen, to give them their owner.
    """
    files = clean_payload(payload)
    with doing(_ACTION, target), open_volume(target, action=_ACTION, one_mount=one_mount) as directory:
        volume = _Volume(target, directory)
        is_new = not volume.holds(files)
        before = volume.current()  # read before the write, which replaces it
        if is_new:
            volume.write(files, now, own)
        # After the write: a new link must find its file. Repeated without a write, to finish what a crash left undone.
        volume.link(files)
        return Written(is_new, volume.clear(now, replaced=before if is_new else None))


def grace_ends(current: str, now: datetime) -> datetime | None:
    """Return when the files go that the current directory replaced; None if their time is over.

    The directory's name holds the time of the write. A name with no such time, or one in the future, keeps nothing.
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
    """Return the payload under clean paths; refuse a path that could leave the directory or looks like one of ours."""
    for path in payload:
        _check_path(path)
    return {posixpath.normpath(path): file for path, file in payload.items()}


def with_parents(files: Iterable[str]) -> set[str]:
    """Return the paths of a payload and of their parent directories. Anything else there means a change."""
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
    """The open directory of a volume: swapping names in it cannot lead outside."""

    target: Path
    directory: int

    def holds(self, files: Mapping[str, FileProjection]) -> bool:
        """Return whether the current content is the same; modes are not compared."""
        if (current := self.current()) is None:
            return False
        with _opened(current, self.directory) as shown:
            return _is_same(shown, files)

    def write(self, files: Mapping[str, FileProjection], now: datetime, own: Callable[[], None]) -> None:
        name = f"{now.astimezone(UTC).strftime(_STAMP)}{secrets.randbelow(1 << 32)}"
        # The random number keeps two writes within one second apart.
        os.mkdir(name, dir_fd=self.directory)
        try:
            with _opened(name, self.directory) as made:
                os.fchmod(made, 0o755)
                for path, file in files.items():
                    _write_file(made, path, file)
            own()
            self._unlink(_NEW_DATA)  # a crash may have left one
            os.symlink(name, _NEW_DATA, dir_fd=self.directory)
            # The one step that readers see: `..data` leads to the old or to the new directory, never to none.
            os.rename(_NEW_DATA, DATA, src_dir_fd=self.directory, dst_dir_fd=self.directory)
        except BaseException:
            remove_entry(self.directory, name, self.target / name)
            raise

    def link(self, files: Mapping[str, FileProjection]) -> None:
        """Make the links that users see, and remove those of files that are gone. Entries of others stay."""
        wanted = {path.partition("/")[0] for path in files}
        present = set(_names(self.directory))
        for name in sorted(wanted - present):
            os.symlink(f"{DATA}/{name}", name, dir_fd=self.directory)
        for name in sorted(present - wanted):
            if self._link_at(name) == f"{DATA}/{name}":
                self._unlink(name)

    def clear(self, now: datetime, *, replaced: str | None) -> datetime | None:
        """Remove old directories, but keep the replaced one for GRACE; return when that is over.

        What a crash or a failure has left is removed then at the latest.
        """
        current = self.current()
        old = {name for name in _names(self.directory) if name != current and self._is_ours(name)}
        until = None if current is None else grace_ends(current, now)
        # If this call replaced nothing, any old directory may be the replaced one: all stay until GRACE is over.
        kept = set() if until is None else old if replaced is None else old & {replaced}
        for name in sorted(old - kept):
            remove_entry(self.directory, name, self.target / name)
        return until if kept else None

    def current(self) -> str | None:
        """Return the name of the current directory, if it is one of ours."""
        name = self._link_at(DATA)  # a directory in its place makes the rename in write() fail
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
    """Return whether nothing else is there. Without recursion: a pod's author chooses how deep its paths are."""
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
    """A directory on the way down: the names still to check, and the prefix of paths in it."""

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
        # 0600 until it has its owner and mode, so that no other user can open it before.
        descriptor = os.open(name, _NEW_FILE, 0o600, dir_fd=here)
    with open(descriptor, "wb") as opened_file:
        opened_file.write(file.data)
        if file.uid is not None:
            os.fchown(descriptor, file.uid, -1)
        os.fchmod(descriptor, file.mode & _LOW_BITS)

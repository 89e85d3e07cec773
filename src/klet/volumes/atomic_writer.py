"""Puts a set of files into a directory so that readers see all of the old or all of the new (AtomicWriter). It blocks.

    T/..2030_01_01_00_00_00.1234/{a,d/b}    the files
    T/..data -> ..2030_01_01_00_00_00.1234  swung over in one step
    T/a -> ..data/a    T/d -> ..data/d      what users see

Nothing that lies in the directory is trusted: a `..data` that points anywhere but to a directory of ours is replaced,
and only directories of ours are removed, without following links.
"""

import os
import posixpath
import re
import secrets
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeAlias

from klet.host.contained import read_contained
from klet.host.errors import FileError
from klet.host.files import remove_tree
from klet.volumes.errors import BadPath, doing

LONGEST_PATH: Final = 4096
LONGEST_NAME: Final = 255
DATA: Final = "..data"
_NEW_DATA: Final = "..data_tmp"
_STAMP: Final = "..%Y_%m_%d_%H_%M_%S."
_STAMPED: Final = re.compile(r"\.\.\d{4}(_\d\d){5}\.\d+")
_LOW_BITS: Final = 0o777


@dataclass(frozen=True, slots=True)
class FileProjection:
    """One file."""

    data: bytes = field(repr=False)
    mode: int
    uid: int | None = None


Payload: TypeAlias = Mapping[str, FileProjection]
"""By path, relative to the directory."""


def write_payload(target: Path, payload: Payload, *, now: datetime, own: Callable[[], None]) -> bool:
    """Make the directory hold exactly the payload; False if its content was that already.

    `own` is called between the writing of the files and their appearance, to give everything its owner.
    """
    files = clean_payload(payload)
    with doing("write files to", target):
        current = _current(target)
        is_new = current is None or not _is_same(target / current, files)
        if is_new:
            _write(target, files, now, own)
        _link(target, files)
        if is_new:
            _remove_all_but_current(target)
    return is_new


def clean_payload(payload: Payload) -> dict[str, FileProjection]:
    """The payload under clean paths; a path that could leave the directory, or pass for one of ours, is refused."""
    for path in payload:
        _check_path(path)
    return {posixpath.normpath(path): file for path, file in payload.items()}


def paths_to_remove(existing: set[str], files: Mapping[str, object]) -> set[str]:
    """What is there, files and directories, and is neither in a payload nor on the way to something in it."""
    wanted: set[str] = set()
    for path in files:
        while path:
            wanted.add(path)
            path = posixpath.dirname(path)
    return existing - wanted


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


def _current(target: Path) -> str | None:
    """The directory that is shown now, if it is one of ours."""
    try:
        name = str((target / DATA).readlink())
    except OSError:
        return None  # missing, or not a link; what is in the way will be told by the swing
    return name if _is_ours(target, name) else None


def _is_ours(target: Path, name: str) -> bool:
    if not _STAMPED.fullmatch(name):
        return False
    try:
        return stat.S_ISDIR(os.lstat(target / name).st_mode)
    except FileNotFoundError:
        return False


def _is_same(shown: Path, files: Mapping[str, FileProjection]) -> bool:
    """Whether the content is the same; modes are not compared."""
    existing = {
        str((Path(base) / name).relative_to(shown))
        for base, directories, names in os.walk(shown)
        for name in (*directories, *names)
    }
    if paths_to_remove(existing, files):
        return False
    return all(_has(shown, path, file.data) for path, file in files.items())


def _has(shown: Path, path: str, data: bytes) -> bool:
    try:
        return read_contained(shown, path, limit=len(data)) == data
    except FileError:
        return False


def _write(target: Path, files: Mapping[str, FileProjection], now: datetime, own: Callable[[], None]) -> None:
    made = _make_stamped(target, now)
    try:
        for path, file in files.items():
            _write_file(made / path, file)
        own()
        link = target / _NEW_DATA
        link.unlink(missing_ok=True)  # a crash may have left one
        link.symlink_to(made.name)
        link.rename(target / DATA)
    except BaseException:
        remove_tree(made)
        raise


def _make_stamped(target: Path, now: datetime) -> Path:
    made = target / f"{now.astimezone(UTC).strftime(_STAMP)}{secrets.randbelow(1 << 32)}"
    made.mkdir()
    made.chmod(0o755)
    return made


def _write_file(path: Path, file: FileProjection) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Nobody can open it before it has its owner and mode.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as opened:
        opened.write(file.data)
        if file.uid is not None:
            os.fchown(descriptor, file.uid, -1)
        os.fchmod(descriptor, file.mode & _LOW_BITS)


def _link(target: Path, files: Mapping[str, FileProjection]) -> None:
    """Make the links that users see, and remove those of what is gone. What others put there stays."""
    wanted = {path.partition("/")[0] for path in files}
    present = {entry.name for entry in target.iterdir()}
    for name in sorted(wanted - present):
        (target / name).symlink_to(f"{DATA}/{name}")
    for name in sorted(present - wanted):
        path = target / name
        if path.is_symlink() and str(path.readlink()) == f"{DATA}/{name}":
            path.unlink()


def _remove_all_but_current(target: Path) -> None:
    """The last state, and what a crash or an earlier failure has left."""
    current = _current(target)
    for entry in list(target.iterdir()):
        if entry.name != current and _is_ours(target, entry.name):
            remove_tree(entry)

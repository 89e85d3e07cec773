"""Where a race takes place, and the oracle that says what happened to the sentinels."""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from klet.host.files import remove_entry
from klet.testing.races.confined import NOBODY

TOKEN: Final = b"klet-sentinel"
"""Every sentinel file holds it: who returns it has read one."""
_CONTENT: Final = b"2030-01-01T00:00:00.000000000Z stdout F " + TOKEN + b"\n"
"""A line of a log, so that a reader of logs shows it."""

_MODE: Final = 0o705
_FILE_MODE: Final = 0o604
"""Modes that no code sets, so that a change shows."""


class Arena(msgspec.Struct, frozen=True):
    """The directories of one race, all below one fresh directory."""

    base: Path

    @property
    def inside(self) -> Path:
        return self.base / "inside"

    @property
    def outside(self) -> Path:
        return self.base / "outside"

    @property
    def spare(self) -> Path:
        return self.base / "spare"

    @property
    def stage(self) -> Path:
        """The victim's own place: what it makes here and then moves inside is complete when the attacker sees it."""
        return self.base / "stage"

    def plant(self, *paths: str) -> None:
        """Make sentinels; a path that ends in a slash is an empty directory."""
        for path in paths:
            sentinel = self.outside / path
            if path.endswith("/"):
                sentinel.mkdir(parents=True)
            else:
                sentinel.parent.mkdir(parents=True, exist_ok=True)
                sentinel.write_bytes(_CONTENT)
        for sentinel in (self.outside, *self.outside.rglob("*")):
            sentinel.chmod(_MODE if sentinel.is_dir() else _FILE_MODE)
        self._give_away()

    def clear(self, name: str) -> None:
        """Remove what has this name inside."""
        with self._opened_inside() as inside:
            remove_entry(inside, name, self.inside / name)

    def move_in(self, name: str) -> None:
        """Move what the victim has prepared under this name inside, in place of what has that name there."""
        with self._opened_inside() as inside:
            remove_entry(inside, name, self.inside / name)
            os.rename(self.stage / name, name, dst_dir_fd=inside)

    @contextmanager
    def _opened_inside(self) -> Iterator[int]:
        inside = os.open(self.inside, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            yield inside
        finally:
            os.close(inside)

    def _give_away(self) -> None:
        """Change the owner: the racers have no privileges, and what they fight for has to be theirs."""
        if os.geteuid() == 0:
            for path in (self.base, *self.base.rglob("*")):
                os.lchown(path, NOBODY, NOBODY)


@contextmanager
def open_arena() -> Iterator[Arena]:
    """Make a fresh arena in the directory for temporary files; it is removed afterwards."""
    arena = Arena(Path(tempfile.mkdtemp(prefix="klet-race-")))
    try:
        arena.base.chmod(0o755)
        for directory in (arena.inside, arena.outside, arena.spare, arena.stage):
            directory.mkdir(mode=0o755)
        arena.plant()
        yield arena
    finally:
        shutil.rmtree(arena.base)


class Sentinel(NamedTuple):
    """Everything about one sentinel that only its owner may change. Link counts are the attacker's to change."""

    device: int
    inode: int
    mode: int
    uid: int
    gid: int
    written: int
    content: bytes | None


class Oracle:
    """Knows how the sentinels were."""

    def __init__(self, arena: Arena) -> None:
        self._outside = arena.outside
        self._before = _look(arena.outside)

    def look(self) -> str | None:
        """Return what has happened to the sentinels since; None if nothing has."""
        return _difference(self._before, _look(self._outside))


def _difference(before: Mapping[str, Sentinel], after: Mapping[str, Sentinel]) -> str | None:
    for path in sorted(before.keys() ^ after.keys()):
        return f"{path} was {'removed' if path in before else 'made'}"
    for path, old in before.items():
        new = after[path]
        if (old.device, old.inode) != (new.device, new.inode):
            return f"{path} was replaced or mounted on"
        if old != new:
            names = [name for name in Sentinel._fields if getattr(old, name) != getattr(new, name)]
            return f"{path} has another {' and '.join(names)}"
    return None


def _look(top: Path) -> dict[str, Sentinel]:
    return {str(path.relative_to(top)): _sentinel(path) for path in (top, *sorted(top.rglob("*")))}


def _sentinel(path: Path) -> Sentinel:
    found = path.lstat()
    content = None
    if stat.S_ISREG(found.st_mode):
        with suppress(PermissionError):  # its mode was changed, which shows
            content = path.read_bytes()
    return Sentinel(
        device=found.st_dev,
        inode=found.st_ino,
        mode=found.st_mode,
        uid=found.st_uid,
        gid=found.st_gid,
        written=found.st_mtime_ns,
        content=content,
    )

"""Somebody's files, mounted where code removes things: whether any of them is lost.

What is mounted looks like what it covers: code that enters it finds the names that it is about to remove.
"""

import shutil
import stat
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Final

from klet.host import mounts
from klet.host.mounts import Propagation

MARKER: Final = "somebody's.txt"
_CONTENT: Final = b"somebody's file"
_OF_THE_SYSTEM: Final = frozenset({"posix", "io", "_io"})
"""Modules whose functions are calls of the system."""


class MountKind(StrEnum):
    """Where somebody's files are."""

    OTHER = "on another filesystem"
    SAME = "on the same filesystem"
    """A bind mount: by its device number it is no mount."""


class MarkedMount:
    """Somebody's directory or file, and the place where it is mounted."""

    def __init__(self, *, home: Path, place: Path, kind: MountKind) -> None:
        """Mark what would be removed; `home` is an empty directory on the filesystem of the place."""
        self.place = place
        self._home = home
        self._source = home / "theirs"
        if kind is MountKind.OTHER:
            mounts.mount("klet-theirs", home, fs_type="tmpfs", options=["size=1m"])
        if place.is_dir():
            shutil.copytree(place, self._source, symlinks=True)
            (self._source / "empty").mkdir()
            (self._source / MARKER).write_bytes(_CONTENT)
        else:
            self._source.write_bytes(place.read_bytes() or _CONTENT)
        self._before = _look(self._source)

    def mount(self) -> None:
        mounts.bind(self._source, self.place)

    @property
    def is_mounted(self) -> bool:
        return any(
            entry.mount_point == str(self.place) and entry.root.endswith("/theirs") for entry in mounts.list_mounts()
        )

    def lost(self) -> list[str]:
        """Return what is not as it was, by its path. What was added does not count."""
        after = _look(self._source)
        return sorted(path for path, found in self._before.items() if after.get(path) != found)


@contextmanager
def before_call(number: int, act: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Act once inside the block, before the system call of that number, on this thread or a new one.

    Yields a function that says whether there were so many calls.
    """
    left = number
    lock = threading.Lock()
    has_acted = False

    def look(_frame: FrameType, event: str, called: object) -> None:
        nonlocal left, has_acted
        is_counted = event == "c_call" and getattr(called, "__module__", None) in _OF_THE_SYSTEM
        if not is_counted or has_acted or not lock.acquire(blocking=False):
            return
        try:
            left -= 1
            if left < 0:
                has_acted = True
                act()
        finally:
            lock.release()

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        yield lambda: has_acted
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


@contextmanager
def private_base(directory: Path) -> Iterator[Path]:
    """Yield a directory on a private mount of its own: no mount in it can stay behind or reach the rest."""
    base = directory / "base"
    base.mkdir()
    mounts.bind(base, base)
    mounts.set_propagation(base, Propagation.PRIVATE)
    try:
        yield base
    finally:
        mounts.unmount_tree(base)


def _look(top: Path) -> Mapping[str, tuple[int, bytes | str | None]]:
    return {str(path.relative_to(top)): _state(path) for path in (top, *sorted(top.rglob("*")))}


def _state(path: Path) -> tuple[int, bytes | str | None]:
    mode = stat.S_IFMT(path.lstat().st_mode)
    if stat.S_ISLNK(mode):
        return mode, str(path.readlink())
    return mode, path.read_bytes() if stat.S_ISREG(mode) else None

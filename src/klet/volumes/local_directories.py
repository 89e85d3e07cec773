"""Directories of the machine, bound into pods' directories: what local volumes are made of. It blocks.

The directory is opened once, and what was opened is bound: swapping it for a link meanwhile has no effect.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct

from klet.api.validation.formats import has_backsteps
from klet.errors import KletError
from klet.host.errors import FileMissing, file_error
from klet.host.mountinfo import is_below
from klet.volumes.errors import MountStep, StepFailed, VolumeSetupError
from klet.volumes.names import Layout
from klet.volumes.volume_directories import make_volume, remove_empty_volume

MODE: Final = 0o750
_MAX_STACKED: Final = 100


class Binder(Protocol):
    """Binds directories, one call at a time; all of it blocks."""

    def bind(self, source: int, target: Path) -> None:
        """Show what a descriptor stands for at a path as well."""
        ...

    def restrict(self, target: Path, options: Iterable[str]) -> None:
        """Give what is bound at a path the options that it does not have yet."""
        ...

    def is_bound(self, path: Path) -> bool:
        """Return whether something is mounted at exactly this path; raises FileMissing if the path is not there."""
        ...

    def shown_at(self, source: int) -> Iterable[str]:
        """Return where else a directory is mounted."""
        ...

    def unmount(self, target: Path) -> bool: ...


class LocalDirectory(Struct, frozen=True, kw_only=True):
    """One directory: which one, for which pod, and how that may use it."""

    source: str
    uid: str
    target: Path
    options: tuple[str, ...] = ()


class SharedDirectory(Struct, frozen=True):
    """What is found of a directory that has been bound."""

    group: int
    is_shared: bool
    """Other pods have it, too."""
    was_bound: bool
    """A previous run of the agent has bound it for this pod."""


class LocalDirectories:
    """Binds directories of the machine and unbinds them. Binding twice, and unbinding what is not there, do no harm."""

    def __init__(self, *, layout: Layout, binder: Binder) -> None:
        self._layout = layout
        self._binder = binder

    def set_up(self, directory: LocalDirectory) -> SharedDirectory:
        with open_source(directory.source) as source:
            shown_at = self._binder.shown_at(source)
            was_bound = self._is_bound(directory.target)
            if not was_bound:
                make_volume(directory.target, mode=MODE)
                try:
                    self._binder.bind(source, directory.target)
                except KletError:
                    remove_empty_volume(directory.target)
                    raise
            # Apart from the bind: an agent that was killed in between has left it without them.
            self._binder.restrict(directory.target, directory.options)
            return SharedDirectory(
                os.fstat(source).st_gid,
                is_shared=self._has_others(shown_at, directory.uid),
                was_bound=was_bound,
            )

    def tear_down(self, target: Path) -> None:
        """Unbind it. Only the empty directory that it was bound to is removed, never what it shows."""
        for _ in range(_MAX_STACKED):
            if not self._is_bound(target) or not self._binder.unmount(target):
                break
        remove_empty_volume(target)

    def _is_bound(self, path: Path) -> bool:
        try:
            return self._binder.is_bound(path)
        except FileMissing:
            return False

    def _has_others(self, shown_at: Iterable[str], uid: str) -> bool:
        pods = os.path.realpath(self._layout.pods)
        return any(is_below(path, pods) and not is_below(path, f"{pods}/{uid}") for path in shown_at)


@contextmanager
def open_source(path: str) -> Iterator[int]:
    """Yield a descriptor of a directory of the machine. Links on the way are followed: they are the administrator's."""
    if not path:
        raise StepFailed(MountStep.NEW_MOUNTER, "local volume source is nil or local path is not set")
    if has_backsteps(path):
        raise VolumeSetupError(f"invalid path: {path} must not contain '..'")
    if not path.startswith("/") or "\0" in path:
        raise VolumeSetupError(f"invalid path: {path!r} must be an absolute path")
    try:
        found = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise StepFailed(MountStep.NEW_MOUNTER, f'path "{path}" does not exist') from error
    except OSError as error:
        raise StepFailed(MountStep.NEW_MOUNTER, str(file_error("open", Path(path), error))) from error
    try:
        _check_kind(os.fstat(found).st_mode)
        yield found
    finally:
        os.close(found)


def is_block_device(path: str) -> bool:
    """Return whether a path is a block device of the machine; raises KletError if it is no directory either."""
    try:
        with open_source(path):
            return False
    except NotDirectory as error:
        if error.is_block_device:
            return True
        raise


class NotDirectory(StepFailed):
    """What a local volume names is no directory."""

    def __init__(self, *, is_block_device: bool) -> None:
        super().__init__(MountStep.NEW_MOUNTER, "only directory and block device are supported")
        self.is_block_device = is_block_device


def _check_kind(mode: int) -> None:
    if not stat.S_ISDIR(mode):
        raise NotDirectory(is_block_device=stat.S_ISBLK(mode))

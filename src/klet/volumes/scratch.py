"""Scratch directories on disk, in memory or on huge pages: emptyDir, and what other volumes are built on. It blocks."""

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct

from klet.api.quantity import Format, Quantity
from klet.errors import KletError
from klet.host.errors import FileMissing
from klet.host.filesystems import Magic
from klet.volumes.errors import VolumeSetupError, doing
from klet.volumes.media import DISK, HUGE_PAGES, IN_MEMORY, is_huge_pages, size_in_medium
from klet.volumes.ownership import Ownership, change_ownership
from klet.volumes.volume_directories import make_marker, make_volume, remove_marker, remove_volume

logger = logging.getLogger(__name__)

MODE: Final = 0o777


class MountedMedium(Struct, frozen=True):
    """What is mounted at a path."""

    magic: int
    page_size: int


class Mounter(Protocol):
    """Mounts, one call at a time; all of it blocks."""

    def mount(self, source: str, target: Path, *, fs_type: str, options: Iterable[str]) -> None: ...

    def unmount(self, target: Path) -> bool: ...

    def mounted_at(self, path: Path) -> MountedMedium | None:
        """Return what is mounted at exactly this path; raises FileMissing if the path is not there."""
        ...


class Scratch(Struct, frozen=True, kw_only=True):
    """One directory: where it lies, what it is made of, whose it is."""

    path: Path
    marker: Path
    medium: str = DISK
    options: tuple[str, ...] = ()
    group: int | None = None
    pod_uid: str = ""


class ScratchDirectories:
    """Sets scratch directories up and takes them down. A marker file marks those that are complete."""

    def __init__(self, *, mounter: Mounter) -> None:
        self._mounter = mounter

    def set_up(self, scratch: Scratch) -> None:
        mounted = self._mounted(scratch.path)
        with doing("set up", scratch.path):
            if scratch.marker.is_file():
                if scratch.medium == IN_MEMORY and mounted is not None:
                    return
                if scratch.medium == DISK:
                    if scratch.path.exists():
                        return
                    remove_marker(scratch.marker)
            try:
                self._make(scratch, mounted)
            finally:
                _own(scratch)
            make_marker(scratch.marker)

    def tear_down(self, path: Path, marker: Path) -> None:
        """Unmount and remove. What is mounted there is looked up: the spec may be long forgotten."""
        remove_volume(marker.parent)
        while (mounted := self._mounted(path)) is not None and mounted.magic in {Magic.TMPFS, Magic.HUGETLBFS}:
            if not self._mounter.unmount(path):
                break
        remove_volume(path)

    def _make(self, scratch: Scratch, mounted: MountedMedium | None) -> None:
        # For everyone, whatever the process's umask is; a sticky bit that is there stays.
        make_volume(scratch.path, mode=MODE)
        if scratch.medium == IN_MEMORY:
            if mounted is None or mounted.magic != Magic.TMPFS:
                self._mounter.mount("tmpfs", scratch.path, fs_type="tmpfs", options=scratch.options)
        elif is_huge_pages(scratch.medium):
            if mounted is not None and mounted.magic == Magic.HUGETLBFS:
                _check_page_size(scratch, mounted)
            else:
                self._mounter.mount("nodev", scratch.path, fs_type="hugetlbfs", options=scratch.options)

    def _mounted(self, path: Path) -> MountedMedium | None:
        try:
            return self._mounter.mounted_at(path)
        except FileMissing:
            return None


def _own(scratch: Scratch) -> None:
    """Give it to the pod's group. Upstream does not mind if that fails."""
    if scratch.group is None or not scratch.path.is_dir():
        return
    try:
        change_ownership(scratch.path, Ownership(scratch.group))
    except KletError as error:
        logger.warning("Owner not changed", extra={"volume": str(scratch.path), "error": str(error)})


def _check_page_size(scratch: Scratch, mounted: MountedMedium) -> None:
    if scratch.medium == HUGE_PAGES:
        return
    wanted = size_in_medium(scratch.medium)
    if wanted.value() != mounted.page_size:
        found = Quantity.of(mounted.page_size, Format.BINARY_SI)
        raise VolumeSetupError(
            f"pod {scratch.pod_uid}: mounted dir {scratch.path} pagesize '{found}' and requested medium size "
            f"'{wanted}' differ"
        )

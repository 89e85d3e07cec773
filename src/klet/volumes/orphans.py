"""Removes the directories of pods that are over (cleanupOrphanedPodDirs), but never the content of a volume.

What a volume still holds may be somebody's data: such a directory stays until its volume has been taken down.
"""

import os
import stat
from pathlib import Path
from typing import Final, Protocol

from klet.errors import KletError
from klet.host.beneath import remove_below
from klet.host.errors import HostError
from klet.host.filesystems import is_mount_root
from klet.model.pods import PodUID
from klet.volumes.disk import find_volumes
from klet.volumes.errors import OrphanKept, doing

VOLUMES: Final = "volumes"
SUB_PATHS: Final = "volume-subpaths"


class PodVolumes(Protocol):
    """The part of the volume manager that ends a pod's volumes."""

    async def wait_for_unmount(self, uid: PodUID) -> None: ...

    async def pod_volumes_exist(self, uid: PodUID) -> bool: ...


class PodRemover(Protocol):
    """Removes the directory of a pod that has no volume any more."""

    async def remove(self, uid: PodUID) -> None:
        """Raises OrphanKept if something in it may be somebody's."""
        ...


class OrphanedPods:
    """Takes the volumes of forgotten pods down, and then their directories."""

    def __init__(self, *, volumes: PodVolumes, directories: PodRemover) -> None:
        self._volumes = volumes
        self._directories = directories

    async def remove(self, uid: PodUID) -> None:
        """Remove a pod's directory; raises WaitFailed or OrphanKept while it has to stay."""
        await self._volumes.wait_for_unmount(uid)
        if await self._volumes.pod_volumes_exist(uid):
            raise OrphanKept(f'orphaned pod "{uid}" found, but volumes are not cleaned up')
        await self._directories.remove(uid)


def remove_orphan(directory: Path, uid: PodUID) -> None:
    """Remove one pod's directory, if nothing in it may be somebody's. It blocks."""
    if directory.is_symlink():
        raise _kept(uid, "its directory is a link")
    if not directory.exists():
        return
    _remove_volumes(directory / VOLUMES, uid)
    _remove_sub_paths(directory / SUB_PATHS, uid)
    try:
        _remove_directories(directory / VOLUMES)
    except KletError as error:
        raise _kept(uid, f"error occurred when trying to remove the volumes dir: {error}") from error
    for entry in _entries(directory, uid):
        try:
            remove_below(directory.parent, directory.name, entry.name)
        except HostError as error:
            raise _kept(uid, f'error occurred when trying to remove subdir "{entry}": {error}') from error
    try:
        directory.rmdir()
    except OSError as error:
        raise _kept(uid, f"error occurred when trying to remove the pod directory: {error.strerror}") from error


def _remove_volumes(volumes: Path, uid: PodUID) -> None:
    try:
        found = find_volumes(volumes)
    except HostError as error:
        raise _kept(uid, f"error occurred during reading volume dir from disk: {error}") from error
    for volume in found:
        try:
            _remove_directories(volume.path)
        except KletError as error:
            raise _kept(uid, f"failed to rmdir() volume at path {volume.path}: {error}") from error


def _remove_sub_paths(directory: Path, uid: PodUID) -> None:
    try:
        with doing("look for subPaths in", directory):
            found = sorted(directory.glob("*/*/*"))
    except HostError as error:
        raise _kept(uid, f"error occurred during reading of volume-subpaths dir from disk: {error}") from error
    for path in found:
        try:
            if stat.S_ISDIR(path.lstat().st_mode):
                path.rmdir()
            else:
                path.unlink()
        except OSError as error:
            raise _kept(uid, f"failed to rmdir() subpath at path {path}: {error.strerror}") from error


def _remove_directories(top: Path) -> None:
    """Remove a directory and all below it, if that is nothing but directories and no mount."""
    if not top.exists():
        return
    if top.is_symlink():
        raise OrphanKept(f"cannot delete directory {top}: it is a link")
    with doing("remove the directories of", top):
        found = [top]
        for base, names, _ in os.walk(top):
            found += [Path(base) / name for name in names]
        for path in reversed(found):
            if is_mount_root(path):
                raise OrphanKept(f"cannot delete directory {path}: it is a mount point")
            path.rmdir()


def _entries(directory: Path, uid: PodUID) -> list[Path]:
    try:
        entries = sorted(directory.iterdir())
    except OSError as error:
        raise _kept(uid, f"error occurred during reading the pod dir from disk: {error.strerror}") from error
    if any(entry.name == VOLUMES for entry in entries):
        raise _kept(uid, "volumes subdir was found after it was removed")
    return entries


def _kept(uid: PodUID, what: str) -> OrphanKept:
    return OrphanKept(f'orphaned pod "{uid}" found, but {what}')

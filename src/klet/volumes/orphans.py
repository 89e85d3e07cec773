"""Removes the directories of pods that are over (cleanupOrphanedPodDirs), but never the content of a volume.

A volume may still hold user data: such a directory stays until its volume has been taken down.
"""

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, Protocol

from klet.errors import KletError
from klet.host.beneath import list_directory, open_directory, remove_below
from klet.host.errors import FileMissing, HostError
from klet.host.mount_ids import look_at, mount_id
from klet.model.pods import PodUID
from klet.model.volumes import SUB_PATHS
from klet.volumes.disk import find_volumes
from klet.volumes.errors import OrphanKept, doing

VOLUMES: Final = "volumes"
DEEPEST: Final = 256
"""What lies deeper in a volume is not klet's making: it stays."""
_SUB_PATH_DEPTH: Final = 3


class VolumeUnmounter(Protocol):
    """The part of the volume manager that ends a pod's volumes."""

    async def wait_for_unmount(self, uid: PodUID) -> None: ...

    async def pod_volumes_exist(self, uid: PodUID) -> bool: ...


class PodRemover(Protocol):
    """Removes the directory of a pod that has no volume any more."""

    async def remove(self, uid: PodUID) -> None:
        """Remove it; raises OrphanKept if it may hold user data."""
        ...


class OrphanedPods:
    """Takes the volumes of forgotten pods down, and then their directories."""

    def __init__(self, *, volumes: VolumeUnmounter, directories: PodRemover) -> None:
        self._volumes = volumes
        self._directories = directories

    async def remove(self, uid: PodUID) -> None:
        """Remove a pod's directory; raises WaitFailed or OrphanKept while it has to stay."""
        await self._volumes.wait_for_unmount(uid)
        if await self._volumes.pod_volumes_exist(uid):
            raise OrphanKept(f'orphaned pod "{uid}" found, but volumes are not cleaned up')
        await self._directories.remove(uid)


def remove_orphan(directory: Path, uid: PodUID) -> None:
    """Remove one pod's directory, unless it may hold user data. It blocks.

    Every step is taken by descriptor: swapping a directory for a link meanwhile removes nothing elsewhere.
    """
    if directory.is_symlink():
        raise _kept(uid, "its directory is a link")
    if not directory.exists():
        return
    _remove_volumes(directory, uid)
    _remove_sub_paths(directory, uid)
    try:
        _remove_directories(directory, VOLUMES)
    except KletError as error:
        raise _kept(uid, f"error occurred when trying to remove the volumes dir: {error}") from error
    for name in _names(directory, uid):
        try:
            remove_below(directory.parent, directory.name, name)
        except HostError as error:
            raise _kept(uid, f'error occurred when trying to remove subdir "{directory / name}": {error}') from error
    try:
        directory.rmdir()
    except OSError as error:
        raise _kept(uid, f"error occurred when trying to remove the pod directory: {error.strerror}") from error


def _remove_volumes(directory: Path, uid: PodUID) -> None:
    try:
        found = find_volumes(directory / VOLUMES)
    except HostError as error:
        raise _kept(uid, f"error occurred during reading volume dir from disk: {error}") from error
    for volume in found:
        try:
            _remove_directories(directory, *volume.path.relative_to(directory).parts)
        except KletError as error:
            raise _kept(uid, f"failed to rmdir() volume at path {volume.path}: {error}") from error


def _remove_sub_paths(directory: Path, uid: PodUID) -> None:
    try:
        found = _sub_paths(directory)
    except HostError as error:
        raise _kept(uid, f"error occurred during reading of volume-subpaths dir from disk: {error}") from error
    for names, is_directory in found:
        shown = directory.joinpath(*names)
        try:
            with _parent(directory, names) as parent, doing("remove", shown):
                os.rmdir(names[-1], dir_fd=parent) if is_directory else os.unlink(names[-1], dir_fd=parent)
        except HostError as error:
            raise _kept(uid, f"failed to rmdir() subpath at path {shown}: {error}") from error


def _sub_paths(directory: Path) -> list[tuple[tuple[str, ...], bool]]:
    """Return what lies at `volume-subpaths/<volume>/<container>/<index>`, and whether it is a directory."""
    level: list[tuple[tuple[str, ...], bool]] = [((SUB_PATHS,), True)]
    for _ in range(_SUB_PATH_DEPTH):
        level = [
            ((*names, entry.name), entry.is_directory)
            for names, is_directory in level
            if is_directory
            for entry in list_directory(directory.parent, directory.name, *names, one_mount=True)
        ]
    return level


def _remove_directories(directory: Path, *names: str) -> None:
    """Remove a directory and all below it, if that is nothing but directories and no mount."""
    shown = directory.joinpath(*names)
    try:
        with _parent(directory, names) as parent, doing("remove the directories of", shown):
            _remove_empty(parent, names[-1], shown, depth=0)
    except FileMissing:
        return


def _remove_empty(parent: int, name: str, shown: Path, *, depth: int) -> None:
    if depth > DEEPEST:
        raise OrphanKept(f"cannot delete directory {shown}: it is too deep")
    mount = mount_id(parent)
    if look_at(parent, name).mount != mount:
        raise OrphanKept(f"cannot delete directory {shown}: it is a mount point")
    directory = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        # Again, by descriptor: something may have been mounted since.
        if mount_id(directory) != mount:
            raise OrphanKept(f"cannot delete directory {shown}: it is a mount point")
        with os.scandir(directory) as entries:
            below = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        for each in below:
            _remove_empty(directory, each, shown / each, depth=depth + 1)
    finally:
        os.close(directory)
    os.rmdir(name, dir_fd=parent)


def _parent(directory: Path, names: tuple[str, ...]) -> AbstractContextManager[int]:
    return open_directory(directory.parent, directory.name, *names[:-1], one_mount=True)


def _names(directory: Path, uid: PodUID) -> list[str]:
    try:
        names = [entry.name for entry in list_directory(directory.parent, directory.name)]
    except HostError as error:
        raise _kept(uid, f"error occurred during reading the pod dir from disk: {error}") from error
    if VOLUMES in names:
        raise _kept(uid, "volumes subdir was found after it was removed")
    return names


def _kept(uid: PodUID, what: str) -> OrphanKept:
    return OrphanKept(f'orphaned pod "{uid}" found, but {what}')

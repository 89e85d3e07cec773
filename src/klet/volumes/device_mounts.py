"""Disks mounted for all pods below `plugins`, and what is mounted there bound for each pod.

For kinds whose devices are disks of this machine: iscsi, fc, local volumes on block devices.
"""

import asyncio
import logging
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Final, Protocol

from klet.aio.threads import Threads
from klet.errors import KletError
from klet.host.beneath import make_directories, remove_empty_below
from klet.host.errors import FileMissing, MountError
from klet.host.storage.disk_formats import DiskMount, WrongFilesystem
from klet.model.pods import PodUID
from klet.volumes.device_places import DevicePlace
from klet.volumes.errors import FilesystemMismatch, VolumeSetupError
from klet.volumes.local_directories import LocalDirectories, LocalDirectory
from klet.volumes.ownership import Ownership, change_ownership
from klet.volumes.plugins.base import MountRequest
from klet.volumes.usage import fs_group_change_policy

logger = logging.getLogger(__name__)

UNMOUNT_LIMIT: Final = timedelta(minutes=1)
"""After it an unmount is forced: a server, or a disk, may not answer any more."""
MOST_LATE: Final = 6
"""Threads that may hang at once, of those that all volumes have."""
_MODE: Final = 0o750
_MAX_STACKED: Final = 100


class DiskMounter(Protocol):
    """Mounts disks, and makes and grows the filesystems on them."""

    async def format_and_mount(self, request: DiskMount) -> None: ...

    async def grow(self, disk: str, mounted_at: str) -> None: ...


class MountPoints(Protocol):
    """What is mounted where on this machine; it blocks."""

    def is_bound(self, path: Path) -> bool: ...

    def unmount(self, target: Path, *, force: bool = False) -> bool: ...


class _Call:
    """One unmount, as its thread sees it."""

    def __init__(self, points: MountPoints, target: Path, *, force: bool) -> None:
        self._points = points
        self.target = target
        self.force = force
        self.is_at_work = False

    def run(self) -> bool:
        self.is_at_work = True
        try:
            return self._points.unmount(self.target, force=self.force)
        finally:
            self.is_at_work = False


class Unmounter:
    """Unmounts, by force if that takes too long. What hangs is not tried again meanwhile: each try has a thread."""

    def __init__(self, *, points: MountPoints, threads: Threads, limit: timedelta = UNMOUNT_LIMIT) -> None:
        self._points = points
        self._threads = threads
        self._limit = limit
        self._late: list[_Call] = []

    async def unmount(self, target: Path) -> bool:
        """Unmount what is on top at a path; False if nothing was mounted there."""
        self._late = [call for call in self._late if call.is_at_work]
        if len(self._late) >= MOST_LATE:
            raise VolumeSetupError(
                f"unmount failed: {len(self._late)} other ones have not ended\nUnmounting arguments: {target}\nOutput: "
            )
        for force in (False, True):
            if any((call.target, call.force) == (target, force) for call in self._late):
                continue
            call = _Call(self._points, target, force=force)
            try:
                # The thread that hangs returns when the unmount by force has ended what it waits for.
                async with asyncio.timeout(self._limit.total_seconds()):
                    return await self._threads.run(call.run)
            except TimeoutError:
                self._late += [call] if call.is_at_work else []
                logger.warning("Unmounting takes too long", extra={"volume": str(target)})
            except MountError as error:
                raise VolumeSetupError(
                    f"unmount failed: {error}\nUnmounting arguments: {target}\nOutput: {error}"
                ) from error
        raise VolumeSetupError(
            f"unmount failed: it did not end within {self._limit}, by force neither\nUnmounting arguments: {target}\n"
            "Output: "
        )

    async def unmount_all(self, target: Path) -> None:
        """Unmount all that is stacked at a path."""
        for _ in range(_MAX_STACKED):
            if not await self.unmount(target):
                return


class DeviceMounts:
    """Mounts disks for all pods, and binds them for each. Doing it twice, and undoing what is not there, do no harm."""

    def __init__(
        self,
        *,
        directories: LocalDirectories,
        disks: DiskMounter,
        points: MountPoints,
        unmounter: Unmounter,
        threads: Threads,
    ) -> None:
        self._directories = directories
        self._disks = disks
        self._points = points
        self._unmounter = unmounter
        self._threads = threads

    async def is_mounted(self, place: DevicePlace) -> bool:
        return await self._threads.run(self._is_bound, place.path)

    async def is_mounted_at(self, target: Path) -> bool:
        return await self._threads.run(self._is_bound, target)

    async def unmount_at(self, target: Path) -> None:
        await self._unmounter.unmount_all(target)

    async def make(self, place: DevicePlace) -> None:
        await self._threads.run(make_directories, place.plugins, *place.names, mode=_MODE)

    async def mount(self, place: DevicePlace, disk: str, *, fs_type: str, options: Iterable[str]) -> None:
        """Mount a disk, and format it if it is empty."""
        await self.make(place)
        if await self.is_mounted(place):
            return
        request = DiskMount(disk=disk, target=place.path, fs_type=fs_type, options=tuple(sorted(set(options))))
        try:
            await self._disks.format_and_mount(request)
        except KletError as error:
            await self._unmounter.unmount_all(place.path)
            await self._threads.run(_remove_if_empty, place)
            if isinstance(error, WrongFilesystem):
                raise FilesystemMismatch(str(error)) from error
            raise

    async def unmount_disk(self, place: DevicePlace) -> None:
        """Unmount a disk; the directory that it was mounted on stays."""
        await self._unmounter.unmount_all(place.path)

    async def remove(self, place: DevicePlace) -> None:
        """Remove the empty directory that a disk was mounted on."""
        await self._threads.run(remove_empty_below, place.plugins, *place.names)

    async def grow(self, disk: str, mounted_at: str) -> None:
        await self._disks.grow(disk, mounted_at)

    async def bind(self, request: MountRequest, target: Path, *, options: Iterable[str]) -> bool:
        """Show a pod what is mounted at its `device_mount_path`; return whether it was not shown already."""
        if not await self._threads.run(self._is_bound, Path(request.device_mount_path)):
            # Else the empty directory would be bound, and the pod would write to the node's own disk.
            raise VolumeSetupError(f"no disk is mounted at {request.device_mount_path}")
        directory = LocalDirectory(
            source=request.device_mount_path,
            uid=request.uid,
            target=target,
            options=tuple(sorted({"bind", *options})),
        )
        found = await self._threads.run(self._directories.set_up, directory)
        return not found.was_bound

    async def own(self, request: MountRequest, target: Path) -> None:
        """Give the files of a volume to the group of the pod."""
        if request.fs_group is None:
            return
        wanted = Ownership(request.fs_group, policy=fs_group_change_policy(request.pod))
        try:
            await self._threads.run(change_ownership, target, wanted)
        except KletError as error:
            # Upstream goes on, too: the pod may have no need of it.
            logger.warning(
                "The volume was not given to the group of the pod",
                extra={"uid": request.uid, "volume": request.spec.name, "error": str(error)},
            )

    async def unbind(self, uid: PodUID, target: Path) -> None:
        try:
            await self._threads.run(self._directories.tear_down, target)
        except KletError as error:
            raise VolumeSetupError(f"cannot take the volume of pod {uid} down: {error}") from error

    def _is_bound(self, path: Path) -> bool:
        try:
            return self._points.is_bound(path)
        except FileMissing:
            return False


def _remove_if_empty(place: DevicePlace) -> None:
    try:
        remove_empty_below(place.plugins, *place.names)
    except KletError as error:
        # What is in it (iscsi.json) is removed when the device is.
        logger.debug("The directory of a device stays", extra={"volume": str(place.path), "error": str(error)})

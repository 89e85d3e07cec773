"""What the kinds whose devices are disks of the node have in common: iscsi and fc.

A disk is mounted for all pods at `plugins/<plugin>/…`, and bound for each. A block volume's devices are below
`plugins/<plugin>/volumeDevices/…`. The last names of both say which disk it is, and are read back after a restart.
"""

import logging
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import ClassVar, Final

from msgspec import Struct
from msgspec.structs import replace

from klet.aio.threads import Threads
from klet.api.meta import ObjectMeta
from klet.api.storage import PersistentVolume, PersistentVolumeSpec
from klet.api.volume import Volume
from klet.api.volume_intree import ISCSIPersistentVolumeSource
from klet.errors import KletError
from klet.host.beneath import list_directory
from klet.host.mountinfo import MountEntry, find_references
from klet.model.pods import PodUID
from klet.model.volumes import UsageSource
from klet.volumes.device_mounts import DeviceMounts
from klet.volumes.device_places import DevicePlace, build_place, read_place
from klet.volumes.errors import VolumeSetupError, doing
from klet.volumes.names import Layout, VolumeName
from klet.volumes.plugins.base import (
    ExpandRequest,
    Expansion,
    ExpansionOutcome,
    LeftVolume,
    MountRequest,
    StagedPlugin,
    StageRequest,
    VolumeAttributes,
)
from klet.volumes.spec import BLOCK, VolumeSpec
from klet.volumes.volume_directories import resolved_volume

logger = logging.getLogger(__name__)

DEVICES: Final = "volumeDevices"
_READ_ONLY: Final = "ro"
_MOST_PLACES: Final = 10_000


class DiskSource(Struct, frozen=True):
    """What a volume says of its disk besides which one it is."""

    fs_type: str
    read_only: bool


class DiskPlugin(StagedPlugin):
    """Mounts disks that the node finds itself; the controller's attaching is an empty operation."""

    depth: ClassVar[int]
    """How many names below the plugin's directory say which disk it is."""
    supports_mount_options = True
    supports_block = True
    usage_source = UsageSource.STATFS

    def __init__(self, *, layout: Layout, mounts: DeviceMounts, threads: Threads) -> None:
        self._layout = layout
        self._mounts = mounts
        self._threads = threads

    @abstractmethod
    def disk_source(self, spec: VolumeSpec) -> DiskSource | None:
        """Return what a volume of this kind says; None for one of another kind."""

    @abstractmethod
    def place_names(self, spec: VolumeSpec) -> tuple[str, ...]:
        """Return the names of its directory; raises VolumeSetupError for bad ones."""

    @abstractmethod
    def volume_at(self, volume: str, names: tuple[str, ...]) -> Volume:
        """Return the volume that such names are of, good enough to name it; raises VolumeSetupError for bad ones."""

    def read_volume(self, volume: str, place: DevicePlace) -> Volume:
        """Return the volume whose disk a place is of; raises KletError. It may block."""
        return self.volume_at(volume, place.names[-self.depth :])

    @abstractmethod
    async def remove_device(self, place: DevicePlace) -> None:
        """Make the kernel forget the unmounted disk that a place is named after. One that is gone does no harm.

        What it was called when it was mounted (`/dev/sdb`) does not count: by now that may be another disk.
        """

    def supports(self, spec: VolumeSpec) -> bool:
        return self.disk_source(spec) is not None

    def supports_label(self, spec: VolumeSpec) -> bool:  # noqa: ARG002 - every filesystem on a disk does
        return True

    def attributes(self, spec: VolumeSpec) -> VolumeAttributes:
        read_only = self._source(spec).read_only
        return VolumeAttributes(read_only=read_only, managed=not read_only, relabels=True)

    def path(self, uid: PodUID, spec: VolumeSpec) -> str:
        return str(self._layout.volume(uid, self.name, spec.name))

    def is_attachable(self, spec: VolumeSpec) -> bool | None:  # noqa: ARG002 - every one is
        return True

    async def attach(self, spec: VolumeSpec, *, node: str) -> str:  # noqa: ARG002 - all is done by wait_for_attach
        return ""

    async def detach(self, name: VolumeName, *, node: str) -> None:
        """Do nothing: all is done when the device is unmounted."""

    def device_mount_path(self, spec: VolumeSpec) -> str:
        return str(self.place(spec).path)

    def global_map_path(self, spec: VolumeSpec) -> str:
        return str(self.place(spec, is_block=True).path)

    def place(self, spec: VolumeSpec, *, is_block: bool = False) -> DevicePlace:
        """Return where its disk is mounted, or its devices are."""
        names = self.place_names(spec)
        return build_place(self._layout, self.name, *((DEVICES, *names) if is_block else names))

    async def mount_device(self, request: StageRequest) -> None:
        source = self._source(request.spec)
        options = {*request.spec.mount_options, *([_READ_ONLY] if source.read_only else [])}
        if request.label:
            options.add(f'context="{request.label}"')
        await self._mounts.mount(self.place(request.spec), request.device_path, fs_type=source.fs_type, options=options)

    async def unmount_device(self, mount_path: str, *, device_path: str) -> None:  # noqa: ARG002 - see `remove_device`
        place = read_place(self._layout, self.name, mount_path, depth=self.depth)
        await self._mounts.unmount_disk(place)
        await self.remove_device(place)
        await self._mounts.remove(place)

    async def set_up(self, request: MountRequest) -> datetime | None:
        spec, target = request.spec, self._layout.volume(request.uid, self.name, request.spec.name)
        read_only = self._source(spec).read_only
        options = (*spec.mount_options, *([_READ_ONLY] if read_only else []))
        if await self._mounts.bind(request, target, options=options) and not read_only:
            await self._mounts.own(request, target)
        return None

    async def tear_down(self, uid: PodUID, name: str) -> None:
        await self._mounts.unbind(uid, self._layout.volume(uid, self.name, name))

    async def map_pod_device(self, request: StageRequest) -> str:
        return request.device_path

    async def tear_down_device(self, name: str, *, map_path: str, device_path: str) -> None:  # noqa: ARG002
        place = read_place(self._layout, f"{self.name}/{DEVICES}", map_path, depth=self.depth)
        await self.remove_device(place)

    def is_expandable(self, spec: VolumeSpec) -> bool:  # noqa: ARG002 - every one
        return True

    async def expand(self, request: ExpandRequest) -> Expansion:
        return await expand_disk(self._mounts, request)

    async def reconstruct(self, left: LeftVolume) -> VolumeSpec:
        place = await self._threads.run(self._place_of, left)
        found = await self._threads.run(self.read_volume, left.name, place)
        return as_block(found) if left.is_block else VolumeSpec(found)

    async def find_devices(self, mounts: Sequence[MountEntry]) -> Sequence[VolumeSpec]:  # noqa: ARG002 - the disk says it
        return await self._threads.run(self._find_devices)

    def _source(self, spec: VolumeSpec) -> DiskSource:
        source = self.disk_source(spec)
        if source is None:
            raise VolumeSetupError(f"volume {spec.name} is not one of {self.name}")
        return source

    def _place_of(self, left: LeftVolume) -> DevicePlace:
        """Return the place of the disk whose mount, or device, a pod has."""
        if left.is_block:
            return self._device_place_of(left)
        path = resolved_volume(left.path)
        for found in () if path is None else find_references(left.mounts, path):
            if place := self._read_place(found, self.name):
                return place
        raise VolumeSetupError("couldn't fetch globalPDPath. failed to obtain volume spec")

    def _device_place_of(self, left: LeftVolume) -> DevicePlace:
        with doing("read", left.path):
            link = left.path.readlink()
        # Before there is a device the link leads to where it will be.
        if link.name == left.uid and (place := self._read_place(str(link.parent), f"{self.name}/{DEVICES}")):
            return place
        device = link.name
        for entry in left.mounts:
            directory, _, name = entry.mount_point.rpartition("/")
            if name == left.uid and Path(entry.root).name == device:
                place = self._read_place(directory, f"{self.name}/{DEVICES}")
                if place is not None:
                    return place
        raise VolumeSetupError("couldn't fetch globalMapPath. failed to obtain volume spec")

    def _read_place(self, path: str, directory: str) -> DevicePlace | None:
        # The mount table has the links in the administrator's part of the path resolved.
        for root in (self._layout.root, self._layout.root.resolve()):
            try:
                return read_place(Layout(root), directory, path, depth=self.depth)
            except VolumeSetupError:
                continue
        return None

    def _find_devices(self) -> list[VolumeSpec]:
        found: list[VolumeSpec] = []
        for is_block in (False, True):
            top = build_place(self._layout, self.name, *((DEVICES,) if is_block else ()))
            for names in _walk(top, self.depth):
                try:
                    volume = self.read_volume("-".join(names), DevicePlace(top.plugins, (*top.names, *names)))
                except KletError as error:
                    logger.warning(
                        "A directory of a device that cannot be read stays",
                        extra={"volume": str(top.path.joinpath(*names)), "error": str(error)},
                    )
                    continue
                found.append(as_block(volume) if is_block else VolumeSpec(volume))
        return found


def as_block(volume: Volume) -> VolumeSpec:
    """Return a volume as a PersistentVolume of devices, since only such a one can be of devices."""
    spec = PersistentVolumeSpec(volume_mode=BLOCK)
    if volume.fc is not None:
        spec = replace(spec, fc=volume.fc)
    if (disk := volume.iscsi) is not None:
        source = ISCSIPersistentVolumeSource(
            target_portal=disk.target_portal, iqn=disk.iqn, lun=disk.lun, iscsi_interface=disk.iscsi_interface
        )
        spec = replace(spec, iscsi=source)
    return VolumeSpec(Volume(name=volume.name), PersistentVolume(metadata=ObjectMeta(name=volume.name), spec=spec))


async def expand_disk(mounts: DeviceMounts, request: ExpandRequest, *, disk: str = "") -> Expansion:
    """Grow the filesystem on a disk; one that is given to pods as a device has nothing to grow."""
    if request.spec.is_block:
        return Expansion(ExpansionOutcome.FINISHED)
    try:
        await mounts.grow(disk or request.device_path, request.device_mount_path)
    except KletError as error:
        return Expansion(ExpansionOutcome.FAILED, str(error))
    return Expansion(ExpansionOutcome.FINISHED)


def _walk(top: DevicePlace, depth: int) -> Iterable[tuple[str, ...]]:
    level: list[tuple[str, ...]] = [()]
    for _ in range(depth):
        level = [
            (*names, entry.name)
            for names in level
            for entry in list_directory(top.plugins, *top.names, *names)[:_MOST_PLACES]
            if entry.is_directory and (names or entry.name != DEVICES)
        ]
    return level

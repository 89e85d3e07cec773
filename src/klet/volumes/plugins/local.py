"""local: a directory or a disk of the machine as a PersistentVolume. Pods may share it."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Final
from weakref import WeakValueDictionary

from klet.aio.threads import Threads
from klet.api.meta import ObjectMeta
from klet.api.storage import LocalVolumeSource, PersistentVolume, PersistentVolumeSpec
from klet.api.volume import Volume
from klet.host.beneath import list_directory
from klet.host.mountinfo import MountEntry
from klet.model.causes import CauseRecorder
from klet.model.pods import PodUID
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.model.volumes import UsageSource
from klet.volumes.device_mounts import DeviceMounts
from klet.volumes.device_places import DevicePlace, build_place, read_place
from klet.volumes.errors import VolumeSetupError
from klet.volumes.local_directories import LocalDirectories, LocalDirectory, SharedDirectory, is_block_device
from klet.volumes.names import Layout, escape
from klet.volumes.owner_change import OwnerChanger
from klet.volumes.ownership import ON_ROOT_MISMATCH, Ownership
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
from klet.volumes.plugins.disk import expand_disk
from klet.volumes.spec import BLOCK, VolumeSpec
from klet.volumes.usage import fs_group, fs_group_change_policy

DECIDER: Final = "volumes.plugins.local"
_BIND: Final = "bind"
_READ_ONLY: Final = "ro"
_MOUNTS: Final = "kubernetes.io/local-volume/mounts"
_DEVICES: Final = f"{escape('kubernetes.io/local-volume')}/volumeDevices"


class LocalPlugin(StagedPlugin):
    """Binds the directory into that of the pod, and gives it to the pod's group if no other pod has it.

    A disk is mounted for all pods first, and formatted if it is empty. A directory has nothing to mount for all.
    """

    name = "kubernetes.io/local-volume"
    supports_mount_options = True
    supports_block = True
    usage_source = UsageSource.STATFS

    def __init__(
        self,
        *,
        layout: Layout,
        directories: LocalDirectories,
        mounts: DeviceMounts,
        owners: OwnerChanger,
        recorder: CauseRecorder,
        threads: Threads,
    ) -> None:
        self._layout = layout
        self._directories = directories
        self._mounts = mounts
        self._owners = owners
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)
        self._threads = threads
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By directory: of two pods that get it at once only the first changes its owner."""

    def supports(self, spec: VolumeSpec) -> bool:
        return spec.persistent is not None and spec.persistent.spec.local is not None

    def attributes(self, spec: VolumeSpec) -> VolumeAttributes:
        return VolumeAttributes(read_only=spec.read_only, managed=not spec.read_only, relabels=True)

    def path(self, uid: PodUID, spec: VolumeSpec) -> str:
        return str(self._layout.volume(uid, self.name, spec.name))

    def device_name(self, spec: VolumeSpec) -> str:
        return spec.name

    def device_mount_path(self, spec: VolumeSpec) -> str:
        return str(self._place(spec).path)

    async def mount_device(self, request: StageRequest) -> None:
        source = _source(request.spec)
        if not await self._threads.run(is_block_device, source.path):
            return
        options = (*request.spec.mount_options, *([_READ_ONLY] if request.spec.read_only else []))
        await self._mounts.mount(self._place(request.spec), source.path, fs_type=source.fs_type or "", options=options)

    async def unmount_device(self, mount_path: str, *, device_path: str) -> None:  # noqa: ARG002 - the path says it
        place = read_place(self._layout, _MOUNTS, mount_path, depth=1)
        await self._mounts.unmount_disk(place)
        await self._mounts.remove(place)

    async def set_up(self, request: MountRequest) -> datetime | None:
        spec = request.spec
        source = _source(spec).path
        if await self._threads.run(is_block_device, source):
            source = await self._mounted_disk(spec)
        options = {_BIND, *spec.mount_options, *([_READ_ONLY] if spec.read_only else [])}
        directory = LocalDirectory(
            source=source,
            uid=request.uid,
            target=self._layout.volume(request.uid, self.name, spec.name),
            options=tuple(sorted(options)),
        )
        lock = self._locks.setdefault(directory.source, asyncio.Lock())
        async with lock:
            found = await self._threads.run(self._directories.set_up, directory)
            await self._own(request, directory, found)
        return None

    async def tear_down(self, uid: PodUID, name: str) -> None:
        await self._threads.run(self._directories.tear_down, self._layout.volume(uid, self.name, name))

    def global_map_path(self, spec: VolumeSpec) -> str:
        return str(build_place(self._layout, _DEVICES, spec.name).path)

    async def map_pod_device(self, request: StageRequest) -> str:
        source = _source(request.spec).path
        if not await self._threads.run(is_block_device, source):
            raise VolumeSetupError(f"{source} is a directory, which cannot be given to a pod as a device")
        return source

    def is_expandable(self, spec: VolumeSpec) -> bool:  # noqa: ARG002 - those without filesystem have nothing to do
        return True

    async def expand(self, request: ExpandRequest) -> Expansion:
        source = _source(request.spec).path
        if request.spec.is_block or not await self._threads.run(is_block_device, source):
            return Expansion(ExpansionOutcome.FINISHED)
        return await expand_disk(self._mounts, request, disk=source)

    async def reconstruct(self, left: LeftVolume) -> VolumeSpec:
        # Its name is enough to take down both stages.
        return _left_volume(left.name, is_block=left.is_block)

    async def find_devices(self, mounts: Sequence[MountEntry]) -> Sequence[VolumeSpec]:  # noqa: ARG002 - the disk says it
        return await self._threads.run(self._find_devices)

    def _find_devices(self) -> list[VolumeSpec]:
        places = ((build_place(self._layout, _MOUNTS), False), (build_place(self._layout, _DEVICES), True))
        return [
            _left_volume(entry.name, is_block=is_block)
            for place, is_block in places
            for entry in list_directory(place.plugins, *place.names)
            if entry.is_directory
        ]

    def _place(self, spec: VolumeSpec) -> DevicePlace:
        return build_place(self._layout, _MOUNTS, spec.name)

    async def _mounted_disk(self, spec: VolumeSpec) -> str:
        place = self._place(spec)
        if not await self._mounts.is_mounted(place):
            # Else the empty directory would be bound, and the pod would write to the node's own disk.
            raise VolumeSetupError(f"{_source(spec).path} is not mounted at {place.path}")
        return str(place.path)

    async def _own(self, request: MountRequest, directory: LocalDirectory, found: SharedDirectory) -> None:
        group = fs_group(request.pod)
        if group is None:
            return
        if not found.is_shared:
            if not request.spec.read_only:
                policy = ON_ROOT_MISMATCH if found.was_bound else fs_group_change_policy(request.pod)
                await self._owners.change(request.pod, directory.target, Ownership(group, policy=policy))
        elif found.group != group:
            self._decisions.for_pod(request.pod).record(
                Reason.ALREADY_MOUNTED_VOLUME,
                f"The requested fsGroup is {group}, but the volume {request.spec.name} has GID {found.group}. "
                "The volume may not be shareable.",
            )


def _source(spec: VolumeSpec) -> LocalVolumeSource:
    assert spec.persistent is not None  # by `supports`
    assert spec.persistent.spec.local is not None
    return spec.persistent.spec.local


def _left_volume(name: str, *, is_block: bool) -> VolumeSpec:
    spec = PersistentVolumeSpec(local=LocalVolumeSource(path=""), volume_mode=BLOCK if is_block else None)
    return VolumeSpec(Volume(name=name), PersistentVolume(metadata=ObjectMeta(name=name), spec=spec))

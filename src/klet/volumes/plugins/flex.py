"""flexVolume: volumes that a program of the administrator's attaches and mounts. One plugin for each driver."""

import logging
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

from msgspec import Struct

from klet.aio.threads import Threads
from klet.api.volume import Volume
from klet.api.volume_intree import FlexVolumeSource
from klet.errors import KletError
from klet.model.pods import PodUID
from klet.model.roles import ObjectReader
from klet.model.volumes import UsageSource
from klet.volumes.device_mounts import DeviceMounts
from klet.volumes.device_places import DevicePlace, build_place, read_place
from klet.volumes.errors import VolumeSetupError
from klet.volumes.flex.calls import (
    FLEX,
    FlexCapabilities,
    FlexCommand,
    FlexNotSupported,
    encode_options,
    flex_source,
    is_read_only,
    pod_options,
    secret_name,
    secret_options,
)
from klet.volumes.flex.driver import FlexDriver
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
from klet.volumes.plugins.disk import expand_disk
from klet.volumes.spec import VolumeSpec
from klet.volumes.volume_directories import has_volume, make_volume, remove_empty_volume

logger = logging.getLogger(__name__)

_MODE: Final = 0o750


class FlexPorts(Struct, frozen=True, kw_only=True):
    """What the plugins of all drivers share."""

    layout: Layout
    mounts: DeviceMounts
    objects: ObjectReader
    threads: Threads


class FlexPlugin(StagedPlugin):
    """Has a driver do what it can, and does the rest as the Go kubelet would."""

    def __init__(self, *, ports: FlexPorts, driver: FlexDriver, capabilities: FlexCapabilities) -> None:
        self.name = driver.found.name
        self.usage_source = UsageSource.STATFS if capabilities.has_metrics else None
        self.driver = driver
        self._layout = ports.layout
        self._mounts = ports.mounts
        self._objects = ports.objects
        self._threads = ports.threads
        self._capabilities = capabilities

    def supports(self, spec: VolumeSpec) -> bool:
        source = flex_source(spec)
        return source is not None and source.driver == self.name

    def attributes(self, spec: VolumeSpec) -> VolumeAttributes:
        return VolumeAttributes(read_only=is_read_only(spec), relabels=self._capabilities.relabels)

    def path(self, uid: PodUID, spec: VolumeSpec) -> str:
        return str(self._layout.volume(uid, self.name, spec.name))

    def device_name(self, spec: VolumeSpec) -> str:
        # Upstream asks the driver (getvolumename), and takes the name of the volume whatever it answers.
        return spec.name

    def is_attachable(self, spec: VolumeSpec) -> bool | None:  # noqa: ARG002 - the driver says it for all
        return self._capabilities.attach

    def is_device_mountable(self, spec: VolumeSpec) -> bool:  # noqa: ARG002 - the driver says it for all
        return self._capabilities.attach

    def device_mount_path(self, spec: VolumeSpec) -> str:
        return str(self._place(spec.name).path)

    async def attach(self, spec: VolumeSpec, *, node: str) -> str:
        try:
            return (await self.driver.call(FlexCommand.ATTACH, encode_options(spec), node)).device
        except FlexNotSupported:
            return ""

    async def detach(self, name: VolumeName, *, node: str) -> None:
        try:
            await self.driver.call(FlexCommand.DETACH, name.removeprefix(f"{self.name}/"), node)
        except FlexNotSupported:
            logger.debug("The driver detaches nothing", extra={"volume": name})

    async def wait_for_attach(self, request: StageRequest) -> str:
        try:
            answer = await self.driver.call(
                FlexCommand.WAIT_FOR_ATTACH, request.device_path, encode_options(request.spec)
            )
        except FlexNotSupported:
            return request.device_path
        return answer.device

    async def mount_device(self, request: StageRequest) -> None:
        place = self._place(request.spec.name)
        await self._mounts.make(place)
        if await self._mounts.is_mounted(place):
            return
        try:
            await self.driver.call(
                FlexCommand.MOUNT_DEVICE, str(place.path), request.device_path, encode_options(request.spec)
            )
        except FlexNotSupported:
            if not request.device_path:
                return  # the driver has nothing to do with devices
            source = flex_source(request.spec)
            assert source is not None  # by `supports`
            options = ["ro" if is_read_only(request.spec) else "rw"]
            await self._mounts.mount(place, request.device_path, fs_type=source.fs_type, options=options)

    async def unmount_device(self, mount_path: str, *, device_path: str) -> None:  # noqa: ARG002 - the driver knows it
        place = read_place(self._layout, self._directory, mount_path, depth=1)
        if await self._mounts.is_mounted(place):
            try:
                await self.driver.call(FlexCommand.UNMOUNT_DEVICE, mount_path)
            except FlexNotSupported:
                await self._mounts.unmount_disk(place)
        await self._mounts.remove(place)

    async def set_up(self, request: MountRequest) -> datetime | None:
        target = self._layout.volume(request.uid, self.name, request.spec.name)
        if await self._mounts.is_mounted_at(target):
            return None
        extra = {**pod_options(request.pod, fs_group=request.fs_group), **await self._read_secret(request)}
        await self._threads.run(make_volume, target, mode=_MODE)
        try:
            await self.driver.call(FlexCommand.MOUNT, str(target), encode_options(request.spec, extra))
        except FlexNotSupported:
            await self._mounts.bind(request, target, options=["ro"] if is_read_only(request.spec) else [])
        except KletError:
            await self._threads.run(_remove_if_empty, target)
            raise
        if self._capabilities.fs_group and not is_read_only(request.spec):
            await self._mounts.own(request, target)
        return None

    async def tear_down(self, uid: PodUID, name: str) -> None:
        target = self._layout.volume(uid, self.name, name)
        if not await self._threads.run(has_volume, target):
            return
        try:
            await self.driver.call(FlexCommand.UNMOUNT, str(target))
        except FlexNotSupported:
            await self._mounts.unmount_at(target)
        # The driver may have removed it.
        await self._threads.run(remove_empty_volume, target)

    def is_expandable(self, spec: VolumeSpec) -> bool:  # noqa: ARG002 - the driver says it for all
        return self._capabilities.requires_fs_resize

    async def expand(self, request: ExpandRequest) -> Expansion:
        try:
            await self.driver.call(
                FlexCommand.EXPAND_FS,
                encode_options(request.spec),
                request.device_path,
                request.device_mount_path,
                str(request.new_size.value()),
                str(request.old_size.value()),
            )
        except FlexNotSupported:
            return await expand_disk(self._mounts, request)
        return Expansion(ExpansionOutcome.FINISHED)

    async def reconstruct(self, left: LeftVolume) -> VolumeSpec:
        return VolumeSpec(Volume(name=left.name, flex_volume=FlexVolumeSource(driver=self.name)))

    @property
    def _directory(self) -> str:
        return f"{FLEX}/{self.name}/mounts"

    def _place(self, name: str) -> DevicePlace:
        return build_place(self._layout, self._directory, name)

    async def _read_secret(self, request: MountRequest) -> Mapping[str, str]:
        named = secret_name(request.spec, namespace=request.pod.metadata.namespace)
        if named is None:
            return {}
        try:
            found = await self._objects.secret(*named)
        except KletError as error:
            raise VolumeSetupError(f"Couldn't get secret {named[0]}/{named[1]} err: {error}") from error
        if found.type != self.name:
            raise VolumeSetupError(f"cannot get secret of type {self.name}")
        return secret_options(found.data)


def _remove_if_empty(target: Path) -> None:
    try:
        remove_empty_volume(target)
    except KletError as error:
        # The driver may have mounted something before it failed.
        logger.debug("The directory of a volume stays", extra={"volume": str(target), "error": str(error)})

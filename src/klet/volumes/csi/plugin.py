"""csi: volumes of drivers outside the agent (upstream: csi_plugin.go)."""

import logging
from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from klet.api.meta import ObjectMeta
from klet.api.storage import CSIPersistentVolumeSource, PersistentVolume, PersistentVolumeSpec
from klet.api.volume import CSIVolumeSource, Volume
from klet.errors import KletError
from klet.host.mountinfo import MountEntry
from klet.model.pods import PodUID
from klet.model.volumes import UsageSource
from klet.volumes.csi import driver_rules
from klet.volumes.csi.access import CsiAccess
from klet.volumes.csi.attachments import check_attached, is_exhausted
from klet.volumes.csi.blocks import CsiBlocks
from klet.volumes.csi.expanding import CsiExpander
from klet.volumes.csi.places import DATA_FILE, PLUGIN, PREFIX, CsiLayout, attachment_name, device_name
from klet.volumes.csi.publishing import CsiPublisher
from klet.volumes.csi.roles import LimitRefresh
from klet.volumes.csi.source import driver_of, persistent_source
from klet.volumes.csi.staging import CsiStager
from klet.volumes.csi.vol_data import EPHEMERAL, BadVolumeData, VolumeData, check_named
from klet.volumes.errors import VolumeSetupError
from klet.volumes.names import escape
from klet.volumes.plugins.base import (
    ExpandRequest,
    Expansion,
    LeftVolume,
    MountRequest,
    StagedPlugin,
    StageRequest,
    VolumeAttributes,
)
from klet.volumes.spec import BLOCK, VolumeSpec

logger = logging.getLogger(__name__)

_FILESYSTEM = "Filesystem"


class CsiParts(Struct, frozen=True, kw_only=True):
    """What carries out the operations."""

    access: CsiAccess
    stager: CsiStager
    publisher: CsiPublisher
    blocks: CsiBlocks
    expander: CsiExpander


class CsiPlugin(StagedPlugin):
    """PersistentVolumes, and volumes inline in pods, of CSI drivers."""

    name = PLUGIN
    supports_mount_options = True
    supports_block = True
    usage_source = UsageSource.DRIVER

    def __init__(self, *, parts: CsiParts, layout: CsiLayout, limits: LimitRefresh | None) -> None:
        self._access = parts.access
        self._parts = parts
        self._layout = layout
        self._limits = limits
        """None if nobody follows how many volumes the node can have (gate MutableCSINodeAllocatableCount)."""

    def supports(self, spec: VolumeSpec) -> bool:
        return driver_of(spec) is not None

    def remounts(self, spec: VolumeSpec) -> bool:
        return driver_rules.requires_republish(self._access.find_object(driver_of(spec) or ""))

    def supports_label(self, spec: VolumeSpec) -> bool:
        return driver_rules.supports_label(self._access.find_object(driver_of(spec) or ""))

    def attributes(self, spec: VolumeSpec) -> VolumeAttributes:
        read_only = spec.read_only
        if spec.persistent is None and spec.volume.csi is not None:
            read_only = spec.volume.csi.read_only
        return VolumeAttributes(read_only=read_only, managed=not read_only, relabels=True)

    def path(self, uid: PodUID, spec: VolumeSpec) -> str:
        return str(self._layout.target(uid, spec.name).path)

    async def set_up(self, request: MountRequest) -> datetime | None:
        await self._parts.publisher.publish(request)
        return None

    async def tear_down(self, uid: PodUID, name: str) -> None:
        await self._parts.publisher.unpublish(uid, name)

    def device_name(self, spec: VolumeSpec) -> str:
        source = persistent_source(spec)
        return device_name(source.driver, source.handle)

    def is_attachable(self, spec: VolumeSpec) -> bool | None:
        if spec.persistent is None:
            return False
        if not self._access.is_synced:
            return None
        return driver_rules.requires_attach(self._access.find_object(driver_of(spec) or ""))

    def is_device_mountable(self, spec: VolumeSpec) -> bool:
        return spec.persistent is not None

    async def wait_for_attach(self, request: StageRequest) -> str:
        source = persistent_source(request.spec)
        name = attachment_name(source.handle, source.driver, self._access.node)
        try:
            attachment = await self._access.attachment(source)
        except KletError as error:
            failure = f"volume {source.handle} has GET error for volume attachment {name}: {error}"
            raise VolumeSetupError(failure) from error
        check_attached(attachment, source.handle)
        return name

    async def is_exhausted(self, spec: VolumeSpec) -> bool:
        if self._limits is None or spec.persistent is None:
            return False
        source = persistent_source(spec)
        driver = self._access.find_object(source.driver)
        if driver is None or driver.spec.node_allocatable_update_period_seconds is None:
            return False
        try:
            attachment = await self._access.attachment(source)
        except KletError:
            return False  # unknown: the pod goes on waiting, as upstream
        if not is_exhausted(attachment):
            return False
        try:
            await self._limits.refresh(source.driver)
        except KletError as error:
            logger.warning(
                "Volume count of the node not refreshed", extra={"driver": source.driver, "error": str(error)}
            )
        return True

    def device_mount_path(self, spec: VolumeSpec) -> str:
        source = persistent_source(spec)
        return str(self._layout.staging(source.driver, source.handle).path)

    async def mount_device(self, request: StageRequest) -> None:
        await self._parts.stager.stage(request)

    async def unmount_device(self, mount_path: str, *, device_path: str) -> None:  # noqa: ARG002 - drivers know it
        await self._parts.stager.unstage(mount_path)

    def global_map_path(self, spec: VolumeSpec) -> str:
        return str(self._layout.block_map(spec.name).path)

    async def set_up_device(self, request: StageRequest) -> str:
        return await self._parts.blocks.stage(request)

    async def map_pod_device(self, request: StageRequest) -> str:
        return await self._parts.blocks.publish(request)

    async def unmap_pod_device(self, uid: PodUID, name: str) -> None:
        await self._parts.blocks.unpublish(uid, name)

    async def tear_down_device(self, name: str, *, map_path: str, device_path: str) -> None:  # noqa: ARG002 - by name
        await self._parts.blocks.unstage(name)

    def is_expandable(self, spec: VolumeSpec) -> bool:
        return spec.persistent is not None

    async def expand(self, request: ExpandRequest) -> Expansion:
        staging = request.device_mount_path
        if request.spec.is_block:
            staging = str(self._layout.block_staging(request.spec.name).path)
        return await self._parts.expander.expand(request, staging=staging)

    async def reconstruct(self, left: LeftVolume) -> VolumeSpec:
        if left.is_block:
            return build_spec(await self._parts.blocks.read(left.name), is_block=True)
        data = await self._parts.publisher.read(left.uid, left.name)
        if data is None:
            raise BadVolumeData(f"{PREFIX}there is no {DATA_FILE} in {left.path}")
        if escape(data.spec_vol_id) != left.name:
            raise BadVolumeData(f"{PREFIX}{left.path / DATA_FILE} is of another volume")
        return build_spec(data)

    async def find_devices(self, mounts: Sequence[MountEntry]) -> Sequence[VolumeSpec]:  # noqa: ARG002 - files say it
        staged = [build_spec(data) for data in await self._parts.stager.find()]
        return [*staged, *(build_spec(data, is_block=True) for data in await self._parts.blocks.find())]


def build_spec(data: VolumeData, *, is_block: bool = False) -> VolumeSpec:
    """Return the volume that a file describes. Only its driver, handle, name and label are known."""
    check_named(data)
    name = data.spec_vol_id or f"{data.driver_name}-{data.volume_handle}"
    if data.volume_lifecycle_mode == EPHEMERAL:
        return VolumeSpec(Volume(name=name, csi=CSIVolumeSource(driver=data.driver_name)))
    source = CSIPersistentVolumeSource(driver=data.driver_name, volume_handle=data.volume_handle)
    mode = BLOCK if is_block else _FILESYSTEM
    persistent = PersistentVolume(
        metadata=ObjectMeta(name=name), spec=PersistentVolumeSpec(csi=source, volume_mode=mode)
    )
    return VolumeSpec(Volume(name=name), persistent, left_label=data.se_linux_mount_context)

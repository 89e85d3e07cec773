"""What the node, its images and its pods use of their disks (upstream: the disk half of its stats provider)."""

import asyncio
import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct

from klet.aio.clock import Clock
from klet.api.stats import FsStats, RuntimeStats
from klet.errors import KletError
from klet.host.disk import FilesystemUsage
from klet.host.errors import FileMissing
from klet.model.pods import PodUID
from klet.model.roles import PodsInRuntime
from klet.model.runtime import ContainerId
from klet.model.stats import PodDisk
from klet.model.volumes import MeasurableVolume, MeasurableVolumes
from klet.stats.disk_walker import DiskMeter, DiskWalker
from klet.stats.pod_disk_plan import (
    PodDiskTargets,
    compose_pod_disk,
    filesystem_stats,
    part_stats,
    plan_targets,
    pods_with_running_containers,
)
from klet.wire import cri_v1_pb2 as cri

logger = logging.getLogger(__name__)

LAYER_AGE: Final = timedelta(seconds=10)
"""How long the sizes of writable layers are used: the runtime measures them no more often itself."""
PATIENCE: Final = timedelta(seconds=2)
"""How long a request waits for the first measurement of a new pod."""
_NANOSECOND: Final = 1e-9


class LayerRuntime(Protocol):
    """The part of the runtime that knows writable layers."""

    async def list_container_stats(self, request: cri.ListContainerStatsRequest) -> cri.ListContainerStatsResponse: ...


class ImageFilesystems(Protocol):
    """The part of the image service that knows where images are."""

    async def image_fs_info(self, request: cri.ImageFsInfoRequest) -> cri.ImageFsInfoResponse: ...


class FilesystemMeter(DiskMeter, Protocol):
    """Measures filesystems, too."""

    async def filesystem(self, path: Path) -> FilesystemUsage:
        """Return the filesystem that holds a path; raises FileError."""
        ...


class DiskSettings(Struct, frozen=True, kw_only=True):
    """Where pods are, and how often their volumes are measured."""

    root: Path
    volume_period: timedelta = timedelta(minutes=1)
    """`volumeStatsAggPeriod`; volumes are not measured if it is not positive."""


class WritableLayer(Struct, frozen=True):
    """What a container has written to its root filesystem, as the runtime reports it."""

    used: int | None
    inodes: int | None
    mountpoint: str
    at: datetime


class ImageFilesystemUnknown(KletError):
    """The runtime does not say where images are."""


class NodeDisk:
    """Reads and composes what is on disks; directories are measured by the walker in the background."""

    def __init__(
        self,
        *,
        runtime: LayerRuntime,
        images: ImageFilesystems,
        pods: PodsInRuntime,
        volumes: MeasurableVolumes,
        walker: DiskWalker,
        meter: FilesystemMeter,
        settings: DiskSettings,
        clock: Clock,
    ) -> None:
        self._runtime = runtime
        self._images = images
        self._pods = pods
        self._volumes = volumes
        self._walker = walker
        self._meter = meter
        self._settings = settings
        self._clock = clock
        self._layers: Mapping[ContainerId, WritableLayer] = {}
        self._layers_read: float | None = None
        self._reading_layers = asyncio.Lock()

    async def node_fs(self) -> FsStats:
        found = await self._meter.filesystem(self._settings.root)
        return filesystem_stats(found, at=self._clock.now())

    async def image_fs(self) -> RuntimeStats:
        answer = await self._images.image_fs_info(cri.ImageFsInfoRequest())
        if not answer.image_filesystems:
            raise ImageFilesystemUnknown("imageFs information is unavailable")
        found = answer.image_filesystems[0]
        layer = _as_layer(found)
        on = (await self._filesystems({layer.mountpoint}))[layer.mountpoint]
        stats = part_stats(layer.used, layer.inodes, on, at=layer.at)
        return RuntimeStats(image_fs=stats, container_fs=stats)

    async def layer_sizes(self) -> Mapping[ContainerId, int]:
        """Return what each container has written into its root filesystem, as far as the runtime knows."""
        layers = await self._read_layers()
        return {id_: layer.used for id_, layer in layers.items() if layer.used is not None}

    async def pods(self) -> Mapping[PodUID, PodDisk]:
        running = tuple(pods_with_running_containers(self._pods.pods()))
        targets = {
            pod.uid: plan_targets(pod, self._measured_volumes(pod.uid), root=self._settings.root) for pod, _ in running
        }
        node_fs = await self._meter.filesystem(self._settings.root)
        layers = await self._read_layers()
        on = await self._filesystems({layer.mountpoint for layer in layers.values()})
        rootfs = {
            id_: part_stats(layer.used, layer.inodes, on[layer.mountpoint], at=layer.at)
            for id_, layer in layers.items()
        }
        await self._have_measured(targets)
        return {
            pod.uid: compose_pod_disk(
                targets[pod.uid], measured=self._walker.get, rootfs=rootfs, containers=containers, node_fs=node_fs
            )
            for pod, containers in running
        }

    def _measured_volumes(self, uid: PodUID) -> tuple[MeasurableVolume, ...]:
        return self._volumes.measurable(uid) if self._settings.volume_period > timedelta(0) else ()

    async def _have_measured(self, targets: Mapping[PodUID, PodDiskTargets]) -> None:
        periods = {
            target: period for each in targets.values() for target, period in each.periods(self._settings.volume_period)
        }
        self._walker.ask(periods)
        await self._walker.until_tried(periods, at_most=PATIENCE)

    async def _read_layers(self) -> Mapping[ContainerId, WritableLayer]:
        """Return the writable layers of all containers. Requests at the same time share one call."""
        async with self._reading_layers:
            now = self._clock.monotonic()
            if self._layers_read is None or now - self._layers_read >= LAYER_AGE.total_seconds():
                answer = await self._runtime.list_container_stats(cri.ListContainerStatsRequest())
                self._layers = {
                    ContainerId(stats.attributes.id): _as_layer(stats.writable_layer)
                    for stats in answer.stats
                    if stats.HasField("writable_layer")
                }
                self._layers_read = now
            return self._layers

    async def _filesystems(self, mountpoints: set[str]) -> Mapping[str, FilesystemUsage | None]:
        found: dict[str, FilesystemUsage | None] = {}
        for mountpoint in mountpoints:
            try:
                found[mountpoint] = await self._meter.filesystem(Path(mountpoint)) if mountpoint else None
            except FileMissing as error:
                # Upstream shows the numbers of the runtime alone then.
                logger.debug("Filesystem of the runtime not found", extra={"error": str(error)})
                found[mountpoint] = None
        return found


def _as_layer(found: cri.FilesystemUsage) -> WritableLayer:
    return WritableLayer(
        used=found.used_bytes.value if found.HasField("used_bytes") else None,
        inodes=found.inodes_used.value if found.HasField("inodes_used") else None,
        mountpoint=found.fs_id.mountpoint,
        at=datetime.fromtimestamp(found.timestamp * _NANOSECOND, UTC),
    )

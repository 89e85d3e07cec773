"""What is measured of a pod's disks, and what follows from the numbers. Pure.

Upstream: the stats of rootfs, logs, volumes and ephemeral storage of its CRI stats provider.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from msgspec import Struct

from klet.api.stats import FsStats, VolumeHealthStats, VolumeStats
from klet.host.disk import FilesystemUsage
from klet.host.disk_usage import DiskTarget, DiskTargetKind
from klet.model.pods import PodUID
from klet.model.runtime import ContainerId, PodRuntimeStatus
from klet.model.stats import ContainerDisk, PodDisk
from klet.model.volumes import MeasurableVolume, UsageSource
from klet.stats.disk_walker import Measurement

LOG_PERIOD: Final = timedelta(seconds=15)
"""Of logs and hosts files. Upstream measures them on each request."""
_VOLUME_DEPTH: Final = 4  # <uid>/volumes/<plugin>/<name>
_HOSTS_DEPTH: Final = 2  # <uid>/etc-hosts
_LOG_DEPTH: Final = 2  # <pod>/<container>
_HOSTS: Final = "etc-hosts"


class PodDiskTargets(Struct, frozen=True, kw_only=True):
    """What is measured of one pod."""

    volumes: tuple[tuple[MeasurableVolume, DiskTarget], ...]
    container_logs: Mapping[ContainerId, DiskTarget]
    pod_logs: DiskTarget | None
    hosts: DiskTarget

    def periods(self, volume_period: timedelta) -> Iterator[tuple[DiskTarget, timedelta]]:
        """Return how often each is measured."""
        for _, target in self.volumes:
            yield target, volume_period
        for files in (*self.container_logs.values(), self.pod_logs, self.hosts):
            if files is not None:
                yield files, LOG_PERIOD


def plan_targets(pod: PodRuntimeStatus, volumes: Iterable[MeasurableVolume], *, root: Path) -> PodDiskTargets:
    """Return what is to be measured of a pod. Containers that do not run are left out, as upstream does."""
    directories = {record.id: Path(record.log_path).parent for record in pod.running() if record.log_path}
    pod_directory = next(iter(directories.values())).parent if directories else None
    return PodDiskTargets(
        volumes=tuple((volume, _volume_target(volume)) for volume in volumes),
        container_logs={
            id_: DiskTarget(DiskTargetKind.FILES, str(path), _LOG_DEPTH) for id_, path in directories.items()
        },
        pod_logs=(
            DiskTarget(DiskTargetKind.FILES, str(pod_directory), _LOG_DEPTH - 1) if pod_directory is not None else None
        ),
        hosts=DiskTarget(DiskTargetKind.FILE, str(root / "pods" / pod.uid / _HOSTS), _HOSTS_DEPTH),
    )


def _volume_target(volume: MeasurableVolume) -> DiskTarget:
    if volume.source is UsageSource.DRIVER:
        return DiskTarget(DiskTargetKind.DRIVER, volume.path, _VOLUME_DEPTH + 1)
    is_filesystem = volume.source is UsageSource.STATFS
    return DiskTarget(DiskTargetKind.FILESYSTEM if is_filesystem else DiskTargetKind.TREE, volume.path, _VOLUME_DEPTH)


def filesystem_stats(found: FilesystemUsage, *, at: datetime) -> FsStats:
    """Return all of a filesystem."""
    return FsStats(
        time=at,
        available_bytes=found.available,
        capacity_bytes=found.capacity,
        used_bytes=found.used,
        inodes_free=found.inodes_free,
        inodes=found.inodes,
        inodes_used=found.inodes_used,
    )


def part_stats(used: int | None, inodes: int | None, on: FilesystemUsage | None, *, at: datetime) -> FsStats:
    """Return what takes a part of a filesystem; one that is not known is left out."""
    if on is None:
        return FsStats(time=at, used_bytes=used, inodes_used=inodes)
    return FsStats(
        time=at,
        available_bytes=on.available,
        capacity_bytes=on.capacity,
        used_bytes=used,
        inodes_free=on.inodes_free,
        inodes=on.inodes,
        inodes_used=inodes,
    )


def measurement_stats(measured: Measurement, on: FilesystemUsage | None) -> FsStats:
    return part_stats(measured.usage.used, measured.usage.inodes, on, at=measured.at)


def volume_stats(volume: MeasurableVolume, measured: Measurement) -> VolumeStats:
    """Return what a volume takes. All six numbers are there, as upstream has it."""
    usage = measured.usage
    on = usage.filesystem
    return VolumeStats(
        time=measured.at,
        available_bytes=on.available if on is not None else 0,
        capacity_bytes=on.capacity if on is not None else 0,
        used_bytes=usage.used,
        inodes_free=on.inodes_free if on is not None else 0,
        inodes=on.inodes if on is not None else 0,
        inodes_used=usage.inodes,
        name=volume.name,
        pvc_ref=volume.claim,
        volume_health_stats=VolumeHealthStats(abnormal=usage.is_abnormal) if usage.is_abnormal is not None else None,
    )


def compose_pod_disk(
    targets: PodDiskTargets,
    *,
    measured: Callable[[DiskTarget], Measurement | None],
    rootfs: Mapping[ContainerId, FsStats],
    containers: Iterable[ContainerId],
    node_fs: FilesystemUsage,
) -> PodDisk:
    """Return what a pod has on disk, from all that was measured of it."""
    found = [(volume, measured(target)) for volume, target in targets.volumes]
    known = [(volume, volume_stats(volume, seen)) for volume, seen in found if seen is not None]
    ephemeral = tuple(stats for volume, stats in known if volume.is_ephemeral)
    logs = {id_: measured(target) for id_, target in targets.container_logs.items()}
    disks = {
        id_: ContainerDisk(
            rootfs=rootfs.get(id_),
            logs=measurement_stats(seen, node_fs) if (seen := logs.get(id_)) is not None else None,
        )
        for id_ in containers
    }
    own_files = [measured(target) for target in (targets.pod_logs, targets.hosts) if target is not None]
    files = tuple(measurement_stats(each, None) for each in own_files if each is not None)
    return PodDisk(
        containers=disks,
        volumes=(*ephemeral, *(stats for volume, stats in known if not volume.is_ephemeral)),
        ephemeral_storage=compute_ephemeral_storage(disks.values(), volumes=ephemeral, files=files, node_fs=node_fs),
        abnormal_volumes={
            volume.name: seen.usage.condition for volume, seen in found if seen is not None and seen.usage.is_abnormal
        },
    )


def compute_ephemeral_storage(
    containers: Iterable[ContainerDisk],
    *,
    volumes: Iterable[VolumeStats],
    files: Iterable[FsStats],
    node_fs: FilesystemUsage,
) -> FsStats | None:
    """Return what a pod takes of the node's ephemeral storage; None if nothing is known of it.

    `volumes` are the ephemeral ones; `files` those directly in the pod's log directory, and its hosts file. A container
    counts only if its writable layer is known. Its logs are in a directory of their own, so nothing counts twice.
    """
    parts: list[FsStats | VolumeStats] = [*volumes, *files]
    for container in containers:
        if container.rootfs is not None:
            parts += [part for part in (container.rootfs, container.logs) if part is not None]
    if not parts:
        return None
    return part_stats(
        sum(part.used_bytes or 0 for part in parts),
        sum(part.inodes_used or 0 for part in parts),
        node_fs,
        at=max(part.time for part in parts),
    )


def pods_with_running_containers(
    pods: Mapping[PodUID, PodRuntimeStatus],
) -> Iterator[tuple[PodRuntimeStatus, tuple[ContainerId, ...]]]:
    for pod in pods.values():
        running = tuple(record.id for record in pod.running())
        if running:
            yield pod, running

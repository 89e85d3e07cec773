"""The metrics of `/metrics` that come from the disk: sizes of container logs, and of volumes of claims.

They are read once per scrape, as the summary reads them: measured in the background, and handed out again for a while.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Final

from klet.api.stats import VolumeStats
from klet.errors import KletError
from klet.metrics import MetricRegistry, ObjectName, Reading
from klet.model.pods import PodUID
from klet.model.roles import PodsInRuntime
from klet.model.stats import DiskStats, PodDisk

logger = logging.getLogger(__name__)

_CLAIM: Final = (ObjectName("namespace"), ObjectName("persistentvolumeclaim"))
_VOLUME_NUMBERS: Final[Mapping[str, tuple[str, Callable[[VolumeStats], int | None]]]] = {
    "capacity_bytes": ("Capacity of the volume of a claim.", lambda volume: volume.capacity_bytes),
    "available_bytes": ("Bytes that are free in the volume of a claim.", lambda volume: volume.available_bytes),
    "used_bytes": ("Bytes that are used in the volume of a claim.", lambda volume: volume.used_bytes),
    "inodes": ("Inodes of the volume of a claim.", lambda volume: volume.inodes),
    "inodes_free": ("Inodes that are free in the volume of a claim.", lambda volume: volume.inodes_free),
    "inodes_used": ("Inodes that are used in the volume of a claim.", lambda volume: volume.inodes_used),
    "health_status_abnormal": (
        "Whether the CSI driver finds the volume of a claim abnormal (1) or not (0).",
        lambda volume: None if (found := volume.volume_health_stats) is None else int(found.abnormal),
    ),
}


class DiskUsageMetrics:
    """Keeps what the latest scrape has read."""

    def __init__(self, *, registry: MetricRegistry, disk: DiskStats, seen: PodsInRuntime) -> None:
        self._disk = disk
        self._seen = seen
        self._pods: Mapping[PodUID, PodDisk] = {}
        registry.computed(
            "kubelet_container_log_filesystem_used_bytes",
            "Bytes that the logs of a container use.",
            self._logs,
            (ObjectName("uid"), ObjectName("namespace"), ObjectName("pod"), ObjectName("container")),
        )
        for name, (about, number) in _VOLUME_NUMBERS.items():
            registry.computed(f"kubelet_volume_stats_{name}", about, self._volumes(number), _CLAIM)

    async def refresh(self) -> None:
        """Read it. What cannot be read is left out of this scrape, which goes on."""
        try:
            self._pods = await self._disk.pods()
        except KletError as error:
            logger.warning("No disk usage for /metrics", extra={"error": str(error)})
            self._pods = {}

    def _logs(self) -> Reading:
        found: dict[tuple[str, ...], float] = {}
        for uid, pod in self._seen.pods().items():
            disk = self._pods.get(uid)
            for record in pod.running() if disk is not None else ():
                measured = disk.containers.get(record.id) if disk is not None else None
                if measured is not None and measured.logs is not None and measured.logs.used_bytes is not None:
                    found[uid, pod.namespace, pod.name, record.name] = measured.logs.used_bytes
        return found

    def _volumes(self, number: Callable[[VolumeStats], int | None]) -> Callable[[], Reading]:
        def read() -> Reading:
            # Pods that share a claim show the same volume.
            return {
                (volume.pvc_ref.namespace, volume.pvc_ref.name): value
                for disk in self._pods.values()
                for volume in disk.volumes
                if volume.pvc_ref is not None and (value := number(volume)) is not None
            }

        return read

"""Which volumes the kernel counts by a project quota, and how they get one.

The gate is LocalStorageCapacityIsolationFSQuotaMonitoring.
"""

import logging
from pathlib import Path
from typing import Protocol

from klet.api.pod import Pod
from klet.host.errors import HostError
from klet.volumes.media import DISK
from klet.volumes.volume_directories import DEPTH

logger = logging.getLogger(__name__)


class ProjectQuotas(Protocol):
    """Has the kernel count what directories take, where their filesystem can do that."""

    async def assign(self, path: Path, *, depth: int) -> None:
        """Raise HostError if that fails on a filesystem that has project quotas."""
        ...

    async def release(self, path: Path, *, depth: int) -> None: ...


def wants_quota(pod: Pod, medium: str) -> bool:
    """Return whether a quota would count all that the pod writes.

    Outside of a user namespace the owner of a file may give it to another project, and so hide it.
    """
    return medium == DISK and pod.spec.host_users is False


async def assign_quota(quotas: ProjectQuotas, path: Path, *, pod: Pod, medium: str) -> None:
    if wants_quota(pod, medium):
        await quotas.assign(path, depth=DEPTH)


async def release_quota(quotas: ProjectQuotas, path: Path) -> None:
    """Release what a volume may have; it is removed all the same, as upstream does."""
    try:
        await quotas.release(path, depth=DEPTH)
    except HostError as error:
        logger.warning("Failed to clear quota", extra={"volume": str(path), "error": str(error)})

"""The cgroup driver of this node: the runtime's, or else the configured one.

Two drivers on one machine would undo each other's changes (upstream: `getCgroupDriverFromCRI`).
"""

import logging
from typing import Protocol

from klet.errors import KletError
from klet.host.cgroups.names import CgroupDriver
from klet.wire import cri_v1_pb2 as cri

logger = logging.getLogger(__name__)


class CgroupDriverUnknown(KletError):
    """The runtime reports an unknown cgroup driver."""


class RuntimeConfigs(Protocol):
    """The part of the runtime that reports its configuration."""

    async def runtime_config(self, request: cri.RuntimeConfigRequest) -> cri.RuntimeConfigResponse: ...


def choose_cgroup_driver(answer: cri.RuntimeConfigResponse, *, configured: str) -> str:
    """Return the runtime's driver, which wins over the configuration."""
    if not answer.HasField("linux"):
        return configured
    match answer.linux.cgroup_driver:
        case cri.SYSTEMD:
            chosen = CgroupDriver.SYSTEMD
        case cri.CGROUPFS:
            chosen = CgroupDriver.CGROUPFS
        case unknown:
            raise CgroupDriverUnknown(f"runtime returned an unknown cgroup driver {unknown}")
    if chosen != configured:
        logger.info("The cgroup driver is the runtime's", extra={"driver": str(chosen), "configured": configured})
    return chosen

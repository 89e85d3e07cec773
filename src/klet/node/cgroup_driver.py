"""The cgroup driver of this node: the runtime's, or else the configured one.

Two drivers on one machine would undo each other's changes (upstream: `getCgroupDriverFromCRI`).
"""

import logging
from datetime import timedelta
from typing import Protocol

from klet.aio.clock import Clock
from klet.cri.errors import CriError, Unimplemented
from klet.errors import KletError
from klet.host.cgroups.names import CgroupDriver
from klet.wire import cri_v1_pb2 as cri

logger = logging.getLogger(__name__)

TRIES = 3
PAUSE = timedelta(seconds=2)


class CgroupDriverUnknown(KletError):
    """The runtime does not report its cgroup driver, or an unknown one."""


class RuntimeConfigs(Protocol):
    """The part of the runtime that reports its configuration."""

    async def runtime_config(self, request: cri.RuntimeConfigRequest) -> cri.RuntimeConfigResponse: ...


async def find_cgroup_driver(runtime: RuntimeConfigs, *, configured: str, clock: Clock) -> str:
    """Ask the runtime, up to three times; return the configured driver if the runtime does not have the call."""
    for tries_left in reversed(range(TRIES)):
        try:
            answer = await runtime.runtime_config(cri.RuntimeConfigRequest())
        except Unimplemented:
            logger.info("The runtime does not report its cgroup driver", extra={"configured": configured})
            return configured
        except CriError as error:
            if not tries_left:
                raise CgroupDriverUnknown(f"the runtime does not report its cgroup driver: {error}") from error
            logger.warning("The runtime does not report its cgroup driver", extra={"error": str(error)})
            await clock.sleep(PAUSE)
        else:
            return choose_cgroup_driver(answer, configured=configured)
    raise AssertionError("the last try returns or raises")


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

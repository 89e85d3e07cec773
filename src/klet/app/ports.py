"""Opens the real ports: the runtime, and the cgroups of this machine."""

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.app.settings import AgentSettings
from klet.cri.client import CriClient, connect
from klet.cri.connection import open_connection
from klet.cri.errors import CriError
from klet.host.cgroups.discover import find_hierarchy
from klet.host.cgroups.manager import CgroupManager, HostCgroups, NoUnits, Units
from klet.host.cgroups.names import CgroupDriver, parse_cgroupfs
from klet.model.causes import CauseRecorder
from klet.resources.names import pods_root
from klet.resources.pod_cgroups import NoPodCgroups, PodCgroups
from klet.resources.qos_cgroups import NoQosCgroups, QosCgroups
from klet.runtime.quirks.late_calls import WatchedTransport
from klet.runtime.quirks.lost_tasks import NAMESPACE, ContainerdTasks, LostTaskRemover

logger = logging.getLogger(__name__)

RUNTIME_PATIENCE = timedelta(seconds=30)
RUNTIME_PAUSE = timedelta(milliseconds=200)


@asynccontextmanager
async def connect_patiently(settings: AgentSettings, clock: Clock) -> AsyncIterator[CriClient]:
    """Connect to a runtime that may still be starting."""
    give_up = clock.monotonic() + RUNTIME_PATIENCE.total_seconds()
    async with AsyncExitStack() as opened:
        while True:
            try:
                client = await opened.enter_async_context(
                    connect(
                        runtime_endpoint=settings.runtime_endpoint,
                        image_endpoint=settings.image_endpoint,
                        timeout=settings.request_timeout,
                    )
                )
                break
            except CriError as error:
                if clock.monotonic() >= give_up:
                    raise
                logger.info("Waiting for the runtime", extra={"error": str(error)})
                await clock.sleep(RUNTIME_PAUSE)
        yield client


@asynccontextmanager
async def open_runtime(settings: AgentSettings, recorder: CauseRecorder, clock: Clock) -> AsyncIterator[CriClient]:
    """A client that tells of calls which are not answered in time, and of containers that the runtime has lost."""
    async with (
        connect_patiently(settings, clock) as plain,
        open_connection(settings.runtime_endpoint, metadata=NAMESPACE) as own,
    ):
        repaired = LostTaskRemover(inner=plain.runtime, tasks=ContainerdTasks(connection=own, clock=clock))
        watched = WatchedTransport(inner=repaired, recorder=recorder, clock=clock)
        yield CriClient(runtime=watched, images=plain.images, timeout=settings.request_timeout)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodCgroupPorts:
    """What looks after the cgroups of pods and of their classes."""

    pods: PodCgroups | NoPodCgroups
    qos: QosCgroups | NoQosCgroups


async def open_pod_cgroups(settings: AgentSettings, threads: Threads, clock: Clock) -> PodCgroupPorts:
    """Make the cgroups that all pods live in."""
    if not settings.cgroups_per_qos:
        return PodCgroupPorts(pods=NoPodCgroups(), qos=NoQosCgroups())
    cgroups = build_cgroups(settings, threads, clock)
    # The root is written as a path whatever the driver is, as upstream has it.
    kubepods = pods_root(parse_cgroupfs(settings.cgroup_root))
    qos = QosCgroups(cgroups=cgroups, kubepods=kubepods, rules=settings.qos)
    await qos.start()
    return PodCgroupPorts(pods=PodCgroups(cgroups=cgroups, kubepods=kubepods, rules=settings.pod_cgroups), qos=qos)


def build_cgroups(settings: AgentSettings, threads: Threads, clock: Clock) -> CgroupManager:
    hierarchy = find_hierarchy()
    units: Units = NoUnits()
    if settings.cgroup_driver == CgroupDriver.SYSTEMD:
        # Only a node with this driver pays for the D-Bus library.
        from klet.host.cgroups.systemd import SystemdUnits  # noqa: PLC0415
        from klet.host.systemd_bus import SystemdConnection  # noqa: PLC0415

        units = SystemdUnits(bus=SystemdConnection(), mode=hierarchy.mode)
    return HostCgroups(hierarchy=hierarchy, units=units, threads=threads, clock=clock)

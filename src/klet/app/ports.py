"""Opens the real ports: the runtime, and the cgroups of this machine."""

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.app.settings import AgentSettings
from klet.cri.client import CriClient, connect
from klet.cri.errors import CriError
from klet.host.cgroups.discover import find_hierarchy
from klet.host.cgroups.manager import CgroupManager, HostCgroups, NoUnits, Units
from klet.host.cgroups.names import CgroupDriver

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


def build_cgroups(settings: AgentSettings, threads: Threads, clock: Clock) -> CgroupManager:
    hierarchy = find_hierarchy()
    units: Units = NoUnits()
    if settings.cgroup_driver == CgroupDriver.SYSTEMD:
        # Only a node with this driver pays for the D-Bus library.
        from klet.host.cgroups.systemd import SystemdUnits  # noqa: PLC0415
        from klet.host.systemd_bus import SystemdConnection  # noqa: PLC0415

        units = SystemdUnits(bus=SystemdConnection(), mode=hierarchy.mode)
    return HostCgroups(hierarchy=hierarchy, units=units, threads=threads, clock=clock)

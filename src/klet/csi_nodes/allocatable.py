"""Asks drivers again and again how many volumes the node can have (upstream: the CSINode updater, with the gate
MutableCSINodeAllocatableCount).
"""

import asyncio
import logging
from collections.abc import Mapping
from datetime import timedelta

from klet.aio.broadcast import until_any
from klet.aio.clock import Clock
from klet.api.storage import CSIDriver
from klet.csi.client import CsiConnector
from klet.csi_nodes.drivers import CsiDriverBoard
from klet.csi_nodes.info_manager import NodeInfoManager
from klet.csi_nodes.registration import ask_node_info
from klet.errors import KletError, level_for
from klet.kube.informer import Informer

logger = logging.getLogger(__name__)

_LONGEST = timedelta(days=3650)


def find_period(driver: CSIDriver | None) -> timedelta | None:
    """Return how often a driver is asked; None if it is not."""
    seconds = driver.spec.node_allocatable_update_period_seconds if driver is not None else None
    if seconds is None or seconds <= 0:
        return None
    return timedelta(seconds=seconds) if seconds < _LONGEST.total_seconds() else _LONGEST


class AllocatableRefresher:
    """Has a task for each registered driver whose CSIDriver names a period."""

    def __init__(
        self,
        *,
        drivers: CsiDriverBoard,
        objects: Informer[CSIDriver],
        connector: CsiConnector,
        writer: NodeInfoManager,
        clock: Clock,
    ) -> None:
        self._drivers = drivers
        self._objects = objects
        self._connector = connector
        self._writer = writer
        self._clock = clock
        self._tasks: dict[str, tuple[timedelta, asyncio.Task[None]]] = {}

    async def run(self) -> None:
        with self._drivers.changes() as drivers, self._objects.changes() as objects:
            async with asyncio.TaskGroup() as group:
                while True:
                    again = frozenset(drivers.drain())
                    objects.drain()
                    self._settle(group, self._wanted(), again=again)
                    await until_any(drivers, objects)

    async def refresh(self, name: str) -> None:
        """Ask one driver now; raises KletError. A driver that is not registered has nothing to say."""
        driver = self._drivers.find(name)
        if driver is not None:
            await self._writer.refresh(name, await ask_node_info(self._connector, driver))

    def _wanted(self) -> Mapping[str, timedelta]:
        found = {name: find_period(self._objects.get(name)) for name in self._drivers.names()}
        return {name: period for name, period in found.items() if period is not None}

    def _settle(self, group: asyncio.TaskGroup, wanted: Mapping[str, timedelta], *, again: frozenset[str]) -> None:
        """Start and stop tasks. A period that changed, and a driver that registered again, begin from now."""
        for name, (period, task) in tuple(self._tasks.items()):
            if wanted.get(name) != period or name in again:
                task.cancel()
                del self._tasks[name]
        for name, period in wanted.items():
            if name not in self._tasks:
                task = group.create_task(self._repeat(name, period), name=f"csi-allocatable-{name}")
                self._tasks[name] = period, task

    async def _repeat(self, name: str, period: timedelta) -> None:
        while True:
            await self._clock.sleep(period)
            try:
                await self.refresh(name)
            except KletError as error:
                extra = {"driver": name, "error": str(error)}
                logger.log(level_for(error), "Volume count of the node not refreshed", extra=extra)

"""Follows the drivers in `volumePluginDir`: they are installed, replaced and removed while the agent runs.

The directory is read again every few seconds. Upstream watches it with inotify, and misses what a new file system that
is mounted there holds.
"""

import logging
from datetime import timedelta
from pathlib import Path
from typing import Final

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.errors import KletError
from klet.volumes.flex.driver import DriverRunner, FlexDriver, FoundDriver, find_drivers
from klet.volumes.plugin_board import PluginBoard
from klet.volumes.plugins.base import PluginUser
from klet.volumes.plugins.flex import FlexPlugin, FlexPorts

logger = logging.getLogger(__name__)

PERIOD: Final = timedelta(seconds=10)


class FlexFinder:
    """Puts a plugin for each driver on the board, once the driver has said what it can."""

    def __init__(
        self, *, directory: Path, board: PluginBoard, ports: FlexPorts, runner: DriverRunner, threads: Threads
    ) -> None:
        self._directory = directory
        self._board = board
        self._ports = ports
        self._runner = runner
        self._threads = threads
        self._known: dict[str, FoundDriver] = {}
        self._reported: set[FoundDriver] = set()
        """Drivers of which it was logged that they do not start."""

    async def probe(self) -> frozenset[str]:
        """Read the directory; return the names of drivers that have come, changed or gone."""
        try:
            found = {driver.name: driver for driver in await self._threads.run(find_drivers, self._directory)}
        except KletError as error:
            logger.warning("The drivers of flexVolume cannot be listed", extra={"error": str(error)})
            return frozenset()
        self._reported &= set(found.values())
        gone = self._known.keys() - found.keys()
        for name in gone:
            logger.info("A driver of flexVolume is gone", extra={"volume": name})
            self._board.drop(name)
            del self._known[name]
        changed = [driver for name, driver in found.items() if self._known.get(name) != driver]
        added = [driver.name for driver in changed if await self._add(driver)]
        return frozenset(gone) | frozenset(added)

    async def _add(self, found: FoundDriver) -> bool:
        if self._board.is_fixed(found.name):
            self._known[found.name] = found
            logger.warning("A driver of flexVolume has the name of another plugin", extra={"volume": found.name})
            return False
        driver = FlexDriver(found=found, runner=self._runner)
        try:
            capabilities = await driver.init()
        except KletError as error:
            # It is asked again with the next look: its installation may not be complete.
            if found not in self._reported:
                extra = {"volume": found.name, "error": str(error)}
                logger.warning("A driver of flexVolume does not start", extra=extra)
            self._reported.add(found)
            return False
        self._known[found.name] = found
        self._board.put(FlexPlugin(ports=self._ports, driver=driver, capabilities=capabilities))
        logger.info("A driver of flexVolume was found", extra={"volume": found.name})
        return True


class FlexWatcher:
    """Looks for drivers while the agent runs."""

    def __init__(self, *, finder: FlexFinder, volumes: PluginUser, clock: Clock) -> None:
        self._finder = finder
        self._volumes = volumes
        self._clock = clock

    async def run(self) -> None:
        while True:
            await self._clock.sleep(PERIOD)
            for name in sorted(await self._finder.probe()):
                self._volumes.plugin_changed(name)

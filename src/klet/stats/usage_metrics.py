"""Reads what `/metrics/cadvisor` and `/metrics/resource` show, on each scrape."""

import logging
from collections.abc import Iterator

from klet.aio.clock import Clock
from klet.errors import KletError
from klet.host.machine.cache import FactReader
from klet.host.machine.info import MachineInfo, SystemVersions
from klet.model.stats import StatsReader, StatsSnapshot, SummaryReader
from klet.stats.cadvisor import write_cadvisor
from klet.stats.resource_metrics import write_resource

logger = logging.getLogger(__name__)


class UsageMetrics:
    """The usage of node, pods and containers as text. What cannot be read is a scrape error, never a failed scrape."""

    def __init__(self, *, stats: StatsReader, summaries: SummaryReader, machine: FactReader, clock: Clock) -> None:
        self._stats = stats
        self._summaries = summaries
        self._machine = machine
        self._clock = clock

    async def cadvisor(self) -> Iterator[bytes]:
        """Read all cgroups; the text is written as it is iterated."""
        snapshot = await self._snapshot()
        return write_cadvisor(snapshot, self._info(), self._versions(), now=self._clock.now())

    async def resource(self) -> Iterator[bytes]:
        """Read CPU and memory; the text is written as it is iterated."""
        try:
            return write_resource(await self._summaries.summary(only_cpu_and_memory=True))
        except KletError as error:
            logger.warning("No usage for /metrics/resource", extra={"error": str(error)})
            return write_resource(None)

    async def _snapshot(self) -> StatsSnapshot | None:
        try:
            return await self._stats.snapshot()
        except KletError as error:
            logger.warning("No cgroups for /metrics/cadvisor", extra={"error": str(error)})
            return None

    def _info(self) -> MachineInfo | None:
        try:
            return self._machine.info()
        except KletError as error:
            logger.warning("No machine for /metrics/cadvisor", extra={"error": str(error)})
            return None

    def _versions(self) -> SystemVersions | None:
        try:
            return self._machine.versions()
        except KletError as error:
            logger.warning("No versions for /metrics/cadvisor", extra={"error": str(error)})
            return None

"""Reads all cgroups of the node when somebody asks, and keeps the result for a short time (upstream: cAdvisor).

There is no timer: a node that nobody asks spends nothing. One snapshot serves all that is asked within
`--housekeeping-interval`. The rate of CPU covers the time since the snapshot before. A cgroup younger than that began
with nothing. Where neither is known, at the first request or after a long pause, the counters of CPU alone are read
twice, a short time apart.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Final, Protocol

from msgspec import Struct, structs

from klet.aio.clock import Clock
from klet.model.roles import PodsInRuntime
from klet.model.stats import (
    CgroupIdentity,
    CgroupLevel,
    CgroupReading,
    CgroupRequest,
    CgroupStats,
    CpuCounters,
    FoundCgroup,
    MachineFilesystem,
    ProcessLimits,
    StatsSnapshot,
    SystemCgroups,
)
from klet.stats.identity import find_owners, identify
from klet.stats.rates import LONGEST_SPAN, CpuRates, CpuSample
from klet.stats.sandbox_images import SandboxImages

logger = logging.getLogger(__name__)

SHORT_SPAN: Final = timedelta(milliseconds=250)


class StatsSettings(Struct, frozen=True, kw_only=True):
    """How the node is measured, and what is shown of it."""

    system: SystemCgroups = SystemCgroups()
    """As configured; where the agent's own is not, it is looked up."""
    max_age: timedelta = timedelta(seconds=10)
    """Of a snapshot that is handed out again (`--housekeeping-interval`)."""
    has_pressure: bool = True
    """The gate KubeletPSI."""


class StatsHost(Protocol):
    """What the statistics read from the machine."""

    async def find(self, roots: Sequence[str]) -> tuple[FoundCgroup, ...]:
        """Return the root, and the cgroups at and below these paths; parents come before their children."""
        ...

    async def read(self, wanted: Sequence[CgroupRequest]) -> Mapping[str, CgroupReading]:
        """Read cgroups by path; one that is gone is left out."""
        ...

    async def cpu_usage(self, paths: Sequence[str]) -> Mapping[str, tuple[float, int]]:
        """Return the CPU time of cgroups, with the monotonic time at which each was read."""
        ...

    async def filesystems(self) -> tuple[MachineFilesystem, ...]: ...

    async def process_limits(self) -> ProcessLimits:
        """Return how many processes the machine may have and has. Raises KletError."""
        ...

    async def own_cgroup(self) -> str:
        """Return the cgroup of the agent; empty if it is not known."""
        ...


class StatsCollector:
    """Hands out snapshots of all cgroups."""

    def __init__(
        self,
        *,
        host: StatsHost,
        seen: PodsInRuntime,
        images: SandboxImages,
        settings: StatsSettings,
        pods_root: Callable[[], str],
        clock: Clock,
    ) -> None:
        self._host = host
        self._seen = seen
        self._images = images
        self._configured = settings.system
        self._pods_root = pods_root
        self._max_age = settings.max_age
        self._clock = clock
        self._rates = CpuRates()
        self._reading = asyncio.Lock()
        self._newest: StatsSnapshot | None = None
        self._read_at = 0.0

    async def snapshot(self, *, max_age: timedelta | None = None) -> StatsSnapshot:
        """Return a snapshot no older than that; without an age, than `--housekeeping-interval`."""
        wanted = (self._max_age if max_age is None else max_age).total_seconds()
        asked_at = self._clock.monotonic()
        # Who waits here for a snapshot that others have asked for gets theirs.
        async with self._reading:
            if self._newest is None or (self._read_at < asked_at and self._clock.monotonic() - self._read_at > wanted):
                self._newest = await self._read()
                self._read_at = self._clock.monotonic()
            return self._newest

    async def _read(self) -> StatsSnapshot:
        system = await self._system_cgroups()
        roots = dict.fromkeys(path for path in (system.pods, system.kubelet, system.runtime, system.misc) if path)
        roots.pop("/", None)
        found = await self._host.find(tuple(roots))
        pods = self._seen.pods()
        sandboxes = [sandbox.id for pod in pods.values() for sandbox in pod.sandboxes if sandbox.ready]
        owners = find_owners(pods, sandbox_images=await self._images.read(sandboxes))
        identities = {each.path: identify(each.path, system=system, owners=owners, pods=pods) for each in found}
        await self._measure_twice(found)
        readings = await self._host.read([_request(each, identities[each.path]) for each in found])
        filesystems = await self._host.filesystems()
        self._rates.keep_only(frozenset(identities))
        return StatsSnapshot(
            taken_at=self._clock.now(),
            cgroups=tuple(
                self._build(each, identities[each.path], readings[each.path]) for each in found if each.path in readings
            ),
            system=system,
            filesystems=filesystems,
        )

    async def _system_cgroups(self) -> SystemCgroups:
        own = self._configured.kubelet or await self._host.own_cgroup()
        return structs.replace(self._configured, kubelet=own, pods=self._pods_root())

    async def _measure_twice(self, found: Sequence[FoundCgroup]) -> None:
        """Give a base to cgroups that have none, unless they are so young that their beginning is one."""
        now, wall = self._clock.monotonic(), self._clock.now().timestamp()
        without = {
            each.path: each.inode
            for each in found
            if wall - each.changed > LONGEST_SPAN and not self._rates.has_base(each.path, inode=each.inode, now=now)
        }
        if not without:
            return
        for path, (read_at, usage) in (await self._host.cpu_usage(tuple(without))).items():
            self._rates.put_base(path, CpuSample(read_at, usage, without[path]))
        await self._clock.sleep(SHORT_SPAN)

    def _build(self, found: FoundCgroup, cgroup: CgroupIdentity, reading: CgroupReading) -> CgroupStats:
        return CgroupStats(
            cgroup=cgroup,
            sampled_at=reading.sampled_at,
            created_at=reading.created_at,
            cpu=self._add_rate(found, reading),
            memory=reading.memory,
            io=reading.io,
            network=reading.network,
            processes=reading.processes,
            pressure=reading.pressure,
            oom_events=reading.oom_events,
        )

    def _add_rate(self, found: FoundCgroup, reading: CgroupReading) -> CpuCounters | None:
        if reading.cpu is None:
            return None
        age = (reading.sampled_at - reading.created_at).total_seconds()
        if age <= LONGEST_SPAN and not self._rates.has_base(found.path, inode=found.inode, now=reading.read_at):
            self._rates.put_base(found.path, CpuSample(reading.read_at - age, 0, found.inode))
        rate = self._rates.update(found.path, CpuSample(reading.read_at, reading.cpu.usage, found.inode))
        return structs.replace(reading.cpu, rate=rate)


def _request(found: FoundCgroup, cgroup: CgroupIdentity) -> CgroupRequest:
    # Upstream shows the network of every sandbox: that of a pod on the host's network is the host's.
    has_network = cgroup.level in {CgroupLevel.ROOT, CgroupLevel.SANDBOX}
    return CgroupRequest(found, is_container=cgroup.container_id is not None, has_network=has_network)

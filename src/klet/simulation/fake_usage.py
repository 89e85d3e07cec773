"""What a simulated machine uses: cgroups with the counters that a test gives them; the root is always there."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from msgspec.structs import replace

from klet.aio.clock import Clock
from klet.model.stats import (
    CgroupReading,
    CgroupRequest,
    CpuCounters,
    FoundCgroup,
    InterfaceCounters,
    MachineFilesystem,
    MemoryCounters,
    ProcessLimits,
)

MEMORY = 8 << 30
BOOT = datetime(2025, 1, 1, tzinfo=UTC)
IDLE_NETWORK = InterfaceCounters("eth0", *([0] * 8))


class MemoryUsageHost:
    """Counters by path. Cgroups that a test has not named do not exist, as those of a runtime in a virtual machine."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        root = CgroupReading(
            read_at=0.0,
            sampled_at=BOOT,
            created_at=BOOT,
            cpu=CpuCounters(0),
            memory=MemoryCounters(1 << 30, 1 << 29, limit=MEMORY, swap_limit=0),
        )
        self.readings: dict[str, CgroupReading] = {"/": root}
        self.reads = 0
        """How often all cgroups were read."""

    def put(self, path: str, *, cpu: CpuCounters | None = None, memory: MemoryCounters | None = None) -> None:
        """Make a cgroup, or change what it has used."""
        now = self._clock.now()
        known = self.readings.get(path)
        self.readings[path] = CgroupReading(
            read_at=0.0,
            sampled_at=now,
            created_at=known.created_at if known is not None else now,
            cpu=cpu,
            memory=memory,
        )

    async def find(self, roots: Sequence[str]) -> tuple[FoundCgroup, ...]:
        below = tuple(f"{root}/" for root in roots)
        wanted = (path for path in sorted(self.readings) if path in {"/", *roots} or path.startswith(below))
        return tuple(FoundCgroup(path, 1, self.readings[path].created_at.timestamp()) for path in wanted)

    async def read(self, wanted: Sequence[CgroupRequest]) -> Mapping[str, CgroupReading]:
        self.reads += 1
        now, read_at = self._clock.now(), self._clock.monotonic()
        return {
            each.found.path: replace(
                self.readings[each.found.path],
                sampled_at=now,
                read_at=read_at,
                network=(IDLE_NETWORK,) if each.has_network else None,
            )
            for each in wanted
            if each.found.path in self.readings
        }

    async def cpu_usage(self, paths: Sequence[str]) -> Mapping[str, tuple[float, int]]:
        found = {path: self.readings[path].cpu for path in paths if path in self.readings}
        return {path: (self._clock.monotonic(), cpu.usage) for path, cpu in found.items() if cpu is not None}

    async def filesystems(self) -> tuple[MachineFilesystem, ...]:
        return ()

    async def process_limits(self) -> ProcessLimits:
        return ProcessLimits(maximum=32768, current=100)

    async def own_cgroup(self) -> str:
        return ""

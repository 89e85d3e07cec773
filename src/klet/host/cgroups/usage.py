"""What a cgroup has used, by cAdvisor's formulas for both versions. Pure."""

from collections.abc import Mapping

from msgspec import Struct

NANOSECONDS_PER_MICROSECOND = 1000


class CpuUsage(Struct, frozen=True, kw_only=True):
    """CPU time in nanoseconds, and how often the quota held processes back."""

    total: int
    user: int = 0
    system: int = 0
    periods: int = 0
    throttled_periods: int = 0
    throttled: int = 0


class CgroupMemoryUsage(Struct, frozen=True, kw_only=True):
    """Memory in bytes; the limit is None when there is none."""

    usage: int
    working_set: int
    rss: int
    cache: int
    mapped_file: int
    swap: int
    page_faults: int
    major_page_faults: int
    limit: int | None


class CgroupUsage(Struct, frozen=True, kw_only=True):
    """One reading; a part is None where its controller is missing."""

    cpu: CpuUsage | None = None
    memory: CgroupMemoryUsage | None = None
    pids: int | None = None


def parse_flat(text: str) -> dict[str, int]:
    """Return a flat keyed file: one `name number` a line; other lines are left out."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def parse_limit(text: str) -> int | None:
    """Return a number, or None for `max`."""
    value = text.strip()
    return None if value == "max" else int(value)


def build_cpu_v2(stat: Mapping[str, int]) -> CpuUsage:
    return CpuUsage(
        total=stat.get("usage_usec", 0) * NANOSECONDS_PER_MICROSECOND,
        user=stat.get("user_usec", 0) * NANOSECONDS_PER_MICROSECOND,
        system=stat.get("system_usec", 0) * NANOSECONDS_PER_MICROSECOND,
        periods=stat.get("nr_periods", 0),
        throttled_periods=stat.get("nr_throttled", 0),
        throttled=stat.get("throttled_usec", 0) * NANOSECONDS_PER_MICROSECOND,
    )


def build_cpu_v1(*, usage: int, times: Mapping[str, int], stat: Mapping[str, int], ticks_per_second: int) -> CpuUsage:
    """Build the usage from `cpuacct.usage`, `cpuacct.stat` (in clock ticks) and `cpu.stat` (in nanoseconds)."""
    tick = 1_000_000_000 // ticks_per_second
    return CpuUsage(
        total=usage,
        user=times.get("user", 0) * tick,
        system=times.get("system", 0) * tick,
        periods=stat.get("nr_periods", 0),
        throttled_periods=stat.get("nr_throttled", 0),
        throttled=stat.get("throttled_time", 0),
    )


def build_memory_v2(
    stat: Mapping[str, int], *, current: int | None, swap: int | None, limit: int | None
) -> CgroupMemoryUsage:
    """Build the usage. The root cgroup has no `memory.current`: its usage is the sum of its `memory.stat`."""
    usage = stat.get("anon", 0) + stat.get("file", 0) if current is None else current
    return CgroupMemoryUsage(
        usage=usage,
        working_set=max(0, usage - stat.get("inactive_file", 0)),
        rss=stat.get("anon", 0),
        cache=stat.get("file", 0),
        mapped_file=stat.get("file_mapped", 0),
        swap=swap or 0,
        page_faults=stat.get("pgfault", 0),
        major_page_faults=stat.get("pgmajfault", 0),
        limit=limit,
    )


def build_memory_v1(stat: Mapping[str, int], *, usage: int, limit: int, hierarchical: bool = True) -> CgroupMemoryUsage:
    """Build the usage. Page faults are the cgroup's own, not its children's, as cAdvisor has it."""
    prefix = "total_" if hierarchical else ""
    return CgroupMemoryUsage(
        usage=usage,
        working_set=max(0, usage - stat.get(f"{prefix}inactive_file", 0)),
        rss=stat.get(f"{prefix}rss", 0),
        cache=stat.get(f"{prefix}cache", 0),
        mapped_file=stat.get(f"{prefix}mapped_file", 0),
        swap=stat.get(f"{prefix}swap", 0),
        page_faults=stat.get("pgfault", 0),
        major_page_faults=stat.get("pgmajfault", 0),
        # The kernel writes no "max" here but the greatest multiple of the page size.
        limit=None if limit > 1 << 62 else limit,
    )

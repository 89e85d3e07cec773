"""The values of a cgroup and upstream's integer conversions between CPU units. Pure."""

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

MIN_SHARES = 2
MAX_SHARES = 262144
MIN_QUOTA = 1000
DEFAULT_PERIOD = 100000
MAX_WEIGHT = 10000
UNLIMITED = -1
HUGEPAGES_UNBOUNDED = 1 << 62


class CgroupResources(Struct, frozen=True, kw_only=True):
    """What to write to a cgroup. None, and 0 where the kernel knows no 0, leave a value as it is; -1 is unlimited.

    `memory_min`, `memory_high` and `unified` exist in version 2 only; version 1 leaves them out, as upstream does.
    `hugepages` maps a page size in bytes to a limit in bytes; sizes of the host that are not in it are set to 0.
    """

    cpu_shares: int | None = None
    cpu_quota: int | None = None
    cpu_period: int | None = None
    cpuset: str | None = None
    memory_limit: int | None = None
    memory_min: int | None = None
    memory_high: int | None = None
    pids_limit: int | None = None
    hugepages: Mapping[int, int] = field(default_factory=dict)
    unified: Mapping[str, str] = field(default_factory=dict)


def shares_from_millicpu(millicpu: int) -> int:
    if millicpu == 0:
        return MIN_SHARES
    return min(max(millicpu * 1024 // 1000, MIN_SHARES), MAX_SHARES)


def quota_from_millicpu(millicpu: int, period: int = DEFAULT_PERIOD) -> int:
    if millicpu == 0:
        return 0
    return max(millicpu * period // 1000, MIN_QUOTA)


def millicpu_from_shares(shares: int) -> int:
    if shares < MIN_SHARES:
        return 0
    return -(-shares * 1000 // 1024)


def millicpu_from_quota(quota: int, period: int) -> int:
    if quota == UNLIMITED:
        return 0
    return quota * 1000 // period


def weight_from_shares(shares: int) -> int:
    """Convert by the linear formula, which upstream keeps for the cgroups it writes itself."""
    if shares >= MAX_SHARES:
        return MAX_WEIGHT
    return 1 + (max(shares, MIN_SHARES) - MIN_SHARES) * 9999 // 262142


def shares_from_weight(weight: int) -> int:
    """Convert back, with loss: 1024 shares are weight 39 are 998 shares."""
    return (weight - 1) * 262142 // 9999 + MIN_SHARES


def hugepage_unit(size: int) -> str:
    """Return the name of a page size in the hugetlb files: `2MB`, `1GB`."""
    kilobytes = size >> 10
    if kilobytes >= 1 << 20:
        return f"{kilobytes >> 20}GB"
    if kilobytes >= 1 << 10:
        return f"{kilobytes >> 10}MB"
    return f"{kilobytes}KB"


def hugepage_limits(given: Mapping[int, int], host_sizes: Iterable[int]) -> dict[str, int]:
    """Return a limit for every page size of the host, by unit name: every write of a cgroup carries them all."""
    return {hugepage_unit(size): given.get(size, 0) for size in sorted(host_sizes)}

"""How much CPU is used per second: the rate between two samples of a counter (cAdvisor's instantaneous usage)."""

from typing import Final

from msgspec import Struct

LONGEST_SPAN: Final = 120.0
"""Seconds. cAdvisor keeps samples for two minutes; a rate over more than that is not about the present."""
SHORTEST_SPAN: Final = 0.1
"""Seconds. Over less than that, the ticks in which the kernel counts show."""


class CpuSample(Struct, frozen=True, gc=False):
    """A counter in nanoseconds, when it was read on the monotonic clock, and of which cgroup."""

    read_at: float
    usage: int
    inode: int


class CpuRates:
    """The newest sample of each cgroup, and the rate that it gave."""

    def __init__(self) -> None:
        self._bases: dict[str, CpuSample] = {}
        self._rates: dict[str, int | None] = {}

    def has_base(self, path: str, *, inode: int, now: float) -> bool:
        """Return whether the next sample of a cgroup gives a rate."""
        base = self._bases.get(path)
        return base is not None and base.inode == inode and now - base.read_at <= LONGEST_SPAN

    def put_base(self, path: str, sample: CpuSample) -> None:
        self._bases[path] = sample

    def update(self, path: str, sample: CpuSample) -> int | None:
        """Take the next sample; return nanoseconds of CPU per second since the one before, if that is known."""
        base = self._bases.get(path)
        if base is not None and 0 <= sample.read_at - base.read_at < SHORTEST_SPAN and base.inode == sample.inode:
            return self._rates.get(path)
        self._bases[path] = sample
        self._rates[path] = rate = compute_rate(base, sample)
        return rate

    def keep_only(self, paths: frozenset[str]) -> None:
        """Forget cgroups that are gone."""
        for path in self._bases.keys() - paths:
            del self._bases[path]
            self._rates.pop(path, None)


def compute_rate(base: CpuSample | None, sample: CpuSample) -> int | None:
    """Return the rate; None without a sample before, and when the counter or the time has gone backwards."""
    if base is None or base.inode != sample.inode:
        return None
    span, used = sample.read_at - base.read_at, sample.usage - base.usage
    if span <= 0 or used < 0 or span > LONGEST_SPAN:
        return None
    return int(used / span)

"""Decides whether somebody else has changed a cgroup: what was written is compared with what is read back. Pure.

The kernel keeps some values less exactly than they were given: shares as a coarser weight on version 2, memory as
whole pages, lists of CPUs in its own spelling. That is no change.
"""

from collections.abc import Iterator

from msgspec import Struct

from klet.host.cgroups.resources import CgroupResources, hugepage_unit, shares_from_weight, weight_from_shares
from klet.host.cpulist import format_cpu_list, parse_cpu_list
from klet.host.errors import MalformedFile


class Drift(Struct, frozen=True):
    """One value of a cgroup that is not what was written."""

    name: str
    wanted: int | str
    found: int | str

    def __str__(self) -> str:
        return f"{self.name} {self.found} instead of {self.wanted}"


def find_drift(wanted: CgroupResources, found: CgroupResources, *, version: int, page_size: int) -> Iterator[Drift]:
    """Yield the values that differ. What was not written, or what this machine cannot limit, is not compared."""
    shares = wanted.cpu_shares
    if not (shares and version == 2 and found.cpu_shares == shares_from_weight(weight_from_shares(shares))):
        yield from _differ("CPU shares", shares, found.cpu_shares)
    yield from _differ("memory limit", _whole_pages(wanted.memory_limit, page_size), found.memory_limit)
    yield from _differ("memory.min", _whole_pages(wanted.memory_min, page_size), found.memory_min)
    yield from _differ("process limit", wanted.pids_limit, found.pids_limit)
    yield from _differ("CPUs", _spelled(wanted.cpuset), _spelled(found.cpuset))
    for size, limit in sorted(wanted.hugepages.items()):
        yield from _differ(f"limit of {hugepage_unit(size)} pages", limit, found.hugepages.get(size))


def merge_values(first: CgroupResources, second: CgroupResources | None) -> CgroupResources:
    """Return both; a value of the first one counts."""
    if second is None:
        return first
    return CgroupResources(
        cpu_shares=first.cpu_shares or second.cpu_shares,
        cpu_quota=first.cpu_quota or second.cpu_quota,
        cpu_period=first.cpu_period or second.cpu_period,
        cpuset=first.cpuset or second.cpuset,
        memory_limit=first.memory_limit or second.memory_limit,
        memory_min=first.memory_min or second.memory_min,
        memory_high=first.memory_high or second.memory_high,
        pids_limit=first.pids_limit or second.pids_limit,
        hugepages={**second.hugepages, **first.hugepages},
        unified={**second.unified, **first.unified},
    )


def _differ(name: str, wanted: int | str | None, found: int | str | None) -> Iterator[Drift]:
    if wanted and found is not None and wanted != found:
        yield Drift(name, wanted, found)


def _whole_pages(limit: int | None, page_size: int) -> int | None:
    return limit // page_size * page_size if limit is not None and limit > 0 else None


def _spelled(cpus: str | None) -> str | None:
    """Return a list of CPUs in one spelling."""
    if cpus is None:
        return None
    try:
        return format_cpu_list(parse_cpu_list(cpus))
    except MalformedFile:
        return cpus

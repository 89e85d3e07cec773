"""Picks CPUs so that they are near one another and leave whole units to others (takeByTopologyNUMAPacked). Pure.

Units that have the fewest free CPUs come first, then those with the smallest number.
"""

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

from klet.resources.cpu.topology import CpuPlace, CpuSet, CpuTopology, Units

UnitOf: TypeAlias = Callable[[CpuPlace], int]


class CpuOrder(StrEnum):
    """How single CPUs are picked (CPUSortingStrategy)."""

    PACKED = "packed"
    """Core by core."""
    SPREAD = "spread"
    """By number, so that they are on as many cores as the kernel's numbering allows."""


class TooFewCpus(Struct, frozen=True):
    """There are not as many CPUs as are needed."""

    requested: int
    available: int

    @property
    def message(self) -> str:
        return f"not enough cpus available to satisfy request: requested={self.requested}, available={self.available}"


def take_packed(
    topology: CpuTopology,
    available: CpuSet,
    count: int,
    *,
    order: CpuOrder = CpuOrder.PACKED,
    by_cache: bool = False,
) -> CpuSet | TooFewCpus:
    """Return so many of the available CPUs: whole NUMA nodes and sockets, then caches, cores, and single CPUs."""
    available &= topology.cpus
    if count > len(available):
        return TooFewCpus(count, len(available))
    pick = _Pick(topology, available, max(count, 0), order)
    for step in _steps(pick, order, by_cache=by_cache):
        if not pick.needed:
            break
        step()
    return frozenset(pick.taken)


def _steps(pick: "_Pick", order: CpuOrder, *, by_cache: bool) -> Iterator[Callable[[], None]]:
    levels = (pick.take_nodes, pick.take_sockets)
    yield from levels if pick.topology.is_numa_first else reversed(levels)
    if by_cache:
        yield pick.take_caches
    if order is not CpuOrder.SPREAD:
        yield pick.take_cores
    yield pick.take_single


class _Pick:
    """What is free, what is still needed, and what was taken (cpuAccumulator)."""

    def __init__(self, topology: CpuTopology, free: CpuSet, needed: int, order: CpuOrder) -> None:
        self.topology = topology
        self.needed = needed
        self.taken: set[int] = set()
        self._free = free
        self._order = order

    def take_nodes(self) -> None:
        self._take_whole(self.topology.nodes, self.sorted_nodes())

    def take_sockets(self) -> None:
        self._take_whole(self.topology.sockets, self._sorted_sockets(), size=self.topology.cpus_per_socket)

    def take_cores(self) -> None:
        self._take_whole(self.topology.cores, self._sorted_cores(), size=self.topology.cpus_per_core)

    def take_caches(self) -> None:
        """Take all CPUs of a cache where that many are needed; then the rest, if one cache has room for it."""
        for cache in self._sorted_caches():
            if self.needed >= self.topology.cpus_per_cache:
                self._take_whole(self.topology.caches, self._sorted_caches())
            if self.needed:
                self._take_part_of_cache(cache)
            if not self.needed:
                return

    def take_single(self) -> None:
        for cpu in self._sorted_cpus()[: self.needed]:
            self._take(frozenset({cpu}))

    def sorted_nodes(self) -> list[int]:
        if self.topology.is_numa_first:
            return self._sorted(self.topology.nodes, _node_of, self._free)
        return self._nested(self._sorted_sockets(), self.topology.sockets, self.topology.nodes, _node_of)

    def _sorted_sockets(self) -> list[int]:
        if not self.topology.is_numa_first:
            return self._sorted(self.topology.sockets, _socket_of, self._free)
        return self._nested(self.sorted_nodes(), self.topology.nodes, self.topology.sockets, _socket_of)

    def _sorted_caches(self) -> list[int]:
        return self._nested(self.sorted_nodes(), self.topology.nodes, self.topology.caches, _cache_of)

    def _sorted_cores(self) -> list[int]:
        if self.topology.is_numa_first:
            return self._nested(self._sorted_sockets(), self.topology.sockets, self.topology.cores, _core_of)
        return self._nested(self.sorted_nodes(), self.topology.nodes, self.topology.cores, _core_of)

    def _sorted_cpus(self) -> list[int]:
        if self._order is CpuOrder.SPREAD:
            units, numbers = self.topology.sockets, self._sorted_sockets()
        else:
            units, numbers = self.topology.cores, self._sorted_cores()
        return [cpu for number in numbers for cpu in sorted(units[number] & self._free)]

    def _nested(self, outer: list[int], outer_units: Units, units: Units, unit_of: UnitOf) -> list[int]:
        """Sort units within each of the larger ones. One that is in two of them counts once."""
        found = (unit for number in outer for unit in self._sorted(units, unit_of, outer_units[number] & self._free))
        return list(dict.fromkeys(found))

    def _sorted(self, units: Units, unit_of: UnitOf, cpus: CpuSet) -> list[int]:
        """Return the units of these free CPUs."""
        numbers = {unit_of(self.topology.places[cpu]) for cpu in cpus}
        return sorted(numbers, key=lambda number: (len(units[number] & self._free), number))

    def _take_whole(self, units: Units, numbers: list[int], *, size: int | None = None) -> None:
        """Take units that are free and needed as a whole; smaller ones may follow one that is too large.

        Cores and sockets count as free when they are of one size. Where they differ in that, upstream takes some that
        are not free, with CPUs that another container has.
        """
        free = [each for each in numbers if units[each] <= self._free and size in {None, len(units[each])}]
        for number in free:
            if self.needed >= len(units[number]):
                self._take(units[number])

    def _take_part_of_cache(self, cache: int) -> None:
        per_core = self.topology.cpus_per_core
        free = self.topology.caches[cache] & self._free
        cores = sorted({self.topology.places[cpu].core for cpu in free})[: -(-self.needed // per_core)]
        cpus = sorted(cpu for core in cores for cpu in self.topology.cores[core] & self._free)
        if self.needed % 2 and per_core > 1 and len(cpus) > self.needed:
            # Of the last core one thread is enough.
            cpus.pop()
        if len(cpus) == self.needed:
            self._take(frozenset(cpus))

    def _take(self, cpus: CpuSet) -> None:
        self.taken |= cpus
        self._free -= cpus
        self.needed -= len(cpus)


def sorted_nodes(topology: CpuTopology, free: CpuSet) -> list[int]:
    """Return the NUMA nodes that have free CPUs, in the order in which they are taken."""
    return _Pick(topology, free & topology.cpus, 0, CpuOrder.PACKED).sorted_nodes()


def _core_of(place: CpuPlace) -> int:
    return place.core


def _cache_of(place: CpuPlace) -> int:
    return place.cache


def _node_of(place: CpuPlace) -> int:
    return place.node


def _socket_of(place: CpuPlace) -> int:
    return place.socket

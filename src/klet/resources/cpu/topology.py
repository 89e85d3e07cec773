"""The CPUs of the machine by core, last-level cache, NUMA node and socket (CPUTopology). Pure values."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from klet.errors import KletError
from klet.host.machine.info import Cpu

CpuSet: TypeAlias = frozenset[int]
Units: TypeAlias = Mapping[int, CpuSet]
"""CPUs by the number of the unit that they are in."""


class UnknownTopology(KletError):
    """The kernel does not report the CPUs."""


class CpuPlace(Struct, frozen=True):
    """Where one CPU is. A core has the number of its first CPU, so that it is one in the whole machine."""

    core: int
    cache: int
    node: int
    socket: int


class CpuTopology(Struct, frozen=True, kw_only=True):
    """The online CPUs, and the units that they are in."""

    places: Mapping[int, CpuPlace]
    cores: Units
    caches: Units
    """By last-level cache (uncore cache)."""
    nodes: Units
    sockets: Units

    @property
    def cpus(self) -> CpuSet:
        return frozenset(self.places)

    @property
    def cpus_per_core(self) -> int:
        """One number for all: on a machine with cores of several sizes upstream divides, too."""
        return len(self.places) // len(self.cores)

    @property
    def cpus_per_socket(self) -> int:
        return len(self.places) // len(self.sockets)

    @property
    def cpus_per_cache(self) -> int:
        return len(self.places) // len(self.caches)

    @property
    def is_numa_first(self) -> bool:
        """Whether a NUMA node is as large as a socket or larger, and is taken before it."""
        return len(self.sockets) >= len(self.nodes)

    def in_nodes(self, nodes: Iterable[int]) -> CpuSet:
        return frozenset().union(*(self.nodes.get(node, frozenset()) for node in nodes))

    def nodes_of(self, cpus: Iterable[int]) -> CpuSet:
        return frozenset(self.places[cpu].node for cpu in cpus)

    def sockets_of_nodes(self, nodes: Iterable[int]) -> CpuSet:
        return frozenset(self.places[cpu].socket for cpu in self.in_nodes(nodes))

    def is_in_one_cache(self, cpus: Iterable[int]) -> bool:
        """Return whether CPUs share their last-level cache; no CPUs do."""
        return len({self.places[cpu].cache for cpu in cpus}) <= 1


def build_topology(cpus: Sequence[Cpu]) -> CpuTopology:
    """Return the topology of a machine; raises UnknownTopology if the kernel does not report its CPUs."""
    if not cpus:
        raise UnknownTopology("could not detect number of cpus: the kernel does not report which are online")
    firsts: dict[tuple[int, int, int], int] = {}
    for cpu in sorted(cpus):
        firsts.setdefault((cpu.node, cpu.socket, cpu.core), cpu.number)
    return topology_of(
        {
            cpu.number: CpuPlace(
                core=firsts[cpu.node, cpu.socket, cpu.core],
                # Without a cache that only some cores share, those of a socket belong together.
                cache=cpu.socket if cpu.cache is None else cpu.cache,
                node=cpu.node,
                socket=cpu.socket,
            )
            for cpu in cpus
        }
    )


def topology_of(places: Mapping[int, CpuPlace]) -> CpuTopology:
    """Group CPUs by the units that they are in."""
    cores, caches, nodes, sockets = (defaultdict[int, set[int]](set) for _ in range(4))
    for cpu, place in places.items():
        cores[place.core].add(cpu)
        caches[place.cache].add(cpu)
        nodes[place.node].add(cpu)
        sockets[place.socket].add(cpu)
    return CpuTopology(
        places=places, cores=_units(cores), caches=_units(caches), nodes=_units(nodes), sockets=_units(sockets)
    )


def _units(found: Mapping[int, set[int]]) -> Units:
    return {number: frozenset(cpus) for number, cpus in sorted(found.items())}

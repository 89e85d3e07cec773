"""Picks the same number of CPUs from each of several NUMA nodes (takeByTopologyNUMADistributed). Pure.

Of all ways to distribute them over the fewest nodes that can have them, the one is taken that leaves the free CPUs of
the machine most even. Two mistakes of upstream are left out: with four or more nodes it takes a later combination than
the one that it found best, and it may look without end for a node with a whole core left.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations

from msgspec import Struct

from klet.resources.cpu.packed import CpuOrder, TooFewCpus, sorted_nodes, take_packed
from klet.resources.cpu.topology import CpuSet, CpuTopology


class _Choice(Struct, frozen=True):
    """NUMA nodes to take CPUs from, and those of them that give one group more in turn."""

    nodes: tuple[int, ...]
    remainder: tuple[int, ...]
    balance: float


def take_distributed(
    topology: CpuTopology, available: CpuSet, count: int, *, group: int = 1, order: CpuOrder = CpuOrder.PACKED
) -> CpuSet | TooFewCpus:
    """Return so many of the available CPUs in groups of a size, evenly from as few NUMA nodes as can have them."""
    available &= topology.cpus
    if count % group or not 0 < count <= len(available):
        return take_packed(topology, available, count, order=order)
    nodes = sorted_nodes(topology, available)
    free = {node: len(topology.nodes[node] & available) for node in nodes}
    for size in _sizes(topology, len(nodes), count, group):
        choice = _find_best(free, size, count, group)
        if choice is not None:
            return _take(topology, available, choice, count, group, order)
    return take_packed(topology, available, count, order=order)


def _sizes(topology: CpuTopology, nodes: int, count: int, group: int) -> range:
    """Return how many NUMA nodes can be needed (rangeNUMANodesNeededToSatisfy)."""
    groups_per_node = math.ceil(math.ceil(len(topology.cpus) / group) / len(topology.nodes))
    needed = math.ceil(count / group)
    return range(math.ceil(needed / groups_per_node), min(needed, nodes) + 1)


def _find_best(free: Mapping[int, int], size: int, count: int, group: int) -> _Choice | None:
    """Return the best of the combinations of so many nodes; of equally good ones the first."""
    best: _Choice | None = None
    seen: set[tuple[int, ...]] = set()
    for nodes in combinations(free, size):
        # Nodes with the same numbers of free CPUs are equally good, so only the first of them is looked at.
        shape = tuple(sorted(free[node] for node in nodes))
        if shape in seen:
            continue
        seen.add(shape)
        choice = _weigh(free, nodes, count, group)
        if choice is not None and (best is None or choice.balance < best.balance):
            best = choice
        if best is not None and best.balance == 0:
            break
    return best


def _weigh(free: Mapping[int, int], nodes: tuple[int, ...], count: int, group: int) -> _Choice | None:
    """Return how even a combination of nodes leaves the machine; None if it cannot have so many CPUs."""
    share = _share(count, len(nodes), group)
    groups = sum(free[node] // group for node in nodes)
    if groups * group < count or any(free[node] < share for node in nodes):
        return None
    left = {node: has - share if node in nodes else has for node, has in free.items()}
    remainder = count - share * len(nodes)
    if not remainder:
        return _Choice(nodes, (), _deviation(left.values()))
    best: _Choice | None = None
    for subset in _subsets([node for node in nodes if left[node] >= group]):
        after = _hand_out(left, subset, remainder, group)
        if after is not None:
            balance = _deviation(after.values())
            if best is None or balance < best.balance:
                best = _Choice(nodes, subset, balance)
    return best


def _subsets(nodes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    for size in range(len(nodes), 0, -1):
        yield from combinations(nodes, size)


def _hand_out(left: Mapping[int, int], subset: Sequence[int], remainder: int, group: int) -> dict[int, int] | None:
    """Return what is left of each node when the subset gives the remainder in turn; None if it has too little."""
    if sum(left[node] // group for node in subset) * group < remainder:
        return None
    after = dict(left)
    for node in _turns(after, subset, remainder, group):
        after[node] -= group
    return after


def _turns(left: Mapping[int, int], subset: Sequence[int], remainder: int, group: int) -> Iterator[int]:
    """Return the nodes that give a group, one after the other. What they have left changes meanwhile."""
    while remainder > 0:
        for node in subset:
            if remainder > 0 and left[node] >= group:
                yield node
                remainder -= group


def _take(topology: CpuTopology, available: CpuSet, choice: _Choice, count: int, group: int, order: CpuOrder) -> CpuSet:
    share = _share(count, len(choice.nodes), group)
    free = {node: topology.nodes[node] & available for node in choice.nodes}
    left = {node: len(cpus) for node, cpus in free.items()}
    taken: CpuSet = frozenset()

    def take(node: int, many: int) -> CpuSet:
        found = take_packed(topology, free[node], many, order=order)
        # There are enough, as was just counted.
        cpus = found if isinstance(found, frozenset) else frozenset()
        free[node] -= cpus
        left[node] -= many
        return cpus

    for node in choice.nodes:
        taken |= take(node, share)
    for node in _turns(left, choice.remainder, count - share * len(choice.nodes), group):
        taken |= take(node, group)
    return taken


def _share(count: int, nodes: int, group: int) -> int:
    """Return how many CPUs each node gives at least."""
    return count // nodes // group * group


def _deviation(values: Collection[int]) -> float:
    """Return the standard deviation, rounded as upstream rounds it: what is nearly as even counts as even."""
    mean = _rounded(sum(values) / len(values))
    return _rounded(math.sqrt(sum((value - mean) ** 2 for value in values) / len(values)))


def _rounded(value: float) -> float:
    return math.floor(value * 1000 + 0.5) / 1000

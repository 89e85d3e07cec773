"""Computes the NUMA nodes that could give a container its CPUs (generateCPUTopologyHints). Pure."""

from itertools import combinations

from klet.resources.cpu.topology import CpuSet, CpuTopology
from klet.resources.topology.hints import Hint, mask_of


def compute_hints(
    topology: CpuTopology, available: CpuSet, reusable: CpuSet, count: int, *, by_socket: bool = False
) -> tuple[Hint, ...]:
    """Return every set of NUMA nodes with so many CPUs, the smallest first; those of the smallest size are preferred.

    Reusable CPUs are those that the pod has already: nodes without them do not help. `by_socket` also prefers sets that
    span no more sockets than needed.
    """
    nodes = sorted(topology.nodes)
    free = {node: len(topology.nodes[node] & available) for node in nodes}
    required = topology.nodes_of(reusable)
    # How many nodes a set needs at least, if all their CPUs were free.
    smallest = next((size for size in range(1, len(nodes)) if _most(topology, size) >= count), len(nodes))
    hints: list[Hint] = []
    for size in range(1, len(nodes) + 1):
        for chosen in combinations(nodes, size):
            if required.issubset(chosen) and len(reusable) + sum(free[node] for node in chosen) >= count:
                is_aligned = by_socket and _is_socket_aligned(topology, chosen, smallest)
                hints.append(Hint(mask_of(chosen), preferred=size == smallest or is_aligned))
    return tuple(hints)


def _most(topology: CpuTopology, size: int) -> int:
    """Return how many CPUs so many nodes have at most."""
    return sum(sorted((len(cpus) for cpus in topology.nodes.values()), reverse=True)[:size])


def _is_socket_aligned(topology: CpuTopology, nodes: tuple[int, ...], smallest: int) -> bool:
    per_socket = len(topology.nodes) // len(topology.sockets)
    return per_socket > 0 and len(topology.sockets_of_nodes(nodes)) == -(-smallest // per_socket)

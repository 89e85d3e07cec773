"""How much memory of each NUMA node is kept for the system (reservedMemory), checked against the machine. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

from klet.api.pod_resources import HUGEPAGES_PREFIX
from klet.api.quantity import ZERO, Quantity
from klet.api.validation.rendering import go_quote
from klet.config.errors import ConfigError
from klet.config.sections import MemoryReservation
from klet.host.machine.info import NumaNode
from klet.model.pod_resources import MEMORY
from klet.resources.memory.tables import ReservedMemory, build_tables

_ADVICE: Final = "see reservedMemory (--reserved-memory)"


def compute_reserved_memory(
    nodes: Sequence[NumaNode], node_allocatable: Mapping[str, Quantity], reservations: Sequence[MemoryReservation]
) -> ReservedMemory:
    """Return what is reserved on each node; raises ConfigError if it is not just what the whole node reserves.

    `node_allocatable` is what the node keeps from pods: for the system, for Kubernetes, and to evict early enough.
    """
    total = _sum_reserved(nodes, reservations)
    for name in sorted({*total, *filter(_is_memory, node_allocatable)}):
        reserved, wanted = ZERO + total.get(name, ZERO), ZERO + node_allocatable.get(name, ZERO)
        if reserved != wanted:
            raise ConfigError(
                f"the total amount {go_quote(str(reserved))} of type {go_quote(name)} is not equal to the value "
                f"{go_quote(str(wanted))} determined by Node Allocatable feature: {_ADVICE}, kubeReserved, "
                "systemReserved and evictionHard"
            )
    by_node: dict[int, dict[str, int]] = {node.number: {} for node in nodes}
    for reservation in reservations:
        for name, amount in reservation.limits.items():
            if amount != Quantity.of(amount.value()):
                raise ConfigError(f"could not covert a variable of type Quantity to int64: {name} {amount}, {_ADVICE}")
            by_node[reservation.numa_node][name] = amount.value()
    if not sum(each.get(MEMORY, 0) for each in by_node.values()):
        raise ConfigError(f"[memorymanager] you should specify the system reserved memory: {_ADVICE}")
    _check_sizes(nodes, by_node)
    return by_node


def _sum_reserved(nodes: Sequence[NumaNode], reservations: Sequence[MemoryReservation]) -> dict[str, Quantity]:
    known = {node.number for node in nodes}
    total: dict[str, Quantity] = {}
    for reservation in reservations:
        if reservation.numa_node not in known:
            raise ConfigError(
                f"the reserved memory configuration references a NUMA node {reservation.numa_node} that does not exist "
                f"on this machine: {_ADVICE}"
            )
        for name, amount in reservation.limits.items():
            # The format is that of the reservation which comes last, as upstream adds them.
            total[name] = amount + total[name] if name in total else amount
    return total


def _check_sizes(nodes: Sequence[NumaNode], reserved: ReservedMemory) -> None:
    """Refuse a reservation that is larger than the node: upstream would count with what is below zero."""
    for number, node in build_tables(nodes, reserved).items():
        for name, table in (node.memory_map or {}).items():
            if table.allocatable < 0:
                raise ConfigError(
                    f"NUMA node {number} has {table.total} bytes of {name}, and of what huge pages leave "
                    f"{table.system_reserved} are reserved: {_ADVICE}"
                )
        if unknown := sorted(set(reserved.get(number, {})) - set(node.memory_map or {})):
            raise ConfigError(f"NUMA node {number} has no {unknown[0]}, of which some is reserved: {_ADVICE}")


def _is_memory(resource: str) -> bool:
    return resource == MEMORY or resource.startswith(HUGEPAGES_PREFIX)

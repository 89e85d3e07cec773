"""What each NUMA node has of memory and huge pages, and who was given how much of it (machine state). Pure.

A container's memory comes from one NUMA node, or from a group of them; a node is used in one of the two ways at a time.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from klet.api.pod_resources import HUGEPAGES_PREFIX
from klet.api.quantity import Format, Quantity
from klet.checkpoint.upstream import MemoryBlock, MemoryTable, NumaNodeState
from klet.host.machine.info import NumaNode
from klet.model.pod_resources import MEMORY

NodeTables: TypeAlias = Mapping[int, NumaNodeState]
"""By NUMA node."""
Blocks: TypeAlias = tuple[MemoryBlock, ...]
Entries: TypeAlias = Mapping[str, Mapping[str, Blocks]]
"""By the UID of the pod and the name of the container."""
ReservedMemory: TypeAlias = Mapping[int, Mapping[str, int]]
"""Bytes by NUMA node and resource."""

_NOTHING: Final = MemoryTable(total=0, system_reserved=0, allocatable=0, reserved=0, free=0)


class MemoryState(Struct, frozen=True, kw_only=True):
    """All that the memory manager keeps."""

    nodes: NodeTables
    entries: Entries = {}

    def blocks_of(self, uid: str, container: str) -> Blocks | None:
        """Return the blocks of a container; None if it was given nothing."""
        return self.entries.get(uid, {}).get(container)


def build_tables(nodes: Iterable[NumaNode], reserved: ReservedMemory) -> dict[int, NumaNodeState]:
    """Return the state of a machine on which nothing is given to anyone (getDefaultMachineState)."""
    return {node.number: _build_node(node, reserved.get(node.number, {})) for node in nodes}


def hugepage_resource(size: int) -> str:
    """Return the name of the resource for huge pages of a size in bytes."""
    return f"{HUGEPAGES_PREFIX}{Quantity.of(size, Format.BINARY_SI)}"


def table_of(node: NumaNodeState, resource: str) -> MemoryTable:
    """Return what a node has of a resource; one that it does not have is none."""
    return (node.memory_map or {}).get(resource, _NOTHING)


def cells_of(node: NumaNodeState) -> tuple[int, ...]:
    """Return the group of NUMA nodes that a node belongs to; alone it is a group of one."""
    return node.cells or ()


def is_together(node: NumaNodeState, group: Sequence[int]) -> bool:
    """Return whether a node is in this group of nodes."""
    return sorted(cells_of(node)) == sorted(group)


def take(tables: NodeTables, block: MemoryBlock, *, size: int) -> dict[int, NumaNodeState]:
    """Return the tables with a block taken: the nodes are emptied in their order. `size` may be less than the block's.

    Part of a block may be memory that an init container leaves.
    """
    taken = dict(tables)
    group = block.numa_affinity or ()
    for number in group:
        node = taken[number]
        table = table_of(node, block.type)
        amount = min(table.free, size)
        size -= amount
        taken[number] = NumaNodeState(
            number_of_assignments=node.number_of_assignments + 1,
            memory_map=_with(node, block.type, table, amount),
            cells=group,
        )
    return taken


def put_back(tables: NodeTables, block: MemoryBlock) -> dict[int, NumaNodeState]:
    """Return the tables without a block; a node of which nothing is taken any more is in no group."""
    left = dict(tables)
    size = block.size
    for number in block.numa_affinity or ():
        node = left[number]
        table = table_of(node, block.type)
        amount = min(table.reserved, size)
        size -= amount
        count = node.number_of_assignments - 1
        left[number] = NumaNodeState(
            number_of_assignments=count,
            memory_map=_with(node, block.type, table, -amount),
            cells=node.cells if count else (number,),
        )
    return left


def remove_container(state: MemoryState, uid: str, container: str) -> MemoryState:
    """Return the state without what a container was given."""
    blocks = state.blocks_of(uid, container)
    if blocks is None:
        return state
    entries = with_blocks(state.entries, uid, container, None)
    if find_mixed_nodes(block for _, _, block in list_blocks(state.entries)):
        return MemoryState(nodes=_spread(state.nodes, entries), entries=entries)
    nodes = state.nodes
    for block in blocks:
        nodes = put_back(nodes, block)
    return MemoryState(nodes=nodes, entries=entries)


def list_blocks(entries: Entries) -> Iterator[tuple[str, str, MemoryBlock]]:
    """Return every block with the pod and the container that has it, in their order."""
    for uid, containers in sorted(entries.items()):
        for container, blocks in sorted(containers.items()):
            yield from ((uid, container, block) for block in blocks)


def find_mixed_nodes(blocks: Iterable[MemoryBlock]) -> frozenset[int]:
    """Return the nodes that are used in several ways, and all that are in a group with one.

    A node may be used alone although it is in a group, when the topology manager narrows an affinity down.
    """
    groups: list[frozenset[int]] = []
    mixed: frozenset[int] = frozenset()
    for nodes in {frozenset(block.numa_affinity or ()) for block in blocks}:
        touched = [group for group in groups if group & nodes]
        joined = nodes.union(*touched)
        groups = [group for group in groups if not group & nodes] + [joined]
        if touched:
            mixed |= joined
    return frozenset(node for group in groups if group & mixed for node in group)


def with_blocks(entries: Entries, uid: str, container: str, blocks: Blocks | None) -> Entries:
    """Return the entries with other blocks of a container, or with none."""
    own = {name: each for name, each in entries.get(uid, {}).items() if name != container}
    if blocks is not None:
        own[container] = blocks
    others = {each: containers for each, containers in entries.items() if each != uid}
    return {**others, uid: own} if own else others


def _spread(tables: NodeTables, entries: Entries) -> dict[int, NumaNodeState]:
    """Return the tables with all blocks taken again, those of the fewest nodes first.

    Where ways of use are mixed, taking one block back would take the memory of another one, and leave its group wrong:
    upstream's kubelet does so, and then refuses its own state at the next start.
    """
    spread = {
        number: NumaNodeState(
            number_of_assignments=0,
            memory_map={
                name: replace(table, free=table.allocatable, reserved=0)
                for name, table in (node.memory_map or {}).items()
            },
            cells=(number,),
        )
        for number, node in tables.items()
    }
    for _, _, block in sorted(list_blocks(entries), key=lambda each: len(each[2].numa_affinity or ())):
        spread = take(spread, block, size=block.size)
    return spread


def _build_node(node: NumaNode, reserved: Mapping[str, int]) -> NumaNodeState:
    pages = {hugepage_resource(size): size * count for size, count in sorted(node.hugepages.items())}
    tables = {name: _build_table(total, reserved.get(name, 0)) for name, total in pages.items()}
    # What is made into huge pages is no longer there for anything else.
    memory = _build_table(node.memory, reserved.get(MEMORY, 0), without=sum(pages.values()))
    return NumaNodeState(number_of_assignments=0, memory_map={**tables, MEMORY: memory}, cells=(node.number,))


def _build_table(total: int, reserved: int, *, without: int = 0) -> MemoryTable:
    allocatable = total - reserved - without
    return MemoryTable(total=total, system_reserved=reserved, allocatable=allocatable, reserved=0, free=allocatable)


def _with(node: NumaNodeState, resource: str, table: MemoryTable, amount: int) -> dict[str, MemoryTable]:
    tables = dict(node.memory_map or {})
    if resource in tables:
        tables[resource] = replace(table, free=table.free - amount, reserved=table.reserved + amount)
    return tables

"""Whether what a previous run of the agent left still describes this machine (validateState). Pure."""

from typing import Final

from klet.checkpoint.upstream import MemoryBlock, MemoryTable, NumaNodeState
from klet.resources.memory.tables import (
    MemoryState,
    NodeTables,
    cells_of,
    find_mixed_nodes,
    is_together,
    list_blocks,
    table_of,
    take,
)

DIFFERENT: Final = "[memorymanager] the expected machine state is different from the real one"


def find_state_problem(state: MemoryState, empty: NodeTables) -> str | None:
    """Return why the state cannot be used on this machine, whose tables are `empty` while nobody has anything.

    Memory that was added or taken out and other reservations are such reasons.
    """
    if not state.nodes:
        return (
            "[memorymanager] machine state can not be empty when it has memory assignments" if state.entries else None
        )
    expected: NodeTables = empty
    for uid, container, block in list_blocks(state.entries):
        for number in block.numa_affinity or ():
            node = expected.get(number)
            where = f"[memorymanager] (pod: {uid}, container: {container}) the memory assignment uses"
            if node is None:
                return f"{where} the NUMA that does not exist"
            if block.type not in (node.memory_map or {}):
                return f"{where} memory resource that does not exist"
        expected = take(expected, block, size=block.size)
    blocks = [block for _, _, block in list_blocks(state.entries)]
    return None if _are_equal(state.nodes, expected, blocks) else DIFFERENT


def _are_equal(found: NodeTables, expected: NodeTables, blocks: list[MemoryBlock]) -> bool:
    if found.keys() != expected.keys() or not all(_is_same(node, expected[each]) for each, node in found.items()):
        return False
    # How memory is spread over these depends on the order of the allocations, which nobody remembers.
    mixed = find_mixed_nodes(blocks)
    return all(
        _is_among(node, number, blocks) if number in mixed else _is_group_same(node, number, found, expected)
        for number, node in found.items()
    ) and _is_sum_same(mixed, found, expected, blocks)


def _is_same(node: NumaNodeState, other: NumaNodeState) -> bool:
    """Compare one node, without its group and without how much of it is free."""
    own, others = node.memory_map or {}, other.memory_map or {}
    return (
        node.number_of_assignments == other.number_of_assignments
        and own.keys() == others.keys()
        and all(_sizes(table) == _sizes(others[name]) for name, table in own.items())
    )


def _sizes(table: MemoryTable) -> tuple[int, int, int]:
    return table.total, table.system_reserved, table.allocatable


def _is_group_same(node: NumaNodeState, number: int, found: NodeTables, expected: NodeTables) -> bool:
    """Compare the group of a node, and what is free in all of it: that does not depend on the order of allocations."""
    group = cells_of(node)
    return is_together(expected[number], group) and all(
        _sum_up(found, group, resource) == _sum_up(expected, group, resource) for resource in node.memory_map or {}
    )


def _sum_up(tables: NodeTables, group: tuple[int, ...], resource: str) -> tuple[int, int]:
    own = [table_of(tables[number], resource) for number in group]
    return sum(table.free for table in own), sum(table.reserved for table in own)


def _is_among(node: NumaNodeState, number: int, blocks: list[MemoryBlock]) -> bool:
    groups = [block.numa_affinity or () for block in blocks]
    return any(is_together(node, group) for group in groups if number in group)


def _is_sum_same(mixed: frozenset[int], found: NodeTables, expected: NodeTables, blocks: list[MemoryBlock]) -> bool:
    """Compare what mixed nodes have given out with the blocks."""
    resources = {resource for number in mixed for resource in expected[number].memory_map or {}}
    group = tuple(mixed)
    for resource in resources:
        free, reserved = _sum_up(found, group, resource)
        allocatable = sum(table_of(expected[number], resource).allocatable for number in group)
        given = sum(block.size for block in blocks if block.type == resource and mixed & {*(block.numa_affinity or ())})
        if (free, reserved) != (allocatable - given, given):
            return False
    return True

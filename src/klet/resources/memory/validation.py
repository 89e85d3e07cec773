"""Whether what a previous run of the agent left still describes this machine (validateState). Pure."""

from collections.abc import Iterator
from typing import Final

from klet.checkpoint.upstream import MemoryTable, NumaNodeState
from klet.resources.memory.tables import Blocks, Entries, MemoryState, NodeTables, cells_of, is_together, table_of, take

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
    for uid, container, blocks in _list_entries(state.entries):
        for block in blocks:
            for number in block.numa_affinity or ():
                node = expected.get(number)
                where = f"[memorymanager] (pod: {uid}, container: {container}) the memory assignment uses"
                if node is None:
                    return f"{where} the NUMA that does not exist"
                if block.type not in (node.memory_map or {}):
                    return f"{where} memory resource that does not exist"
            expected = take(expected, block, size=block.size)
    return None if _are_equal(state.nodes, expected) else DIFFERENT


def _list_entries(entries: Entries) -> Iterator[tuple[str, str, Blocks]]:
    for uid, containers in sorted(entries.items()):
        for container, blocks in sorted(containers.items()):
            yield uid, container, blocks


def _are_equal(found: NodeTables, expected: NodeTables) -> bool:
    return found.keys() == expected.keys() and all(
        _is_same(node, expected[number]) and _is_group_same(node, found, expected) for number, node in found.items()
    )


def _is_same(node: NumaNodeState, other: NumaNodeState) -> bool:
    """Compare one node, without how much of it is free: that depends on the order in which a group was filled."""
    own, others = node.memory_map or {}, other.memory_map or {}
    return (
        node.number_of_assignments == other.number_of_assignments
        and is_together(node, cells_of(other))
        and own.keys() == others.keys()
        and all(_sizes(table) == _sizes(others[name]) for name, table in own.items())
    )


def _sizes(table: MemoryTable) -> tuple[int, int, int]:
    return table.total, table.system_reserved, table.allocatable


def _is_group_same(node: NumaNodeState, found: NodeTables, expected: NodeTables) -> bool:
    group = cells_of(node)
    # A group may name nodes that are not there: that is no state of this machine.
    return all(each in found for each in group) and all(
        _sum_group(found, group, resource) == _sum_group(expected, group, resource)
        for resource in node.memory_map or {}
    )


def _sum_group(tables: NodeTables, group: tuple[int, ...], resource: str) -> tuple[int, int]:
    own = [table_of(tables[number], resource) for number in group]
    return sum(table.free for table in own), sum(table.reserved for table in own)

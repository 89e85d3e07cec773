"""Which NUMA nodes have the memory that is asked for (calculateHints, regenerateHints). Pure."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from klet.checkpoint.upstream import NumaNodeState
from klet.resources.memory.requests import Requests
from klet.resources.memory.tables import Blocks, NodeTables, cells_of, is_together, table_of
from klet.resources.topology.hints import Hint, Hints, NumaMask, mask_of

Reusable = Mapping[NumaMask, Requests]
"""What init containers of the pod leave, by the nodes that it is on."""


def compute_hints(tables: NodeTables, wanted: Requests, reusable: Reusable) -> Hints:
    """Return the same hints for each resource that is asked for; none at all if no nodes have enough."""
    fitting = list(_fitting_groups(tables, wanted, reusable))
    smallest = min((len(group) for group in _groups(tables) if _could_hold(tables, group, wanted)), default=len(tables))
    hints = tuple(Hint(mask_of(group), preferred=len(group) == smallest) for group in fitting)
    return dict.fromkeys(wanted, hints) if hints else {}


def regenerate_hints(blocks: Blocks, wanted: Requests) -> Hints:
    """Return hints for what a container has already; none if that is not what it asks for."""
    if len(blocks) != len(wanted) or any(wanted.get(block.type) != block.size for block in blocks):
        return {}
    hints: dict[str, tuple[Hint, ...]] = dict.fromkeys(wanted, ())
    for block in blocks:
        hints[block.type] += (Hint(mask_of(block.numa_affinity or ()), preferred=True),)
    return hints


def can_have(tables: NodeTables, group: Sequence[int], wanted: Requests) -> bool:
    """Return whether nodes have so much left."""
    return all(sum(table_of(tables[node], name).free for node in group) >= size for name, size in wanted.items())


def breaks_groups(tables: NodeTables, group: Sequence[int]) -> bool:
    """Return whether using these nodes together would mix groups: some are used alone, or with other nodes."""
    if len(group) == 1:
        return False
    used = (tables[node] for node in group if tables[node].number_of_assignments)
    return any(_is_elsewhere(node, group) for node in used)


def _fitting_groups(tables: NodeTables, wanted: Requests, reusable: Reusable) -> Iterator[tuple[int, ...]]:
    for group in _groups(tables):
        if len(group) == 1 and len(cells_of(tables[group[0]])) > 1:
            continue
        if not _could_hold(tables, group, wanted) or breaks_groups(tables, group):
            continue
        left = reusable.get(mask_of(group), {})
        if can_have(tables, group, {name: size - left.get(name, 0) for name, size in wanted.items()}):
            yield group


def _groups(tables: NodeTables) -> Iterator[tuple[int, ...]]:
    """Return every group of nodes, the small ones first."""
    nodes = sorted(tables)
    for size in range(1, len(nodes) + 1):
        yield from combinations(nodes, size)


def _could_hold(tables: NodeTables, group: Sequence[int], wanted: Requests) -> bool:
    """Return whether nodes had enough if nothing were taken of them."""
    return all(sum(table_of(tables[node], name).allocatable for node in group) >= size for name, size in wanted.items())


def _is_elsewhere(node: NumaNodeState, group: Sequence[int]) -> bool:
    return len(cells_of(node)) == 1 or not is_together(node, group)

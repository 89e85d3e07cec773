"""Gives containers memory of NUMA nodes (static policy, Allocate). Pure."""

from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from klet.api.container import Container
from klet.api.pod import Pod
from klet.api.pod_resources import is_sidecar
from klet.checkpoint.upstream import MemoryBlock
from klet.model.pod_resources import MEMORY
from klet.model.pods import uid_of
from klet.resources.memory.hints import Reusable, breaks_groups, can_have, compute_hints
from klet.resources.memory.requests import Requests
from klet.resources.memory.tables import Blocks, Entries, MemoryState, NodeTables, take, with_blocks
from klet.resources.topology.hints import AllocationFailure, Hint, NumaMask, mask_of, nodes_of


class GivenMemory(Struct, frozen=True, kw_only=True):
    """What is true once a container has been given its memory."""

    state: MemoryState
    blocks: Blocks
    is_new: bool


MemoryAnswer: TypeAlias = GivenMemory | AllocationFailure


def allocate_memory(
    state: MemoryState, pod: Pod, container: Container, *, wanted: Requests, affinity: Hint
) -> MemoryAnswer:
    """Give a container its memory near the nodes of the affinity. What it has already it keeps."""
    uid = uid_of(pod)
    kept = state.blocks_of(uid, container.name)
    if kept is not None:
        return GivenMemory(state=state, blocks=kept, is_new=False)
    left = find_left_memory(state, pod, container.name)
    chosen = choose_nodes(state.nodes, wanted, left, affinity)
    if isinstance(chosen, AllocationFailure):
        return chosen
    group = tuple(nodes_of(chosen))
    blocks = tuple(MemoryBlock(numa_affinity=group, type=name, size=size) for name, size in wanted.items())
    nodes: NodeTables = state.nodes
    entries = with_blocks(state.entries, uid, container.name, blocks)
    for block in blocks:
        reused = min(left.get(chosen, {}).get(block.type, 0), block.size)
        nodes = take(nodes, block, size=block.size - reused)
        entries = _shrink_init_blocks(entries, pod, container.name, replace(block, size=reused))
    return GivenMemory(state=MemoryState(nodes=nodes, entries=entries), blocks=blocks, is_new=True)


def find_left_memory(state: MemoryState, pod: Pod, container: str) -> Reusable:
    """Return the memory of the plain init containers before a container: it starts when they have ended."""
    left: dict[NumaMask, dict[str, int]] = {}
    for name in earlier_init_containers(pod, container):
        for block in state.blocks_of(uid_of(pod), name) or ():
            own = left.setdefault(mask_of(block.numa_affinity or ()), {})
            own[block.type] = own.get(block.type, 0) + block.size
    return left


def choose_nodes(
    tables: NodeTables, wanted: Requests, reusable: Reusable, affinity: Hint
) -> NumaMask | AllocationFailure:
    """Return the nodes of the affinity if they have enough, or else the best ones that include them."""
    hints = compute_hints(tables, wanted, reusable).get(MEMORY) or ()
    is_preferred = affinity.preferred
    mask = affinity.mask
    if mask is None:
        if not hints:
            return AllocationFailure(
                "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
            )
        best = _find_best(hints)
        if is_preferred and not best.preferred:
            return AllocationFailure("[memorymanager] failed to find the default preferred hint")
        mask, is_preferred = best.mask, best.preferred
    assert mask is not None
    if not can_have(tables, tuple(nodes_of(mask)), wanted):
        wider = tuple(hint for hint in hints if hint.mask is not None and hint.mask & mask == mask)
        if not wider:
            return AllocationFailure("[memorymanager] failed to find NUMA nodes to extend the current topology hint")
        best = _find_best(wider)
        if is_preferred and not best.preferred:
            return AllocationFailure("[memorymanager] failed to find the extended preferred hint")
        assert best.mask is not None
        mask = best.mask
    if breaks_groups(tables, tuple(nodes_of(mask))):
        return AllocationFailure("[memorymanager] preferred hint violates NUMA node allocation")
    return mask


def earlier_init_containers(pod: Pod, container: str) -> tuple[str, ...]:
    """Return the plain init containers that have ended when a container of the pod starts."""
    names: list[str] = []
    for each in pod.spec.init_containers:
        if each.name == container:
            break
        if not is_sidecar(each):
            names.append(each.name)
    return tuple(names)


def _find_best(hints: tuple[Hint, ...]) -> Hint:
    """Return the narrowest of the preferred hints, or of all if none is preferred."""
    return min(hints, key=_rank)


def _rank(hint: Hint) -> tuple[bool, int, int]:
    mask = hint.mask or NumaMask(0)
    return not hint.preferred, mask.bit_count(), mask


def _shrink_init_blocks(entries: Entries, pod: Pod, container: str, reused: MemoryBlock) -> Entries:
    """Take what a container uses again out of the blocks of init containers before it: each byte is in one block."""
    uid = uid_of(pod)
    size = reused.size
    for name in earlier_init_containers(pod, container):
        before = entries.get(uid, {}).get(name)
        if not before or not size:
            continue
        after: list[MemoryBlock] = []
        for own in before:
            is_same = own.type == reused.type and set(own.numa_affinity or ()) == set(reused.numa_affinity or ())
            taken = min(own.size, size) if is_same else 0
            size -= taken
            after.append(replace(own, size=own.size - taken))
        entries = with_blocks(entries, uid, name, tuple(after))
    return entries

"""Gives containers memory of NUMA nodes (static policy, Allocate). Pure."""

from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from klet.api.container import Container
from klet.api.pod import Pod
from klet.api.pod_resources import is_sidecar
from klet.checkpoint.upstream import MemoryBlock
from klet.model.pod_resources import MEMORY
from klet.model.pods import PodUID, uid_of
from klet.resources.memory.hints import Reusable, breaks_groups, can_have, compute_hints
from klet.resources.memory.requests import Requests
from klet.resources.memory.tables import Blocks, Entries, MemoryState, NodeTables, take, with_blocks
from klet.resources.topology.hints import AllocationFailure, Hint, NumaMask, mask_of, nodes_of


class LeftMemory(Struct, frozen=True, kw_only=True):
    """Memory that the init containers of one pod leave to those after them, by the nodes that it is on."""

    uid: PodUID | None = None
    by_nodes: Reusable = {}

    def of(self, uid: PodUID) -> Reusable:
        """Return what a pod can use again; only the pod that was last given memory has any."""
        return self.by_nodes if uid == self.uid else {}


class GivenMemory(Struct, frozen=True, kw_only=True):
    """What is true once a container has been given its memory."""

    state: MemoryState
    left: LeftMemory
    blocks: Blocks
    is_new: bool


MemoryAnswer: TypeAlias = GivenMemory | AllocationFailure


def allocate_memory(
    state: MemoryState, left: LeftMemory, pod: Pod, container: Container, *, wanted: Requests, affinity: Hint
) -> MemoryAnswer:
    """Give a container its memory near the nodes of the affinity. What it has already it keeps."""
    uid = uid_of(pod)
    kept = state.blocks_of(uid, container.name)
    if kept is not None:
        return GivenMemory(state=state, left=pass_on(left, pod, container, kept), blocks=kept, is_new=False)
    chosen = choose_nodes(state.nodes, wanted, left.of(uid), affinity)
    if isinstance(chosen, AllocationFailure):
        return chosen
    reusable = left.of(uid).get(chosen, {})
    nodes: NodeTables = state.nodes
    blocks = tuple(
        MemoryBlock(numa_affinity=tuple(nodes_of(chosen)), type=name, size=size) for name, size in wanted.items()
    )
    for block in blocks:
        nodes = take(nodes, block, size=max(block.size - reusable.get(block.type, 0), 0))
    entries = with_blocks(state.entries, uid, container.name, blocks)
    return GivenMemory(
        state=MemoryState(nodes=nodes, entries=_reduce_init_blocks(entries, pod, container, blocks)),
        left=pass_on(left, pod, container, blocks),
        blocks=blocks,
        is_new=True,
    )


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


def pass_on(left: LeftMemory, pod: Pod, container: Container, blocks: Blocks) -> LeftMemory:
    """Return what is left for the next containers: a plain init container leaves its memory, others use it up."""
    uid = uid_of(pod)
    by_nodes = {mask: dict(each) for mask, each in left.of(uid).items()}
    for block in blocks:
        mask = mask_of(block.numa_affinity or ())
        before = by_nodes.get(mask, {}).get(block.type, 0)
        after = max(before, block.size) if _leaves_memory(pod, container) else max(before - block.size, 0)
        if after != before:
            by_nodes.setdefault(mask, {})[block.type] = after
    return LeftMemory(uid=uid, by_nodes=by_nodes)


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


def _leaves_memory(pod: Pod, container: Container) -> bool:
    return any(each.name == container.name and not is_sidecar(each) for each in pod.spec.init_containers)


def _reduce_init_blocks(entries: Entries, pod: Pod, container: Container, blocks: Blocks) -> Entries:
    """Take what a container uses again out of the blocks of init containers before it: each byte is in one block."""
    uid = uid_of(pod)
    for block in blocks:
        size = block.size
        for name in earlier_init_containers(pod, container.name):
            before = entries.get(uid, {}).get(name)
            if not before or not size:
                continue
            after: list[MemoryBlock] = []
            for own in before:
                is_same = own.type == block.type and set(own.numa_affinity or ()) == set(block.numa_affinity or ())
                reused = min(own.size, size) if is_same else 0
                size -= reused
                after.append(replace(own, size=own.size - reused))
            entries = with_blocks(entries, uid, name, tuple(after))
    return entries

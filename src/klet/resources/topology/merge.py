"""Merges the hints of all resources into one affinity, by the policy (HintMerger, Policy.Merge). Pure.

Upstream visits every choice of one hint per resource. Which of two results is better does not depend on the order in
which they come, so it is enough to know which results there are: three resources with 255 hints each, as eight NUMA
nodes give, have 16 million choices and 256 results.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final, TypeAlias

from msgspec import Struct

from klet.resources.topology.hints import Hint, Hints, NumaMask, nodes_of
from klet.resources.topology.rules import TopologyPolicy, TopologyRules

Dimension: TypeAlias = Sequence[Hint]
"""The hints of one resource."""

ANYWHERE: Final = Hint(None, preferred=True)
NOWHERE: Final = Hint(None, preferred=False)
_MOST_PAIRS: Final = 1 << 16
"""So many pairs of masks are combined one by one; for more of them choices are counted."""


class Alignment(Struct, frozen=True):
    """What the hints agree on, and whether the policy admits that."""

    hint: Hint
    is_admitted: bool


def merge_hints(hints: Iterable[Hints], rules: TopologyRules) -> Alignment:
    """Return the affinity by the hints of each provider, and whether the pod is admitted with it."""
    dimensions = list_dimensions(hints)
    match rules.policy:
        case TopologyPolicy.NONE:
            return Alignment(NOWHERE, is_admitted=True)
        case TopologyPolicy.BEST_EFFORT:
            return Alignment(_merge(dimensions, rules), is_admitted=True)
        case TopologyPolicy.RESTRICTED:
            best = _merge(dimensions, rules)
            return Alignment(best, is_admitted=best.preferred)
        case TopologyPolicy.SINGLE_NUMA_NODE:
            best = _merge([_of_single_nodes(each) for each in dimensions], rules)
            if best.mask == rules.every_node:
                best = Hint(None, preferred=best.preferred)
            return Alignment(best, is_admitted=best.preferred)


def list_dimensions(hints: Iterable[Hints]) -> list[Dimension]:
    """Return the hints by resource: a provider or a resource without any has no preference (filterProvidersHints)."""
    dimensions: list[Dimension] = []
    for provided in hints:
        if not provided:
            dimensions.append((ANYWHERE,))
        dimensions.extend((ANYWHERE,) if each is None else each or (NOWHERE,) for each in provided.values())
    return dimensions


def _of_single_nodes(dimension: Dimension) -> Dimension:
    return tuple(hint for hint in dimension if hint.preferred and (hint.mask is None or hint.mask.bit_count() == 1))


def _merge(dimensions: Sequence[Dimension], rules: TopologyRules) -> Hint:
    """Return the best hint that a choice of one hint for each resource has in common."""
    if preferred := find_preferred(dimensions, every=rules.every_node):
        return Hint(min(preferred, key=partial(_rank_preferred, rules)), preferred=True)
    # Where no result is preferred, all of them are compared by their sizes alone.
    if common := find_common(dimensions, every=rules.every_node):
        most = _narrowest_of_the_widest(dimensions)
        return Hint(min(common, key=partial(_rank_other, rules, most)), preferred=False)
    return Hint(rules.every_node, preferred=False)


def find_preferred(dimensions: Sequence[Dimension], *, every: NumaMask) -> set[NumaMask]:
    """Return the results of choices that are preferred: of preferred hints that all name the same nodes, or any."""
    named = [{hint.mask for hint in dimension if hint.preferred} for dimension in dimensions]
    candidates = {mask for masks in named for mask in masks if mask is not None}
    found = {mask for mask in candidates if all(mask in masks or None in masks for masks in named)}
    if all(None in masks for masks in named):
        found.add(every)
    return {NumaMask(mask & every) for mask in found if mask & every}


def find_common(dimensions: Sequence[Dimension], *, every: NumaMask) -> set[NumaMask]:
    """Return the nodes that the hints of each choice have in common, of the choices that have any."""
    common = {every}
    for dimension in dimensions:
        masks = {every if hint.mask is None else NumaMask(hint.mask & every) for hint in dimension}
        common = _intersect(common, masks, every)
        common.discard(NumaMask(0))
    return common


def _intersect(left: set[NumaMask], right: set[NumaMask], every: NumaMask) -> set[NumaMask]:
    if len(left) * len(right) <= _MOST_PAIRS:
        return {NumaMask(one & other) for one in left for other in right}
    return intersect_by_counts(left, right, every)


def intersect_by_counts(left: set[NumaMask], right: set[NumaMask], every: NumaMask) -> set[NumaMask]:
    """Count the pairs whose intersection is a mask: those that both hold it, without those that hold more."""
    nodes = list(nodes_of(every))
    place = {1 << node: 1 << index for index, node in enumerate(nodes)}

    def pack(mask: int) -> int:
        return sum(place[1 << node] for node in nodes_of(NumaMask(mask)))

    def unpack(packed: int) -> NumaMask:
        return NumaMask(sum(1 << nodes[index] for index in nodes_of(NumaMask(packed))))

    holding = [_count_holding(map(pack, masks), len(nodes)) for masks in (left, right)]
    pairs = [one * other for one, other in zip(*holding, strict=True)]
    _add_supersets(pairs, len(nodes), sign=-1)
    return {unpack(packed) for packed, count in enumerate(pairs) if count}


def _count_holding(masks: Iterable[int], nodes: int) -> list[int]:
    """Return for each mask how many of these masks hold all of it."""
    counts = [0] * (1 << nodes)
    for mask in masks:
        counts[mask] += 1
    _add_supersets(counts, nodes, sign=1)
    return counts


def _add_supersets(counts: list[int], nodes: int, *, sign: int) -> None:
    for node in range(nodes):
        bit = 1 << node
        for mask in range(1 << nodes):
            if not mask & bit:
                counts[mask] += sign * counts[mask | bit]


def _narrowest_of_the_widest(dimensions: Sequence[Dimension]) -> int:
    """Return how many nodes the resource needs that needs most (bestNonPreferredAffinityCount)."""
    sizes = ([hint.mask.bit_count() for hint in dimension if hint.mask is not None] for dimension in dimensions)
    return max((min(each) for each in sizes if each), default=0)


def _rank_preferred(rules: TopologyRules, mask: NumaMask) -> tuple[int, float, int]:
    return mask.bit_count(), _distance(rules, mask), mask


def _rank_other(rules: TopologyRules, most: int, mask: NumaMask) -> tuple[int, int, float, int]:
    """Rank first what has as many nodes as the neediest resource wants, then fewer, the more the better, then more."""
    size = mask.bit_count()
    if size == most:
        return 0, 0, _distance(rules, mask), mask
    if size < most:
        return 1, -size, _distance(rules, mask), mask
    return 2, size, _distance(rules, mask), mask


def _distance(rules: TopologyRules, mask: NumaMask) -> float:
    """Return the average distance of the nodes, each to each; 0 where it does not count."""
    if rules.distances is None or rules.policy is TopologyPolicy.SINGLE_NUMA_NODE:
        return 0.0
    nodes = tuple(nodes_of(mask))
    return float(sum(rules.distances[one][other] for one in nodes for other in nodes)) / float(len(nodes) ** 2)

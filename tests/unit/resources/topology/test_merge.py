"""How hints of several resources become one affinity: upstream's table, its worked examples, and its rules of ties."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from klet.resources.topology.hints import Hint, mask_of
from klet.resources.topology.merge import find_common, intersect_by_counts, list_dimensions, merge_hints
from klet.resources.topology.rules import TopologyPolicy, TopologyRules

BEST_EFFORT, RESTRICTED, SINGLE = (
    TopologyPolicy.BEST_EFFORT, TopologyPolicy.RESTRICTED, TopologyPolicy.SINGLE_NUMA_NODE,
)  # fmt: skip
ALL = (0, 1, 2, 3, 4, 5)
CLOSE = {
    0: {0: 10, 1: 20, 2: 30, 3: 30}, 1: {0: 20, 1: 10, 2: 30, 3: 30},
    2: {0: 30, 1: 30, 2: 10, 3: 11}, 3: {0: 30, 1: 30, 2: 11, 3: 10},
}  # fmt: skip


def p(*nodes):
    return Hint(mask_of(nodes), preferred=True)


def n(*nodes):
    return Hint(mask_of(nodes), preferred=False)


def rules(policy, *, nodes=ALL, distances=None):
    return TopologyRules(policy=policy, nodes=nodes, distances=distances)


def merge(policy, *dimensions, nodes=ALL, distances=None):
    hints = [{f"r{index}": each} for index, each in enumerate(dimensions)]
    return merge_hints(hints, rules(policy, nodes=nodes, distances=distances)).hint


NOT_SINGLE = Hint(None, preferred=False)

TABLE = [
    pytest.param([[p(0)], [p(0)]], p(0), p(0), id="the same node"),
    pytest.param([None, [p(1)]], p(1), p(1), id="one without a preference"),
    pytest.param([[p(0), p(1)], [p(0), n(0, 1)]], p(0), p(0), id="one node suits both"),
    pytest.param([[p(0)], [p(1)]], n(*ALL), NOT_SINGLE, id="different nodes"),
    pytest.param([[p(0)], [n(0)]], n(0), NOT_SINGLE, id="one does not prefer it"),
    pytest.param([[p(0)], [p(0, 1)]], n(0), NOT_SINGLE, id="one prefers more"),
    pytest.param([[p(0), p(1)], [n(0, 1)]], n(0), NOT_SINGLE, id="one needs more and does not prefer it"),
    pytest.param([], p(*ALL), Hint(None, preferred=True), id="no providers"),
    pytest.param([[p(0)], []], n(0), NOT_SINGLE, id="a resource that cannot be had"),
    pytest.param([[]], n(*ALL), NOT_SINGLE, id="nothing but one that cannot be had"),
    pytest.param([[Hint(None, preferred=False)]], n(*ALL), NOT_SINGLE, id="anywhere, and not preferred"),
    pytest.param([[p(0, 1, 2, 3, 4, 5)]], p(*ALL), NOT_SINGLE, id="all nodes are not one"),
    pytest.param([[n(0, 1, 2, 3), n(0, 1)], [n(0, 3)]], n(0, 3), NOT_SINGLE, id="as many nodes as the neediest wants"),
    pytest.param(
        [[n(0, 1, 2, 3), n(0, 1)], [n(1, 2), n(2, 3)]], n(1, 2), NOT_SINGLE, id="the lower ones of equally many"
    ),
]


@pytest.mark.parametrize(("dimensions", "expected", "single"), TABLE)
def test_the_table(dimensions, expected, single):
    for policy in (BEST_EFFORT, RESTRICTED):
        found = merge_hints([{str(i): each} for i, each in enumerate(dimensions)], rules(policy))
        assert found.hint == expected
        assert found.is_admitted == (policy is BEST_EFFORT or expected.preferred)
    found = merge_hints([{str(i): each} for i, each in enumerate(dimensions)], rules(SINGLE))
    assert (found.hint, found.is_admitted) == (single, single.preferred)


def test_close_nodes_are_preferred_among_equally_many():
    dimensions = ([n(0, 1, 2, 3), n(0, 1)], [n(1, 2), n(2, 3)])
    assert merge(RESTRICTED, *dimensions, nodes=(0, 1, 2, 3), distances=CLOSE) == n(2, 3)
    assert merge(RESTRICTED, *dimensions, nodes=(0, 1, 2, 3)) == n(1, 2)


def test_fewer_nodes_come_before_close_ones():
    far = {node: dict.fromkeys(ALL, 10 if node < 4 else 99) for node in ALL}
    hints = [p(4), p(0, 2)]
    assert merge(RESTRICTED, hints, hints, distances=far) == p(4)


def test_a_single_node_is_never_chosen_by_distance():
    far = {0: {0: 30, 1: 20}, 1: {0: 20, 1: 10}}
    assert merge(SINGLE, [p(0), p(1)], nodes=(0, 1), distances=far) == p(0)
    assert merge(RESTRICTED, [p(0), p(1)], nodes=(0, 1), distances=far) == p(1)


def test_a_machine_of_one_node_has_no_affinity_with_single_numa_node():
    assert merge(SINGLE, [p(0)], nodes=(0,)) == Hint(None, preferred=True)
    assert merge(RESTRICTED, [p(0)], nodes=(0,)) == p(0)


@pytest.mark.parametrize(
    ("cpu", "expected"),
    [
        pytest.param((p(1), n(0, 1)), p(1), id="a CPU and the device on one node"),
        pytest.param((n(0, 1),), n(0, 1), id="CPUs of both nodes"),
    ],
)
def test_the_worked_example(cpu, expected):
    hints = [{"gpu": (p(0), p(1), n(0, 1))}, {"cpu": cpu}, {}]
    found = merge_hints(hints, rules(RESTRICTED, nodes=(0, 1)))
    assert (found.hint, found.is_admitted) == (expected, expected.preferred)


@pytest.mark.parametrize(
    ("results", "neediest", "expected"),
    [
        pytest.param([(0, 1, 2), (0, 1, 2, 3)], 1, (0, 1, 2), id="too many nodes: the fewest"),
        pytest.param([(0, 1, 2), (3,)], 2, (3,), id="too few are better than too many"),
        pytest.param([(0,), (1, 2)], 2, (1, 2), id="as many as wanted"),
        pytest.param([(0, 1, 2), (1, 2)], 2, (1, 2), id="as many as wanted rather than more"),
        pytest.param([(0,), (1, 2)], 3, (1, 2), id="too few: the most"),
        pytest.param([(1,), (0,)], 2, (0,), id="equally many: the lower"),
    ],
)
def test_which_of_two_results_that_are_not_preferred_wins(results, neediest, expected):
    """How many nodes the neediest resource wants is set by hints that have nothing in common with those of others."""
    for order in (results, results[::-1]):
        found = merge(
            BEST_EFFORT,
            (*(n(*nodes) for nodes in order), n(6)),
            (n(*ALL), n(*range(7, 7 + neediest))),
            nodes=tuple(range(12)),
        )
        assert found == n(*expected)


def test_a_provider_without_hints_has_no_preference():
    assert list_dimensions([{}, {"a": None}, {"b": ()}, {"c": (p(0),)}]) == [
        (Hint(None, preferred=True),), (Hint(None, preferred=True),), (Hint(None, preferred=False),), (p(0),),
    ]  # fmt: skip


masks = st.integers(min_value=1, max_value=31)
dimension = st.lists(st.builds(Hint, st.one_of(st.none(), masks), preferred=st.booleans()), max_size=5).map(tuple)


@given(st.lists(st.one_of(st.none(), dimension), max_size=4), st.sampled_from([BEST_EFFORT, RESTRICTED, SINGLE]))
def test_all_choices_one_by_one_give_the_same(dimensions, policy):
    """As upstream goes through them: every choice of one hint for each resource."""
    own = rules(policy, nodes=(0, 1, 2, 3, 4))
    hints = [{str(i): each} for i, each in enumerate(dimensions)]
    assert merge_hints(hints, own).hint == visit_all(list_dimensions(hints), own)


def visit_all(dimensions, own):
    if own.policy is SINGLE:
        dimensions = [
            [h for h in each if h.preferred and (h.mask is None or h.mask.bit_count() == 1)] for each in dimensions
        ]
    every = own.every_node
    sizes = [min((h.mask.bit_count() for h in each if h.mask is not None), default=0) for each in dimensions]
    most = max(sizes, default=0)
    best = None
    for choice in product(*dimensions):
        named = [hint.mask for hint in choice if hint.mask is not None]
        mask = every
        for each in named:
            mask &= each
        hint = Hint(mask, preferred=all(h.preferred for h in choice) and len(set(named)) <= 1)
        best = pick(best, hint, most)
    best = best or Hint(every, preferred=False)
    return replace(best, mask=None) if own.policy is SINGLE and best.mask == every else best


def pick(best, hint, most):
    """Upstream's comparison of the best hint so far with the next one."""
    if not hint.mask:
        return best
    if best is None or (hint.preferred and not best.preferred):
        return hint
    if best.preferred and not hint.preferred:
        return best
    old, new = best.mask.bit_count(), hint.mask.bit_count()
    narrower = min(best, hint, key=lambda each: (each.mask.bit_count(), each.mask))
    if best.preferred or old > most:
        return narrower
    if old == most:
        return narrower if new == most else best
    if new > most or new < old:
        return best
    return narrower if new == old else hint


@given(st.lists(st.lists(masks, min_size=1, max_size=6), min_size=1, max_size=3))
def test_counting_choices_finds_what_trying_them_finds(dimensions):
    every = mask_of(range(5))
    hints = [tuple(Hint(mask, preferred=False) for mask in each) for each in dimensions]
    expected = {mask for mask in all_in_common(dimensions) if mask}
    assert find_common(hints, every=every) == expected
    counted = {every}
    for each in dimensions:
        counted = intersect_by_counts(counted, set(each), every)
    assert {mask for mask in counted if mask} == expected


def all_in_common(dimensions):
    found = {31}
    for each in dimensions:
        found = {one & other for one in found for other in each}
    return found


def test_many_nodes_with_all_their_hints_are_merged():
    """Three resources with every set of 12 nodes: 68 billion choices."""
    nodes = tuple(range(0, 24, 2))
    hints = tuple(
        Hint(mask_of(node for index, node in enumerate(nodes) if bits >> index & 1), preferred=bits == 1)
        for bits in range(1, 1 << len(nodes))
    )
    shifted = tuple(replace(hint, preferred=hint.mask == mask_of([2])) for hint in hints)
    found = merge(RESTRICTED, hints, shifted, hints, nodes=nodes)
    assert found == n(0)

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klet.api.codec import convert, to_builtins
from klet.api.meta import ObjectMeta
from klet.api.node import Node
from klet.api.patches.merge_patch import same
from klet.api.patches.metadata import merge_list
from klet.api.patches.strategic import apply_strategic_patch
from klet.api.patches.strategic_diff import create_strategic_patch
from klet.api.placement import Affinity
from klet.api.pod import Pod, PodCondition, PodIP, PodSpec, PodStatus
from klet.api.quantity import Quantity
from klet.api.schema import ListOf, MapOf, Object, fields_of
from klet.api.times import Time


def status(*conditions, ips=(), **rest):
    found = tuple(PodCondition(type=kind, status=value) for kind, value in conditions)
    return Pod(status=PodStatus(conditions=found, pod_ips=tuple(PodIP(ip=ip) for ip in ips), **rest))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(status(), status(), {}, id="nothing changed"),
        pytest.param(status(), status(phase="Running"), {"status": {"phase": "Running"}}, id="a field is set"),
        pytest.param(
            status(reason="x"), status(), {"status": {"reason": None}}, id="a field that became empty is null"
        ),
        pytest.param(
            status(("Ready", "False"), ("Initialized", "True")),
            status(("Ready", "True"), ("Initialized", "True")),
            {
                "status": {
                    "conditions": [{"status": "True", "type": "Ready"}],
                    "$setElementOrder/conditions": [{"type": "Ready"}, {"type": "Initialized"}],
                }
            },
            id="only the changed condition is sent",
        ),
        pytest.param(
            status(("A", "True"), ("B", "True")),
            status(("B", "True")),
            {
                "status": {
                    "conditions": [{"$patch": "delete", "type": "A"}],
                    "$setElementOrder/conditions": [{"type": "B"}],
                }
            },
            id="a condition that went is deleted",
        ),
        pytest.param(
            status(ips=["1", "2"]),
            status(ips=["2", "1"]),
            {"status": {"$setElementOrder/podIPs": [{"ip": "2"}, {"ip": "1"}]}},
            id="only the order changed",
        ),
        pytest.param(
            status(), status(ips=["1"]), {"status": {"podIPs": [{"ip": "1"}]}}, id="a new list is sent as it is"
        ),
        pytest.param(
            {"status": {"containerStatuses": [{"name": "a", "ready": False}, {"name": "b"}]}},
            {"status": {"containerStatuses": [{"name": "a", "ready": True}, {"name": "b"}]}},
            {"status": {"containerStatuses": [{"name": "a", "ready": True}, {"name": "b"}]}},
            id="container statuses are sent whole",
        ),
        pytest.param(
            {"metadata": {"finalizers": ["a", "b"]}},
            {"metadata": {"finalizers": ["b", "c"]}},
            {
                "metadata": {
                    "finalizers": ["c"],
                    "$deleteFromPrimitiveList/finalizers": ["a"],
                    "$setElementOrder/finalizers": ["b", "c"],
                }
            },
            id="a set says what came and what went",
        ),
        pytest.param(
            {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}},
            {"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}},
            {
                "spec": {
                    "volumes": [
                        {
                            "name": "v",
                            "hostPath": {"path": "/"},
                            "emptyDir": None,
                            "$retainKeys": ["hostPath", "name"],
                        }
                    ],
                    "$setElementOrder/volumes": [{"name": "v"}],
                }
            },
            id="a volume says which keys it keeps",
        ),
        pytest.param(
            Pod(metadata=ObjectMeta(uid="u"), status=PodStatus(host_ip="1")),
            Pod(metadata=ObjectMeta(uid="u"), status=PodStatus(host_ip="2")),
            {"status": {"hostIP": "2"}},
            id="objects and plain data serve alike",
        ),
    ],
)
def test_create_strategic_patch(old, new, expected):
    assert create_strategic_patch(old, new, Pod) == expected


PODS = [
    Pod(),
    status(("Ready", "True"), phase="Running"),
    status(("Ready", "False"), ("Initialized", "True"), ips=["1", "2"], reason="x"),
    status(("Initialized", "True"), ("Ready", "True"), ips=["2"], start_time=Time.parse("2024-01-01T00:00:00Z")),
    Pod(metadata=ObjectMeta(finalizers=("a", "b")), spec=PodSpec(host_users=False, node_selector={"a": "b"})),
    Pod(metadata=ObjectMeta(finalizers=("b",)), spec=PodSpec(affinity=Affinity(), overhead={"cpu": Quantity.of(1)})),
]

scalars = st.booleans() | st.integers(0, 2) | st.sampled_from(["a", "b"])
identifiers = st.sampled_from(["p", "q", "r", "s"])


def objects(struct, depth):
    """Plain data of a struct: some of its fields, merge lists with distinct keys."""
    fields = {
        wire: values(field.shape, merge_list(struct, wire), depth)
        for wire, field in fields_of(struct).items()
        if depth or not isinstance(field.shape, Object | ListOf | MapOf)
    }
    if not fields:
        return st.just({})
    some = st.sets(st.sampled_from(sorted(fields)), max_size=3)
    return some.flatmap(lambda chosen: st.fixed_dictionaries({wire: fields[wire] for wire in sorted(chosen)}))


def values(shape, strategy, depth):
    match shape:
        case Object(struct):
            return st.deferred(lambda: objects(struct, depth - 1))
        case ListOf(_) if strategy and not strategy.key:
            return st.lists(identifiers, unique=True, max_size=4)
        case ListOf(Object(struct)) if strategy:
            element = st.deferred(lambda: objects(struct, depth - 1))
            keyed = st.tuples(identifiers, element).map(lambda pair: {**pair[1], strategy.key: pair[0]})
            return st.lists(keyed, unique_by=lambda item: item[strategy.key], max_size=4)
        case ListOf(Object(struct)):
            return st.lists(st.deferred(lambda: objects(struct, depth - 1)), max_size=3)
        case ListOf(_):
            return st.lists(scalars, max_size=3)
        case MapOf(_):
            return st.dictionaries(identifiers, scalars, max_size=3)
        case _:
            return scalars


pods, nodes = objects(Pod, 4), objects(Node, 3)
states = st.one_of(st.tuples(st.just(Pod), pods, pods), st.tuples(st.just(Node), nodes, nodes))


@settings(max_examples=300)
@given(states)
def test_a_created_patch_makes_the_new_of_the_old(state):
    struct, old, new = state
    before = copy.deepcopy((old, new))
    patch = create_strategic_patch(old, new, struct)
    assert (old, new) == before
    once = apply_strategic_patch(old, patch, struct)
    assert same(once, new)
    assert same(apply_strategic_patch(once, patch, struct), new)


@given(st.sampled_from(PODS), st.sampled_from(PODS))
def test_a_patch_of_objects_makes_the_new_of_the_old(old, new):
    patch = create_strategic_patch(old, new, Pod)
    assert convert(Pod, apply_strategic_patch(to_builtins(old), patch, Pod)) == new


@given(states)
def test_equal_states_need_no_patch(state):
    struct, old, _ = state
    assert create_strategic_patch(old, copy.deepcopy(old), struct) == {}

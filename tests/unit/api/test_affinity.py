import pytest

from klet.api.affinity import matches_node_selector, suits_pod
from klet.api.placement import Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from klet.api.pod import PodSpec

LABELS = {"zone": "a", "cpus": "8"}


def by_label(key, operator, *values):
    requirement = NodeSelectorRequirement(key=key, operator=operator, values=values)
    return NodeSelectorTerm(match_expressions=(requirement,))


def by_field(key, operator, *values):
    return NodeSelectorTerm(match_fields=(NodeSelectorRequirement(key=key, operator=operator, values=values),))


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        pytest.param((), False, id="no term matches no node"),
        pytest.param((NodeSelectorTerm(),), False, id="an empty term matches no node"),
        pytest.param((by_label("zone", "In", "a", "b"),), True, id="in"),
        pytest.param((by_label("zone", "In"),), False, id="in wants values"),
        pytest.param((by_label("zone", "NotIn", "a"),), False, id="not in"),
        pytest.param((by_label("missing", "NotIn", "a"),), True, id="not in holds for a missing label"),
        pytest.param((by_label("zone", "Exists"),), True, id="exists"),
        pytest.param((by_label("zone", "Exists", "x"),), False, id="exists wants no values"),
        pytest.param((by_label("zone", "DoesNotExist"),), False, id="does not exist"),
        pytest.param((by_label("cpus", "Gt", "4"),), True, id="greater"),
        pytest.param((by_label("cpus", "Lt", "8"),), False, id="less"),
        pytest.param((by_label("cpus", "Gt", "4", "5"),), False, id="greater wants one value"),
        pytest.param((by_label("zone", "Near", "a"),), False, id="an unknown operator"),
        pytest.param((by_label("cpus", "Gt", "+4"),), False, id="a number that no label can have"),
        pytest.param((by_label("no key", "NotIn", "a"),), False, id="a key that no label can have"),
        pytest.param((by_label("zone", "In", "b"), by_label("zone", "In", "a")), True, id="one term is enough"),
        pytest.param((by_field("metadata.name", "In", "n1"),), True, id="by name"),
        pytest.param((by_field("metadata.name", "NotIn", "n1"),), False, id="by any other name"),
        pytest.param((by_field("metadata.name", "In", "n1", "n2"),), False, id="a field wants one value"),
        pytest.param((by_field("metadata.name", "Exists", "n1"),), False, id="a field knows In and NotIn only"),
    ],
)
def test_matches_node_selector(terms, expected):
    selector = NodeSelector(node_selector_terms=terms)
    assert matches_node_selector(selector, node_name="n1", labels=LABELS) is expected


@pytest.mark.parametrize(
    ("node_selector", "required", "expected"),
    [
        pytest.param({}, None, True, id="a pod without wishes suits every node"),
        pytest.param({"zone": "a"}, None, True, id="the labels are there"),
        pytest.param({"zone": "b"}, None, False, id="a label differs"),
        pytest.param({"zone": "a"}, by_label("zone", "In", "b"), False, id="both must hold"),
        pytest.param({}, by_label("zone", "In", "a"), True, id="the affinity alone"),
    ],
)
def test_suits_pod(node_selector, required, expected):
    selector = NodeSelector(node_selector_terms=(required,)) if required else None
    affinity = Affinity(node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=selector))
    spec = PodSpec(node_selector=node_selector, affinity=affinity)
    assert suits_pod(spec, node_name="n1", labels=LABELS) is expected


def test_an_affinity_without_terms_suits_no_node():
    affinity = Affinity(node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=NodeSelector()))
    assert not suits_pod(PodSpec(affinity=affinity), node_name="n1", labels=LABELS)

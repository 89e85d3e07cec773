"""The node as it is registered, adopted and patched."""

import pytest
from msgspec.structs import replace

from klet.api.codec import to_builtins
from klet.api.meta import ObjectMeta
from klet.api.node import Node, NodeAddress, NodeCondition, NodeSpec, NodeStatus
from klet.api.patches.strategic import apply_strategic_patch
from klet.api.placement import Taint
from klet.api.quantity import Quantity
from klet.node.initial_node import adopt_node, build_initial_node, build_status_patch, repair_labels
from klet.node.settings import NodeSettings

ATTACH = "volumes.kubernetes.io/controller-managed-attach-detach"
DEFAULT_LABELS = {
    "kubernetes.io/hostname": "n1",
    "kubernetes.io/os": "linux",
    "kubernetes.io/arch": "amd64",
    "beta.kubernetes.io/os": "linux",
    "beta.kubernetes.io/arch": "amd64",
}
DEDICATED = Taint(key="dedicated", value="x", effect="NoSchedule")
CLOUD = Taint(key="node.cloudprovider.kubernetes.io/uninitialized", value="true", effect="NoSchedule")


def test_a_plain_node():
    node = build_initial_node(NodeSettings(name="n1"))
    assert node.metadata == ObjectMeta(name="n1", labels=DEFAULT_LABELS, annotations={ATTACH: "true"})
    assert node.spec == NodeSpec()


def test_a_node_of_a_cloud():
    node = build_initial_node(
        NodeSettings(
            name="n1",
            has_external_cloud=True,
            taints=(DEDICATED,),
            provider_id="cloud://1",
            has_attach_controller=False,
            labels={"role": "edge", "kubernetes.io/arch": "mine"},
        )
    )
    assert node.spec == NodeSpec(taints=(DEDICATED, CLOUD), provider_id="cloud://1")
    assert node.metadata.annotations == {}
    assert node.metadata.labels == {**DEFAULT_LABELS, "role": "edge", "kubernetes.io/arch": "mine"}


def amounts(**texts: str) -> dict[str, Quantity]:
    return {name.replace("__", "/").replace("_", "-"): Quantity.parse(text) for name, text in texts.items()}


INITIAL = replace(
    build_initial_node(NodeSettings(name="n1", labels={"role": "edge", "topology.kubernetes.io/zone": "z1"})),
    status=NodeStatus(
        capacity=amounts(cpu="2", hugepages_2Mi="4Mi"), allocatable=amounts(cpu="1", hugepages_2Mi="4Mi")
    ),
)
ADOPTED = adopt_node(INITIAL, INITIAL, reset_devices=False)


def existing(**metadata) -> Node:
    return replace(INITIAL, metadata=replace(INITIAL.metadata, **metadata))


def test_a_node_that_is_as_it_should_be_stays():
    assert ADOPTED == INITIAL


@pytest.mark.parametrize(
    ("found", "initial", "annotations"),
    [
        pytest.param({}, {ATTACH: "true"}, {ATTACH: "true"}, id="it is added"),
        pytest.param({ATTACH: "true", "a": "b"}, {}, {"a": "b"}, id="it is removed"),
        pytest.param({ATTACH: "no"}, {ATTACH: "true"}, {ATTACH: "true"}, id="it is set right"),
        pytest.param({"a": "b"}, {}, {"a": "b"}, id="there is none and should be none"),
    ],
)
def test_the_annotation_of_the_attach_controller(found, initial, annotations):
    wanted = replace(INITIAL, metadata=replace(INITIAL.metadata, annotations=initial))
    assert adopt_node(existing(annotations=found), wanted, reset_devices=False).metadata.annotations == annotations


@pytest.mark.parametrize(
    ("found", "initial", "labels"),
    [
        pytest.param({}, {"kubernetes.io/os": "linux"}, {"kubernetes.io/os": "linux"}, id="a missing one comes"),
        pytest.param({"kubernetes.io/os": "plan9"}, {"kubernetes.io/os": "linux"}, {"kubernetes.io/os": "linux"},
                     id="a wrong one is set right"),
        pytest.param({"topology.kubernetes.io/zone": "a"}, {"topology.kubernetes.io/zone": "b"},
                     {"topology.kubernetes.io/zone": "b"}, id="zones count as defaults"),
        pytest.param({"topology.kubernetes.io/zone": "a"}, {}, {"topology.kubernetes.io/zone": "a"},
                     id="a default that we do not have is left alone"),
        pytest.param({"kubernetes.io/arch": "x"}, {"kubernetes.io/arch": ""}, {}, id="an empty one is removed"),
        pytest.param({"mine": ""}, {"role": "edge"}, {"mine": ""}, id="own labels are not applied again"),
    ],
)  # fmt: skip
def test_labels_of_a_node_that_is_there(found, initial, labels):
    wanted = replace(INITIAL, metadata=replace(INITIAL.metadata, labels=initial))
    assert adopt_node(existing(labels=found), wanted, reset_devices=False).metadata.labels == labels


def with_resources(capacity, allocatable) -> Node:
    return replace(INITIAL, status=NodeStatus(capacity=capacity, allocatable=allocatable))


def test_resources_that_are_not_there_are_copied():
    adopted = adopt_node(with_resources({}, {}), INITIAL, reset_devices=False)
    assert adopted.status == INITIAL.status


def test_hugepages_follow_the_machine():
    found = with_resources(
        amounts(cpu="9", hugepages_2Mi="2Mi", hugepages_1Gi="1Gi"), amounts(cpu="9", hugepages_1Gi="1Gi")
    )
    adopted = adopt_node(found, INITIAL, reset_devices=False)
    assert adopted.status.capacity == amounts(cpu="9", hugepages_2Mi="4Mi")
    assert adopted.status.allocatable == amounts(cpu="9", hugepages_2Mi="4Mi")


@pytest.mark.parametrize(
    ("reset", "left"),
    [
        pytest.param(True, "0", id="no device plugin is remembered"),
        pytest.param(False, "2", id="device plugins are remembered"),
    ],
)
def test_devices_of_a_node_that_is_there(reset, left):
    resources = amounts(cpu="2", example_com__gpu="2", hugepages_2Mi="4Mi")
    adopted = adopt_node(with_resources(resources, resources), INITIAL, reset_devices=reset)
    assert str(adopted.status.capacity["example-com/gpu"]) == left
    assert str(adopted.status.allocatable["example-com/gpu"]) == left
    assert str(adopted.status.capacity["cpu"]) == "2"


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param({}, id="both are missing"),
        pytest.param({"kubernetes.io/os": "plan9", "kubernetes.io/arch": "amd64"}, id="one is wrong"),
    ],
)
def test_labels_are_repaired(labels):
    repaired = repair_labels(existing(labels={**labels, "a": "b"}), NodeSettings(name="n1"))
    assert repaired.metadata.labels == {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "a": "b"}


def test_right_labels_are_left():
    assert repair_labels(INITIAL, NodeSettings(name="n1")) is INITIAL


def address(kind: str, value: str) -> NodeAddress:
    return NodeAddress(type=kind, address=value)


OLD = Node(
    metadata=ObjectMeta(name="n1", labels={"a": "b"}, resource_version="7"),
    spec=NodeSpec(unschedulable=True),
    status=NodeStatus(
        addresses=(address("InternalIP", "1.1.1.1"), address("Hostname", "n1")),
        conditions=(NodeCondition(type="Other", status="True"), NodeCondition(type="Ready", status="False")),
    ),
)


def test_a_patch_has_only_what_changed():
    new = replace(
        OLD,
        metadata=replace(OLD.metadata, labels={"a": "b", "c": "d"}),
        spec=NodeSpec(),
        status=replace(OLD.status, conditions=(OLD.status.conditions[0], NodeCondition(type="Ready", status="True"))),
    )
    assert build_status_patch(OLD, new) == {
        "metadata": {"labels": {"c": "d"}},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "$setElementOrder/conditions": [{"type": "Other"}, {"type": "Ready"}],
        },
    }
    assert build_status_patch(OLD, OLD) == {}


def test_addresses_of_one_type_are_replaced_as_a_whole():
    addresses = (address("InternalIP", "2.2.2.2"), address("InternalIP", "fd00::2"), address("Hostname", "n1"))
    new = replace(OLD, status=replace(OLD.status, addresses=addresses))
    patch = build_status_patch(OLD, new)
    assert patch == {
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": "2.2.2.2"},
                {"type": "InternalIP", "address": "fd00::2"},
                {"type": "Hostname", "address": "n1"},
                {"$patch": "replace"},
            ]
        }
    }
    patched = apply_strategic_patch(to_builtins(OLD), patch, Node)
    assert patched == to_builtins(new)


def test_first_addresses_need_no_directive():
    bare = replace(OLD, status=NodeStatus())
    assert build_status_patch(bare, replace(OLD, status=NodeStatus(addresses=OLD.status.addresses))) == {
        "status": {"addresses": to_builtins(OLD.status.addresses)}
    }

"""What the Node and the CSINode say of a driver: the reference's table of existing states."""

import pytest
from msgspec.structs import replace

from klet.api.meta import ObjectMeta, OwnerReference
from klet.api.node import Node, NodeStatus
from klet.api.patches.strategic import REPLACE_LIST
from klet.api.quantity import Quantity
from klet.api.storage import CSINode, CSINodeDriver, CSINodeSpec, VolumeNodeResources
from klet.csi.client import CsiNodeInfo
from klet.csi_nodes.node_objects import (
    MIGRATED_ANNOTATION,
    NODE_ID_ANNOTATION,
    Unusable,
    build_csi_node,
    build_csi_node_patch,
    build_node_patch,
    drop_driver,
    drop_driver_from_node,
    is_owned_by,
    mark_migrated,
    name_driver_on_node,
    put_driver,
    set_volume_count,
)

D, E = "d.example.com", "e.example.com"
MIGRATED = (
    "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,kubernetes.io/azure-file,kubernetes.io/cinder,"
    "kubernetes.io/gce-pd,kubernetes.io/portworx-volume,kubernetes.io/vsphere-volume"
)


def node(ids="", **labels):
    annotations = {NODE_ID_ANNOTATION: ids} if ids else {}
    return Node(metadata=ObjectMeta(name="n", labels=labels, annotations=annotations))


def info(node_id="id", *, count=0, **topology):
    return CsiNodeInfo(node_id=node_id, max_volumes=count, topology=topology or None)


def csi_node(*drivers):
    made = build_csi_node("n", "uid")
    return replace(made, spec=CSINodeSpec(drivers=drivers))


def entry(name=D, node_id="id", *keys, count=None):
    allocatable = VolumeNodeResources(count=count) if count is not None else None
    return CSINodeDriver(name=name, node_id=node_id, topology_keys=keys, allocatable=allocatable)


@pytest.mark.parametrize(
    ("before", "said", "ids", "labels"),
    [
        pytest.param(node(), info(), '{"d.example.com":"id"}', {}, id="the first driver"),
        pytest.param(
            node('{"e.example.com":"x"}'),
            info(),
            '{"d.example.com":"id","e.example.com":"x"}',
            {},
            id="another driver stays",
        ),
        pytest.param(
            node('{"d.example.com":"old"}'), info("new"), '{"d.example.com":"new"}', {}, id="another node id"
        ),
        pytest.param(node(), info(zone="z1"), '{"d.example.com":"id"}', {"zone": "z1"}, id="topology becomes labels"),
        pytest.param(
            node('{"d.example.com":"id"}', zone="z1"),
            info(zone="z1", rack="r"),
            '{"d.example.com":"id"}',
            {"zone": "z1", "rack": "r"},
            id="new keys are added, old ones stay",
        ),
        pytest.param(
            node('{"d.example.com":"id"}', zone="z1"), info(), '{"d.example.com":"id"}', {"zone": "z1"},
            id="labels stay without a topology",
        ),
    ],
)  # fmt: skip
def test_a_driver_on_the_node(before, said, ids, labels):
    after = name_driver_on_node(before, D, said)
    assert isinstance(after, Node)
    assert after.metadata.annotations == {NODE_ID_ANNOTATION: ids}
    assert after.metadata.labels == labels


def test_nothing_is_sent_for_a_node_that_says_it_already():
    before = node('{ "d.example.com": "id" }', zone="z1")
    after = name_driver_on_node(before, D, info(zone="z1"))
    assert isinstance(after, Node)
    assert build_node_patch(before, after) == {}


def test_a_label_with_another_value_is_a_collision():
    assert name_driver_on_node(node(zone="z2"), D, info(zone="z1")) == Unusable(
        'detected topology value collision: driver reported "zone":"z1" but existing label is "zone":"z2"'
    )


@pytest.mark.parametrize("ids", ["{", "[]", '{"d": 1}', "[" * 10_000])
def test_an_annotation_that_nobody_can_read_is_left_alone(ids):
    for result in (name_driver_on_node(node(ids), D, info()), drop_driver_from_node(node(ids), D)):
        assert isinstance(result, Unusable)
        assert result.why.startswith('failed to parse node\'s "csi.volume.kubernetes.io/nodeid" annotation value: ')


def test_limits_of_old_kubelets_go():
    legacy = {f"attachable-volumes-csi-{D}": Quantity.parse("3"), "cpu": Quantity.parse("1")}
    before = replace(node(), status=NodeStatus(capacity=legacy, allocatable=legacy))
    for after in (name_driver_on_node(before, D, info()), drop_driver_from_node(before, D)):
        assert isinstance(after, Node)
        assert set(after.status.capacity) == set(after.status.allocatable) == {"cpu"}
        assert build_node_patch(before, after)["status"] == {
            "capacity": {f"attachable-volumes-csi-{D}": None},
            "allocatable": {f"attachable-volumes-csi-{D}": None},
        }


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        pytest.param('{"d.example.com":"id"}', {}, id="the last one takes the annotation with it"),
        pytest.param(
            '{"d.example.com":"id","e.example.com":"x"}',
            {NODE_ID_ANNOTATION: '{"e.example.com":"x"}'},
            id="others stay",
        ),
        pytest.param(
            '{ "e.example.com": "x" }',
            {NODE_ID_ANNOTATION: '{ "e.example.com": "x" }'},
            id="one that is not there changes nothing",
        ),
        pytest.param("", {}, id="there is no annotation"),
    ],
)
def test_a_driver_goes_from_the_node_but_its_labels_stay(before, expected):
    after = drop_driver_from_node(node(before, zone="z1"), D)
    assert isinstance(after, Node)
    assert after.metadata.annotations == expected
    assert after.metadata.labels == {"zone": "z1"}


def test_a_new_csi_node():
    made = build_csi_node("n", "uid")
    assert made.metadata.owner_references == (OwnerReference(api_version="v1", kind="Node", name="n", uid="uid"),)
    assert made.metadata.annotations == {MIGRATED_ANNOTATION: MIGRATED}
    assert made.spec.drivers == ()


@pytest.mark.parametrize(
    ("before", "said", "expected"),
    [
        pytest.param((), info(zone="z", rack="r"), (entry(D, "id", "rack", "zone"),), id="keys are sorted"),
        pytest.param((entry(E),), info(), (entry(E), entry(D)), id="a new one is appended"),
        pytest.param((entry(D, "old"), entry(E)), info(), (entry(E), entry(D)), id="a changed one is appended"),
        pytest.param((entry(D, "id", "a"),), info(b="z"), (entry(D, "id", "b"),), id="keys are replaced"),
        pytest.param((entry(D, "id", "a"),), info(), (entry(D),), id="no topology empties the keys"),
        pytest.param((), info(count=25), (entry(count=25),), id="a limit"),
        pytest.param((), info(count=2**40), (entry(count=2**31 - 1),), id="a limit beyond 32 bits"),
        pytest.param((), info(count=-1), (entry(),), id="a negative limit is none"),
        pytest.param((entry(count=3),), info(), (entry(),), id="a limit goes"),
    ],
)
def test_a_driver_in_the_csi_node(before, said, expected):
    assert put_driver(csi_node(*before), D, said).spec.drivers == expected


@pytest.mark.parametrize(
    ("before", "said"),
    [
        pytest.param(entry(D, "id", "b", "a", count=3), info(count=3, a="1", b="2"), id="keys in another order"),
        pytest.param(entry(), info(), id="nothing but the id"),
    ],
)
def test_nothing_is_sent_for_a_csi_node_that_says_it_already(before, said):
    was = csi_node(before, entry(E))
    assert build_csi_node_patch(was, put_driver(was, D, said)) == {}


def test_an_outdated_annotation_is_written_with_the_same_entry():
    before = csi_node(entry())
    before = replace(before, metadata=replace(before.metadata, annotations={"other": "stays"}, resource_version="7"))
    assert build_csi_node_patch(before, put_driver(before, D, info())) == {
        "metadata": {"annotations": {MIGRATED_ANNOTATION: MIGRATED}, "resourceVersion": "7"}
    }
    assert mark_migrated(before).metadata.annotations == {"other": "stays", MIGRATED_ANNOTATION: MIGRATED}


def test_a_patch_is_for_the_version_that_was_read():
    before = csi_node(entry(E))
    before = replace(before, metadata=replace(before.metadata, resource_version="7"))
    patch = build_csi_node_patch(before, put_driver(before, D, info()))
    assert patch["metadata"] == {"resourceVersion": "7"}
    assert REPLACE_LIST not in patch["spec"]["drivers"]


def test_a_driver_goes_from_the_csi_node():
    assert drop_driver(csi_node(entry(D), entry(E)), D).spec.drivers == (entry(E),)
    assert build_csi_node_patch(csi_node(entry(E)), drop_driver(csi_node(entry(E)), D)) == {}


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        pytest.param((entry(count=3), entry(E)), (entry(count=5), entry(E)), id="changed in its place"),
        pytest.param((entry(E),), (entry(E),), id="never added"),
    ],
)
def test_a_count_that_is_asked_for_again(before, expected):
    assert set_volume_count(csi_node(*before), D, info(count=5)).spec.drivers == expected


@pytest.mark.parametrize(
    ("owners", "expected"),
    [
        pytest.param((OwnerReference(api_version="v1", kind="Node", name="n", uid="uid"),), True, id="this Node"),
        pytest.param((OwnerReference(api_version="v1", kind="Node", name="n", uid="x"),), False, id="an older Node"),
        pytest.param((OwnerReference(api_version="v1", kind="Node", name="m", uid="uid"),), False, id="another Node"),
        pytest.param((OwnerReference(api_version="v1", kind="Pod", name="n", uid="uid"),), False, id="another kind"),
        pytest.param((), False, id="nobody"),
    ],
)
def test_whose_it_is(owners, expected):
    assert is_owned_by(CSINode(metadata=ObjectMeta(name="n", owner_references=owners)), "n", "uid") is expected

"""The Node and the CSINode at an API server: the reference's table of existing states, retries and refusals."""

import asyncio

import pytest

from klet.api.kinds import kind_of
from klet.api.meta import ObjectMeta
from klet.api.node import Node
from klet.api.storage import CSINode
from klet.csi.client import CsiNodeInfo
from klet.csi_nodes.errors import CsiNodeError
from klet.csi_nodes.info_manager import GAVE_UP, WRITES
from klet.csi_nodes.node_objects import MIGRATED_ANNOTATION, MIGRATED_PLUGINS, build_csi_node
from klet.embedded.faults import RefuseRequest
from klet.embedded.refusals import modified

D, E = "d.example.com", "e.example.com"


def info(node_id="id", *, count=0, **topology):
    return CsiNodeInfo(node_id=node_id, max_volumes=count, topology=topology or None)


async def test_the_first_driver_of_a_node(storage):
    await storage.manager.initialize()
    await storage.manager.install(D, info("i-0abc", count=25, zone="z1"))
    node, csi_node = await storage.node(), await storage.csi_node()
    assert await storage.node_ids() == '{"d.example.com":"i-0abc"}'
    assert node.metadata.labels == {"zone": "z1"}
    [owner] = csi_node.metadata.owner_references
    assert (owner.api_version, owner.kind, owner.name, owner.uid) == ("v1", "Node", "node-1", node.metadata.uid)
    assert csi_node.metadata.annotations == {MIGRATED_ANNOTATION: MIGRATED_PLUGINS}
    [entry] = csi_node.spec.drivers
    assert (entry.name, entry.node_id, entry.topology_keys) == (D, "i-0abc", ("zone",))
    assert entry.allocatable.count == 25


async def test_what_is_there_already_is_not_written_again(storage):
    await storage.manager.initialize()
    await storage.manager.install(D, info(count=3, zone="z1"))
    before = await storage.versions()
    again = storage.new_manager()
    await again.initialize()
    await again.install(D, info(count=3, zone="z1"))
    assert await storage.versions() == before


async def test_drivers_do_not_take_each_others_place(storage):
    await storage.manager.initialize()
    async with asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(storage.manager.install(f"d{number}", info(f"id{number}")))
    assert {each.name for each in await storage.entries()} == {f"d{number}" for number in range(8)}
    for number in range(8):
        assert f'"d{number}":"id{number}"' in await storage.node_ids()


@pytest.mark.parametrize(
    ("before", "said", "names", "keys", "labels"),
    [
        pytest.param(
            {D: info()}, info(zone="z1"), [D], ("zone",), {"zone": "z1"}, id="a topology is given to a known driver"
        ),
        pytest.param({E: info()}, info(), [E, D], (), {}, id="another driver is kept first"),
        pytest.param({D: info("old"), E: info()}, info(), [E, D], (), {}, id="one that changes is appended"),
        pytest.param(
            {D: info(a="1")}, info(b="2"), [D], ("b",), {"a": "1", "b": "2"}, id="keys are replaced, labels are added"
        ),
        pytest.param({D: info(a="1")}, info(), [D], (), {"a": "1"}, id="no topology empties the keys"),
    ],
)
async def test_a_driver_on_a_node_with_a_past(storage, before, said, names, keys, labels):
    await storage.manager.initialize()
    for name, each in before.items():
        await storage.manager.install(name, each)
    await storage.manager.install(D, said)
    entries = await storage.entries()
    assert [each.name for each in entries] == names
    assert entries[-1].topology_keys == keys
    assert (await storage.node()).metadata.labels == labels


async def test_a_topology_that_contradicts_a_label_fails_after_four_tries(storage):
    await storage.manager.initialize()
    await storage.manager.install(D, info("old", zone="z1"))
    with pytest.raises(CsiNodeError) as caught:
        await storage.manager.install(D, info("new", zone="z2"))
    assert str(caught.value) == (
        "error updating Node object with CSI driver node info: error updating node: timed out waiting for the "
        'condition; caused by: detected topology value collision: driver reported "zone":"z2" but existing label is '
        '"zone":"z1"'
    )
    assert await storage.node_ids() == '{"d.example.com":"old"}'


async def test_an_empty_node_id_is_refused(storage):
    await storage.manager.initialize()
    expected = "^error adding CSI driver node info: driverNodeID must not be empty$"
    with pytest.raises(CsiNodeError, match=expected):
        await storage.manager.install(D, info(""))


async def test_a_negative_limit_is_logged_and_left_out(storage, caplog):
    await storage.manager.initialize()
    await storage.manager.install(D, info(count=-1))
    assert (await storage.entries())[0].allocatable is None
    assert "Invalid attach limit value" in caplog.text


async def test_a_csi_node_of_an_older_node_is_made_again(storage):
    await storage.client.create(build_csi_node("node-1", "an-older-uid"))
    await storage.manager.initialize()
    await storage.manager.install(D, info())
    found = await storage.csi_node()
    assert found.metadata.owner_references[0].uid == (await storage.node()).metadata.uid
    assert [each.name for each in found.spec.drivers] == [D]


async def test_drivers_of_a_previous_run_stay_when_the_agent_starts_again(storage):
    await storage.manager.initialize()
    await storage.manager.install(E, info())
    await storage.new_manager().initialize()
    assert [each.name for each in await storage.entries()] == [E]


async def test_an_old_annotation_is_renewed_at_the_start(storage):
    await storage.manager.initialize()
    patch = {"metadata": {"annotations": {MIGRATED_ANNOTATION: "kubernetes.io/aws-ebs"}}}
    await storage.client.patch(CSINode, "node-1", patch=patch)
    await storage.manager.initialize()
    assert (await storage.csi_node()).metadata.annotations == {MIGRATED_ANNOTATION: MIGRATED_PLUGINS}


async def test_a_driver_goes_but_its_labels_stay(storage):
    await storage.manager.initialize()
    await storage.manager.install(D, info(zone="z1"))
    await storage.manager.install(E, info())
    await storage.manager.uninstall(D)
    assert [each.name for each in await storage.entries()] == [E]
    assert await storage.node_ids() == '{"e.example.com":"id"}'
    await storage.manager.uninstall(E)
    assert await storage.entries() == ()
    assert await storage.node_ids() is None
    assert (await storage.node()).metadata.labels == {"zone": "z1"}


async def test_a_driver_goes_from_a_node_without_a_csi_node(storage):
    await storage.manager.initialize()
    await storage.manager.install(D, info())
    await storage.client.delete(CSINode, "node-1")
    await storage.manager.uninstall(D)
    assert await storage.node_ids() is None


async def test_a_csi_node_that_somebody_deletes_comes_back_with_the_next_driver(storage):
    await storage.manager.initialize()
    await storage.client.delete(CSINode, "node-1")
    await storage.manager.install(D, info())
    assert [each.name for each in await storage.entries()] == [D]


async def test_a_count_changes_in_its_place_without_a_change_of_the_node(storage):
    await storage.manager.initialize()
    await storage.manager.install(D, info(count=3))
    await storage.manager.install(E, info())
    before = (await storage.node()).metadata.resource_version
    await storage.manager.refresh(D, info(count=5))
    entries = await storage.entries()
    assert [(each.name, each.allocatable and each.allocatable.count) for each in entries] == [(D, 5), (E, None)]
    assert (await storage.node()).metadata.resource_version == before
    await storage.manager.refresh(D, info(count=0))
    assert (await storage.entries())[0].allocatable is None


def conflict(struct):
    return RefuseRequest(modified(kind_of(struct), "node-1"))


@pytest.mark.parametrize(
    ("struct", "path"),
    [
        pytest.param(Node, "/nodes/node-1", id="the Node"),
        pytest.param(CSINode, "/csinodes/node-1", id="the CSINode"),
    ],
)
async def test_a_write_is_tried_four_times(storage, struct, path):
    await storage.manager.initialize()
    storage.faults.plan(
        conflict(struct), applies=lambda ask: ask.method == "PATCH" and path in ask.path, times=WRITES.tries - 1
    )
    await storage.manager.install(D, info())
    assert [each.name for each in await storage.entries()] == [D]
    storage.faults.plan(
        conflict(struct), applies=lambda ask: ask.method == "PATCH" and path in ask.path, times=WRITES.tries
    )
    with pytest.raises(CsiNodeError, match=f"{GAVE_UP}; caused by: Operation cannot be fulfilled on"):
        await storage.manager.install(E, info())


async def test_another_writer_between_reading_and_writing_loses_nothing(storage):
    """The patch of a CSINode is for the version that was read."""
    await storage.manager.initialize()
    await storage.manager.install(D, info())
    stale = await storage.csi_node()
    await storage.manager.install(E, info())
    with pytest.raises(Exception, match="the object has been modified"):
        await storage.client.patch(
            CSINode,
            "node-1",
            patch={"metadata": {"resourceVersion": stale.metadata.resource_version}, "spec": {"drivers": []}},
        )


async def test_a_node_that_is_not_there_cannot_have_a_csi_node(storage):
    await storage.client.delete(Node, "node-1")
    with pytest.raises(Exception, match='nodes "node-1" not found'):
        await storage.manager.initialize()
    await storage.client.create(Node(metadata=ObjectMeta(name="node-1")))
    await storage.manager.initialize()

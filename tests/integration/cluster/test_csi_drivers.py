"""A CSI driver registers with a node of a real control plane: klet makes the same objects as upstream's kubelet."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from klet.api.codec import convert, encode
from klet.api.node import Node
from klet.api.storage import CSIDriver, CSINode
from klet.kube.watch import WatchScope
from klet.testing.control_plane.programs import chosen_minor
from klet.testing.csi.backing import PlainBacking
from klet.testing.csi.serving import serve_driver
from klet.testing.registrar import serve_registrar
from klet.wire import csi_v1_pb2 as csi

NAME = "csi.klet.test"
NODE_ID = "csi.volume.kubernetes.io/nodeid"
ZONE = "csi.klet.test/zone"
PATIENCE = 60
PERIOD_SINCE = 35
"""The minor version whose API server keeps nodeAllocatableUpdatePeriodSeconds by default."""


@pytest.fixture
async def csi_nodes(api, node):
    """The CSINode of the node, as it changes."""
    selector = (("fieldSelector", f"metadata.name={node.name}"),)
    async with api.informer(CSINode, WatchScope("", selector)) as informer:

        async def until(holds):
            with informer.changes() as changes:
                async with asyncio.timeout(PATIENCE):
                    while (found := informer.get(node.name)) is None or not holds(found):
                        await changes.get()
            return found

        yield until


@asynccontextmanager
async def registered(node, tmp_path):
    """A driver that runs on the node, and its registrar."""
    async with serve_driver(backing=PlainBacking(root=tmp_path / "backing"), socket=tmp_path / "csi.sock") as server:
        server.driver.node_info.max_volumes_per_node = 7
        server.driver.node_info.accessible_topology.CopyFrom(csi.Topology(segments={ZONE: "z"}))
        registry = node.root / "plugins_registry"
        registry.mkdir(parents=True, exist_ok=True)
        async with serve_registrar(registry / "d-reg.sock", name=NAME, endpoint=str(server.socket)) as registrar:
            yield server.driver, registrar


def names(found):
    return [each.name for each in found.spec.drivers]


def shape(csi_node: CSINode) -> dict:
    """What a kubelet decides of a CSINode."""
    plain = json.loads(encode(csi_node))
    metadata = plain["metadata"]
    return {
        "owners": [(each["apiVersion"], each["kind"], each["name"]) for each in metadata["ownerReferences"]],
        "annotations": metadata["annotations"],
        "spec": plain["spec"],
    }


async def follow_story(api, node, csi_nodes, agent, tmp_path) -> list[dict]:
    """A driver comes, the agent starts again, the driver goes; returns the CSINode after each step."""
    seen = []
    async with registered(node, tmp_path) as (_, registrar):
        async with node.running(agent()):
            shown = await csi_nodes(lambda found: names(found) == [NAME])
            seen.append(shape(shown))
            found = await api.until_node(
                node.name, lambda found: NODE_ID in found.metadata.annotations, what="names the driver"
            )
            assert found.metadata.annotations[NODE_ID] == '{"csi.klet.test":"node-id"}'
            assert found.metadata.labels[ZONE] == "z"
            assert shown.metadata.owner_references[0].uid == found.metadata.uid
            assert (await registrar.until_notified(1))[0]
        async with node.running(agent()):
            assert (await registrar.until_notified(2))[0]
            again = await csi_nodes(lambda found: names(found) == [NAME])
            assert again.metadata.resource_version == shown.metadata.resource_version
            seen.append(shape(again))
            await registrar.stop()
            seen.append(shape(await csi_nodes(lambda found: names(found) == [])))
            gone = await api.until_node(
                node.name, lambda found: NODE_ID not in found.metadata.annotations, what="names no driver"
            )
            assert gone.metadata.labels[ZONE] == "z"
    return seen


async def test_klet_shows_a_driver_as_upstream_does(api, node, csi_nodes, tmp_path, upstream_kubelet):
    (tmp_path / "klet").mkdir()
    (tmp_path / "upstream").mkdir()
    ours = await follow_story(
        api, node, csi_nodes, lambda: node.klet("--klet-leave-kernel-tunables"), tmp_path / "klet"
    )
    await api.client.delete(Node, node.name)
    await api.client.delete(CSINode, node.name)
    theirs = await follow_story(api, node, csi_nodes, node.upstream, tmp_path / "upstream")
    assert ours == theirs


async def test_a_driver_is_registered_once_it_comes_and_until_it_goes(api, ready, node, csi_nodes, tmp_path):
    async with registered(node, tmp_path) as (_, registrar):
        assert await registrar.until_notified() == (True, "")
        await csi_nodes(lambda found: [each.allocatable.count for each in found.spec.drivers] == [7])
    await csi_nodes(lambda found: names(found) == [])


@pytest.mark.skipif(
    chosen_minor() < PERIOD_SINCE, reason="an API server of that release drops the field: run a newer one"
)
async def test_the_limit_of_a_driver_is_asked_for_again(api, ready, node, csi_nodes, tmp_path):
    manifest = {"metadata": {"name": NAME}, "spec": {"nodeAllocatableUpdatePeriodSeconds": 10}}
    await api.client.create(convert(CSIDriver, manifest))
    try:
        async with registered(node, tmp_path) as (driver, registrar):
            assert await registrar.until_notified() == (True, "")
            await csi_nodes(lambda found: [each.allocatable.count for each in found.spec.drivers] == [7])
            driver.node_info.max_volumes_per_node = 3
            await csi_nodes(lambda found: [each.allocatable.count for each in found.spec.drivers] == [3])
    finally:
        await api.client.delete(CSIDriver, NAME)


async def test_a_driver_that_contradicts_a_label_is_refused(api, ready, node, csi_nodes, tmp_path):
    await api.client.patch(Node, node.name, patch={"metadata": {"labels": {ZONE: "elsewhere"}}})
    try:
        async with registered(node, tmp_path) as (_, registrar):
            accepted, why = await registrar.until_notified()
            assert not accepted
            assert (
                'driver reported "csi.klet.test/zone":"z" but existing label is "csi.klet.test/zone":"elsewhere"' in why
            )
            assert names(await csi_nodes(lambda _: True)) == []
    finally:
        await api.client.patch(Node, node.name, patch={"metadata": {"labels": {ZONE: None}}})

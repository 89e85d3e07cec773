"""A Node that is deleted and made again while the agent runs: its CSINode and its drivers follow."""

import asyncio
from contextlib import asynccontextmanager, suppress

import pytest

from klet.api.kinds import kind_of
from klet.api.meta import ObjectMeta
from klet.api.node import Node
from klet.api.storage import CSINode
from klet.csi_nodes.renewal import CsiNodeRenewal
from klet.embedded.faults import RefuseRequest
from klet.embedded.refusals import modified
from klet.kube.errors import NotFound

D = "d.example.com"
NODE = "node-1"


@asynccontextmanager
async def following(storage):
    nodes = storage.informer(Node)
    renewal = CsiNodeRenewal(
        nodes=nodes,
        node_name=NODE,
        manager=storage.manager,
        drivers=storage.drivers,
        connector=storage.connector,
        start=storage.start,
        clock=storage.clock,
    )
    await storage.initialize()
    async with storage.driver(max_volumes_per_node=7) as (driver, plugin), asyncio.TaskGroup() as group:
        await storage.registration.register(plugin)
        tasks = [group.create_task(nodes.run()), group.create_task(renewal.run())]
        await nodes.until_synced()
        yield driver
        for task in tasks:
            task.cancel()


async def make_again(storage, *, keeps_csi_node):
    await storage.client.delete(Node, NODE)
    if not keeps_csi_node:
        with suppress(NotFound):  # the collector of the API server may be faster
            await storage.client.delete(CSINode, NODE)
    await storage.client.create(Node(metadata=ObjectMeta(name=NODE)))
    return (await storage.node()).metadata.uid


async def until_owned_by(storage, uid):
    async with storage.csi_nodes() as found:
        with found.changes() as changes:
            while True:
                now = found.get(NODE)
                if now and now.metadata.owner_references[0].uid == uid and now.spec.drivers:
                    return now
                await changes.get()


@pytest.mark.parametrize("keeps_csi_node", [True, False], ids=["before the collector", "after the collector"])
async def test_the_csi_node_and_its_drivers_follow(storage, keeps_csi_node):
    async with following(storage) as _, asyncio.timeout(60):
        uid = await make_again(storage, keeps_csi_node=keeps_csi_node)
        found = await until_owned_by(storage, uid)
        assert [(each.name, each.allocatable.count) for each in found.spec.drivers] == [(D, 7)]
        assert D in await storage.node_ids()


async def test_a_refusal_is_tried_again(storage):
    async with following(storage) as _, asyncio.timeout(60):
        refusal = RefuseRequest(modified(kind_of(CSINode), NODE))
        storage.faults.plan(refusal, applies=lambda ask: "csinodes" in ask.path and ask.method == "POST", times=9)
        uid = await make_again(storage, keeps_csi_node=False)
        assert [each.name for each in (await until_owned_by(storage, uid)).spec.drivers] == [D]


async def test_changes_of_the_same_node_ask_no_driver(storage):
    async with following(storage) as driver, asyncio.timeout(60):
        versions = await storage.versions()
        for number in range(20):
            await storage.client.patch(Node, NODE, patch={"metadata": {"labels": {"n": str(number)}}})
        async with storage.csi_nodes():
            pass
        assert len(driver.requests("NodeGetInfo")) == 1
        assert (await storage.versions())[1] == versions[1]

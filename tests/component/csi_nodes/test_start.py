"""The CSINode at the start of the agent: made once, whatever the API server does meanwhile."""

import asyncio
from datetime import timedelta

import pytest

from klet.api.kinds import kind_of
from klet.api.meta import ObjectMeta
from klet.api.node import Node
from klet.api.storage import CSINode
from klet.csi_nodes.errors import CsiNodeError
from klet.csi_nodes.start import TRIES
from klet.embedded.faults import Cut, RefuseRequest
from klet.embedded.refusals import modified, not_found


async def at_once():
    """The Node is there."""


async def test_the_node_is_not_ready_until_it_has_its_csi_node(storage):
    assert storage.start.error() == "CSINode is not yet initialized"
    with storage.start.changes() as changes:
        await storage.new_start(until_node=at_once).run()
        assert changes.drain() == [None]
    assert storage.start.error() is None
    assert (await storage.csi_node()).spec.drivers == ()
    await storage.start.until_initialized()


async def test_it_waits_for_the_node(storage):
    there = asyncio.Event()
    await storage.client.delete(Node, "node-1")
    async with asyncio.TaskGroup() as group:
        group.create_task(storage.new_start(until_node=there.wait).run())
        await storage.client.create(Node(metadata=ObjectMeta(name="node-1")))
        assert storage.start.error() == "CSINode is not yet initialized"
        there.set()
    assert storage.start.error() is None


async def test_a_refusal_is_shown_and_tried_again(storage):
    refusal = RefuseRequest(modified(kind_of(CSINode), "node-1"))
    storage.faults.plan(refusal, applies=lambda ask: "csinodes" in ask.path and ask.method == "POST", times=7)
    shown = []
    with storage.start.changes() as changes:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(storage.new_start(until_node=at_once).run())
            while not task.done():
                await changes.get()
                shown.append(storage.start.error())
                if storage.start.error() is None:
                    break
    assert shown[0].startswith("failed to initialize CSINode: error updating CSINode annotation: timed out waiting")
    assert shown[-1] is None


async def test_an_api_server_that_refuses_to_the_end_ends_the_agent(storage):
    refusal = RefuseRequest(not_found(kind_of(CSINode), "node-1"))
    storage.faults.plan(refusal, applies=lambda ask: "csinodes" in ask.path and ask.method == "POST", times=10_000)
    with pytest.raises(CsiNodeError, match=r"^failed to initialize CSINode after retrying: error updating CSINode"):
        await storage.new_start(until_node=at_once).run()
    assert storage.start.error() is not None
    left = 0
    while storage.faults.take(type("Ask", (), {"method": "POST", "path": "csinodes", "is_watch": False})()):
        left += 1
    assert 10_000 - left == TRIES.tries * 4


async def test_an_api_server_that_is_away_is_waited_for_without_an_end(storage):
    storage.faults.plan(Cut(), times=200)
    await storage.new_start(until_node=at_once).run()
    assert storage.start.error() is None


def test_the_tries_take_as_long_as_upstream():
    class NoChance:
        def random(self):
            return 0.0

    assert sum(TRIES.pauses(NoChance()), timedelta()) == timedelta(milliseconds=30 * (1 + 8 + 64 + 512 + 4096))

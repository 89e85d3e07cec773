"""Drivers that register: the board, their questions, the objects, and what is undone when a step fails."""

import asyncio

import pytest
from msgspec.structs import replace

from klet.api.kinds import kind_of
from klet.api.node import Node
from klet.csi.errors import CsiCallFailed
from klet.csi_nodes.errors import CsiNodeError, DriverNotAccepted
from klet.embedded.faults import RefuseRequest
from klet.embedded.refusals import modified
from klet.testing.csi.faults import DriverFault
from klet.wire import csi_v1_pb2 as pb
from klet.wire.codes import Code

D = "d.example.com"


async def test_a_driver_is_registered_and_goes_again(storage):
    await storage.initialize()
    async with storage.driver(max_volumes_per_node=7) as (_, plugin):
        assert storage.registration.find_problem(plugin) is None
        await storage.registration.register(plugin)
        found = storage.drivers.find(D)
        assert (found.endpoint, str(found.version)) == (plugin.endpoint, "1.0.0")
        assert [(each.name, each.allocatable.count) for each in await storage.entries()] == [(D, 7)]
        await storage.registration.deregister(plugin)
        assert storage.drivers.find(D) is None
        assert await storage.entries() == ()
        assert await storage.node_ids() is None


async def test_topology_reaches_the_node(storage):
    await storage.initialize()
    async with storage.driver() as (driver, plugin):
        driver.node_info.accessible_topology.CopyFrom(pb.Topology(segments={"d.example.com/zone": "z"}))
        await storage.registration.register(plugin)
    assert (await storage.node()).metadata.labels == {"d.example.com/zone": "z"}


async def test_nothing_is_written_before_the_node_has_its_csi_node(storage):
    async with storage.driver() as (driver, plugin), asyncio.TaskGroup() as group:
        group.create_task(storage.registration.register(plugin))
        await driver.wait_for(lambda: "NodeGetInfo" in [call.rpc for call in driver.calls])
        assert storage.drivers.find(D) is not None
        assert await storage.node_ids() is None
        await storage.initialize()
    assert [each.name for each in await storage.entries()] == [D]


async def test_a_second_driver_of_the_name_must_be_newer(storage):
    await storage.initialize()
    async with storage.driver() as (_, plugin):
        await storage.registration.register(plugin)
        assert "already registered with a higher supported version" in storage.registration.find_problem(plugin)
        with pytest.raises(
            DriverNotAccepted, match=r'^kubernetes\.io/csi: RegisterPlugin for CSI driver "d\.example\.com"'
        ):
            await storage.registration.register(plugin)
        assert storage.drivers.find(D) is not None
        newer = replace(plugin, versions=("1.1.0",))
        assert storage.registration.find_problem(newer) is None
        await storage.registration.register(newer)
        assert str(storage.drivers.find(D).version) == "1.1.0"


async def test_a_driver_that_does_not_know_its_node_is_forgotten(storage):
    await storage.initialize()
    async with storage.driver() as (driver, plugin):
        await storage.registration.register(plugin)
        driver.faults.add(DriverFault(rpc="NodeGetInfo", does=Code.UNAVAILABLE, message="not yet"))
        with pytest.raises(CsiCallFailed, match="not yet"):
            await storage.registration.register(replace(plugin, versions=("1.1.0",)))
    assert storage.drivers.find(D) is None
    assert await storage.entries() == ()


async def test_a_driver_without_a_node_id_is_forgotten(storage):
    await storage.initialize()
    async with storage.driver(node_id="") as (_, plugin):
        with pytest.raises(CsiNodeError, match="driverNodeID must not be empty"):
            await storage.registration.register(plugin)
    assert storage.drivers.find(D) is None


async def test_a_driver_that_the_api_server_refuses_is_forgotten(storage, caplog):
    await storage.initialize()
    refusal = RefuseRequest(modified(kind_of(Node), "node-1"))
    storage.faults.plan(refusal, applies=lambda ask: ask.path.endswith("/nodes/node-1/status"), times=8)
    async with storage.driver() as (_, plugin):
        with pytest.raises(CsiNodeError, match="error updating Node object with CSI driver node info"):
            await storage.registration.register(plugin)
    assert storage.drivers.find(D) is None
    assert await storage.node_ids() is None


async def test_a_driver_that_goes_while_it_registers_leaves_nothing(storage):
    async with storage.driver() as (driver, plugin):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(storage.registration.register(plugin))
            await driver.wait_for(lambda: "NodeGetInfo" in [call.rpc for call in driver.calls])
            task.cancel()
        await storage.initialize()
        await storage.registration.deregister(plugin)
    assert storage.drivers.find(D) is None
    assert await storage.entries() == ()

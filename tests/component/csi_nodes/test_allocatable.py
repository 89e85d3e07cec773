"""How many volumes a node can have, asked again and again."""

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from klet.api.meta import ObjectMeta
from klet.api.storage import CSIDriver, CSIDriverSpec
from klet.csi_nodes.allocatable import AllocatableRefresher
from klet.testing.clock import ManualClock
from klet.testing.csi.faults import DriverFault
from klet.wire.codes import Code

D, NODE = "d.example.com", "node-1"
MINUTE = timedelta(minutes=1)


class Refreshing:
    """A refresher that runs, beside a registered driver."""

    def __init__(self, storage, driver, clock, objects, refresher):
        self.storage = storage
        self.driver = driver
        self.clock = clock
        self.refresher = refresher
        self._objects = objects

    def asked(self):
        return len(self.driver.requests("NodeGetInfo"))

    async def until_asked(self, count):
        async with asyncio.timeout(30):
            await self.driver.wait_for(lambda: self.asked() >= count)

    async def until_count(self, count):
        """Wait until the CSINode has it."""
        async with asyncio.timeout(30), self.storage.csi_nodes() as found:
            with found.changes() as changes:
                while [each.allocatable and each.allocatable.count for each in found.get(NODE).spec.drivers] != [count]:
                    await changes.get()

    async def set_period(self, seconds):
        """Write the object of the driver; return when the refresher has seen it."""
        spec = {"nodeAllocatableUpdatePeriodSeconds": seconds}
        with self._objects.changes() as changes:
            await self.storage.client.patch(CSIDriver, D, patch={"spec": spec})
            await changes.get()
        # The refresher has a subscription of its own: it runs in the same turn of the loop, or in the next.
        await self.clock.run(timedelta())


@pytest.fixture
async def refreshing(storage):
    @asynccontextmanager
    async def run(period=60):
        await storage.initialize()
        spec = CSIDriverSpec(node_allocatable_update_period_seconds=period)
        await storage.client.create(CSIDriver(metadata=ObjectMeta(name=D), spec=spec))
        clock, objects = ManualClock(), storage.informer()
        refresher = AllocatableRefresher(
            drivers=storage.drivers, objects=objects, connector=storage.connector, writer=storage.manager, clock=clock
        )
        async with storage.driver(max_volumes_per_node=3) as (driver, plugin), asyncio.TaskGroup() as group:
            tasks = [group.create_task(objects.run()), group.create_task(refresher.run())]
            await objects.until_synced()
            await storage.registration.register(plugin)
            yield Refreshing(storage, driver, clock, objects, refresher), plugin
            for task in tasks:
                task.cancel()

    return run


async def test_a_driver_is_asked_each_period(refreshing):
    async with refreshing() as (bench, _):
        await bench.clock.until_asleep()
        for count, asked in ((5, 2), (2, 3)):
            bench.driver.node_info.max_volumes_per_node = count
            bench.clock.advance(MINUTE)
            await bench.until_asked(asked)
            await bench.until_count(count)
            await bench.clock.until_asleep()


async def test_a_driver_that_fails_is_asked_again(refreshing, caplog):
    async with refreshing() as (bench, _):
        await bench.clock.until_asleep()
        bench.driver.faults.add(DriverFault(rpc="NodeGetInfo", does=Code.INTERNAL, message="no"))
        bench.clock.advance(MINUTE)
        await bench.until_asked(2)
        await bench.clock.until_asleep()
        assert "Volume count of the node not refreshed" in caplog.text
        bench.driver.node_info.max_volumes_per_node = 9
        bench.clock.advance(MINUTE)
        await bench.until_count(9)


async def test_a_period_that_changes_counts_from_then(refreshing):
    async with refreshing(period=600) as (bench, _):
        await bench.clock.until_asleep()
        await bench.set_period(60)
        await bench.clock.until_asleep()
        bench.clock.advance(MINUTE)
        await bench.until_asked(2)


async def test_a_driver_without_a_period_is_not_asked(refreshing):
    async with refreshing() as (bench, _):
        await bench.clock.until_asleep()
        await bench.set_period(None)
        await bench.clock.run(timedelta(hours=1))
        assert bench.asked() == 1
        assert bench.clock.sleepers() == 0


async def test_a_driver_that_goes_is_not_asked(refreshing):
    async with refreshing() as (bench, plugin):
        await bench.clock.until_asleep()
        await bench.storage.registration.deregister(plugin)
        await bench.clock.run(timedelta(hours=1))
        assert bench.asked() == 1


async def test_a_driver_can_be_asked_at_once(refreshing):
    async with refreshing() as (bench, _):
        bench.driver.node_info.max_volumes_per_node = 1
        await bench.refresher.refresh(D)
        await bench.until_count(1)
        await bench.refresher.refresh("unknown")
        assert bench.asked() == 2

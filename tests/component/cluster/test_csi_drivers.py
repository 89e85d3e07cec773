"""CSI drivers of a whole agent: found by their sockets, registered over gRPC, shown in the CSINode and the Node."""

import asyncio
import random
from contextlib import asynccontextmanager

import pytest

from klet.aio.clock import SystemClock
from klet.api.meta import ObjectMeta
from klet.api.storage import CSIDriver, CSIDriverSpec, CSINode
from klet.cri.errors import Code
from klet.csi_nodes.node_objects import NODE_ID_ANNOTATION
from klet.kube.informer import Informer, InformerSettings
from klet.kube.watch import WatchScope
from klet.testing.csi.backing import PlainBacking
from klet.testing.csi.serving import serve_driver
from klet.testing.fake_runtime import Fault
from klet.testing.fake_runtime.faults import ANY, Fail
from klet.testing.registrar import serve_registrar
from klet.wire import csi_v1_pb2 as csi

NAME = "csi.klet.test"


class Watched:
    """The CSINode as it changes."""

    def __init__(self, informer):
        self._informer = informer

    async def until(self, holds):
        with self._informer.changes() as changes:
            async with asyncio.timeout(30):
                while (found := self._informer.get("node")) is None or not holds(found):
                    await changes.get()
        return found

    async def until_drivers(self, *names):
        return await self.until(lambda found: tuple(each.name for each in found.spec.drivers) == names)


@pytest.fixture
async def csi_node(node):
    settings = InformerSettings(node.cluster.client, node.cluster.watcher, SystemClock(), random.Random(1))
    informer = Informer(struct=CSINode, scope=WatchScope(), settings=settings)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(informer.run())
        await informer.until_synced()
        yield Watched(informer)
        task.cancel()


@asynccontextmanager
async def driver(directory):
    """A driver that runs."""
    async with serve_driver(backing=PlainBacking(root=directory / "backing"), socket=directory / "csi.sock") as server:
        server.driver.node_info.max_volumes_per_node = 7
        server.driver.node_info.accessible_topology.CopyFrom(csi.Topology(segments={"csi.klet.test/zone": "z"}))
        yield server


def registry(node):
    found = node.root / "plugins_registry"
    found.mkdir(parents=True, exist_ok=True)
    return found


def registrar(node, server):
    """What registers the driver, as node-driver-registrar does."""
    return serve_registrar(registry(node) / "d-reg.sock", name=NAME, endpoint=str(server.socket))


async def until_node(node, holds):
    with node.nodes.changes() as changes:
        async with asyncio.timeout(30):
            while (found := node.nodes.get("node")) is None or not holds(found):
                await changes.get()
    return found


def ready(found):
    return next((each for each in found.status.conditions if each.type == "Ready"), None)


def is_ready(found):
    return (condition := ready(found)) is not None and condition.status == "True"


async def test_a_node_is_ready_once_it_has_its_csi_node(node, csi_node):
    async with node.run():
        found = await until_node(node, is_ready)
        made = await csi_node.until_drivers()
        assert made.metadata.owner_references[0].uid == found.metadata.uid


async def test_a_driver_is_shown_until_it_goes_and_stays_when_the_agent_starts_again(node, csi_node, tmp_path):
    async with driver(tmp_path) as server, registrar(node, server) as registers:
        async with node.run():
            shown = await csi_node.until_drivers(NAME)
            [entry] = shown.spec.drivers
            assert (entry.node_id, entry.topology_keys, entry.allocatable.count) == (
                "node-id",
                ("csi.klet.test/zone",),
                7,
            )
            named = await until_node(node, lambda found: NODE_ID_ANNOTATION in found.metadata.annotations)
            assert named.metadata.annotations[NODE_ID_ANNOTATION] == '{"csi.klet.test":"node-id"}'
            assert named.metadata.labels["csi.klet.test/zone"] == "z"
            assert await registers.until_notified(1) == (True, "")
            assert (
                f'plugin_manager_total_plugins{{socket_path="{registers.socket}",state="actual_state_of_world"}} 1'
                in (node.metrics.write().decode())
            )
        async with node.run():
            assert await registers.until_notified(2) == (True, "")
            again = await csi_node.until_drivers(NAME)
            assert again.metadata.resource_version == shown.metadata.resource_version
            await registers.stop()
            await csi_node.until_drivers()
            gone = await until_node(node, lambda found: NODE_ID_ANNOTATION not in found.metadata.annotations)
            assert gone.metadata.labels["csi.klet.test/zone"] == "z"


async def test_a_plugin_that_cannot_be_a_driver_learns_why(node, tmp_path):
    async with node.run(), serve_registrar(registry(node) / "a.sock", name="../etc", endpoint="/x") as registrar:
        registered, error = await registrar.until_notified()
        assert not registered
        assert error.startswith("RegisterPlugin error -- plugin validation failed with err: validation failed for CSI")


async def test_device_plugins_have_no_handler_yet(node):
    socket = registry(node) / "a.sock"
    async with node.run(), serve_registrar(socket, type="DevicePlugin", name="example.com/gpu") as registrar:
        assert await registrar.until_notified() == (
            False,
            f"RegisterPlugin error -- no handler registered for plugin type: DevicePlugin at socket {socket}",
        )


async def test_the_number_of_volumes_is_asked_for_again(node, csi_node, tmp_path):
    spec = CSIDriverSpec(node_allocatable_update_period_seconds=1)
    await node.cluster.client.create(CSIDriver(metadata=ObjectMeta(name=NAME), spec=spec))
    async with driver(tmp_path) as server, registrar(node, server), node.run():
        await csi_node.until(lambda found: [each.allocatable.count for each in found.spec.drivers] == [7])
        server.driver.node_info.max_volumes_per_node = 3
        await csi_node.until(lambda found: [each.allocatable.count for each in found.spec.drivers] == [3])


async def test_plugins_are_asked_once_the_runtime_has_answered(node, csi_node):
    node.machine.met = None
    away = Fail(Code.UNAVAILABLE, "connection error: no such file or directory")
    fault = node.machine.runtime.faults.add(Fault(ANY, away, count=None))
    async with node.run(), serve_registrar(registry(node) / "a.sock", type="Strange") as registrar:
        await csi_node.until_drivers()
        assert registrar.asked == 0
        fault.release()
        assert not (await registrar.until_notified())[0]

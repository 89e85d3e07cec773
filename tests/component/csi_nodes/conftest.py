"""A node at an API server, a test driver, and what registers it."""

import asyncio
import random
from contextlib import asynccontextmanager

import pytest

from klet.aio.clock import SystemClock
from klet.api.meta import ObjectMeta
from klet.api.node import Node
from klet.api.storage import CSIDriver, CSINode
from klet.csi.client import CsiConnector
from klet.csi.metrics import register_csi_calls
from klet.csi_nodes.drivers import CsiDriverBoard
from klet.csi_nodes.info_manager import NodeInfoManager
from klet.csi_nodes.node_objects import NODE_ID_ANNOTATION
from klet.csi_nodes.registration import CsiRegistration
from klet.csi_nodes.start import CsiNodeBoard, CsiNodeStart
from klet.kube.informer import Informer, InformerSettings
from klet.kube.watch import WatchScope
from klet.metrics import MetricRegistry
from klet.model.plugins import PluginInfo
from klet.testing.clock import FastClock
from klet.testing.csi.backing import PlainBacking
from klet.testing.csi.serving import serve_driver

NODE = "node-1"


class Storage:
    """The objects of one node, and what writes them."""

    def __init__(self, cluster, directory):
        self.cluster = cluster
        self.client = cluster.client
        self.faults = cluster.api.faults
        self.directory = directory
        self.clock = FastClock()
        self.drivers = CsiDriverBoard()
        self.start = CsiNodeBoard()
        self.connector = CsiConnector(durations=register_csi_calls(MetricRegistry()), clock=SystemClock())
        self.manager = self.new_manager()
        self.registration = CsiRegistration(
            connector=self.connector, drivers=self.drivers, objects=self.manager, start=self.start
        )

    def new_manager(self):
        return NodeInfoManager(client=self.client, node_name=NODE, clock=self.clock, randomness=random.Random(1))

    def new_start(self, *, until_node):
        return CsiNodeStart(
            client=self.client,
            manager=self.manager,
            board=self.start,
            until_node=until_node,
            node_name=NODE,
            clock=self.clock,
            randomness=random.Random(1),
        )

    def informer(self, struct=CSIDriver):
        settings = InformerSettings(self.client, self.cluster.watcher, self.clock, random.Random(1))
        return Informer(struct=struct, scope=WatchScope(), settings=settings)

    @asynccontextmanager
    async def csi_nodes(self):
        """The CSINodes, as they change."""
        informer = self.informer(CSINode)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(informer.run())
            await informer.until_synced()
            yield informer
            task.cancel()

    async def initialize(self):
        await self.manager.initialize()
        self.start.put(None)

    async def node(self):
        return await self.client.get(Node, NODE)

    async def node_ids(self):
        return (await self.node()).metadata.annotations.get(NODE_ID_ANNOTATION)

    async def csi_node(self):
        return await self.client.get(CSINode, NODE)

    async def entries(self):
        return (await self.csi_node()).spec.drivers

    async def versions(self):
        """What changes with each write."""
        return [each.metadata.resource_version for each in (await self.node(), await self.csi_node())]

    @asynccontextmanager
    async def driver(self, name="d.example.com", **info):
        """A driver, and what its registrar would say of it."""
        backing = PlainBacking(root=self.directory / "backing")
        async with serve_driver(backing=backing, socket=self.directory / "d.sock", name=name) as server:
            for field, value in info.items():
                setattr(server.driver.node_info, field, value)
            plugin = PluginInfo(type="CSIPlugin", name=name, endpoint=str(server.socket), versions=("1.0.0",))
            yield server.driver, plugin


@pytest.fixture
async def storage(cluster, tmp_path):
    await cluster.client.create(Node(metadata=ObjectMeta(name=NODE)))
    return Storage(cluster, tmp_path)

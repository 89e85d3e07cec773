"""An agent that is a node of the embedded API's cluster: a fake runtime, and volumes in directories that are real."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from klet.aio.clock import Clock, SystemClock
from klet.aio.threads import Threads
from klet.api.codec import convert
from klet.api.meta import ObjectMeta
from klet.api.node import Node
from klet.api.pod import Pod
from klet.app.cluster.drivers import DriverSettings, build_drivers
from klet.app.cluster.join import Cluster, find_host_ips
from klet.app.cluster.node import ReportSettings
from klet.app.cluster.objects import ObjectSettings, build_served_objects
from klet.app.node import NodeSpecification, build_node
from klet.app.opening import open_plugins
from klet.config.gates import resolve_gates
from klet.errors import KletError
from klet.events.recorder import EventingRecorder
from klet.host.inotify import watch_directory
from klet.kube.informer import Informer
from klet.kube.node_informers import build_informers
from klet.metrics import MetricRegistry
from klet.model.features import PodFeatures
from klet.model.roles import PodSink
from klet.node.pod_cidrs import PodCidrs
from klet.offline.keeping import Offline
from klet.offline.outage import Outage
from klet.offline.sealing import load_sealer
from klet.offline.store import open_store
from klet.simulation.clients import simulated_clients
from klet.simulation.node import RealDirectories, SimulatedNode, running, simulated_settings
from klet.sources.config import PodConfig
from klet.sources.gated_fields import GatedPods
from klet.status.board import StatusBoard
from klet.testing.builders import IMAGE
from klet.testing.fake_runtime.images import FakeImage
from klet.testing.fake_runtime.machine import FakeRuntime
from klet.testing.fake_runtime.world import Features
from klet.testing.in_process import run_in_process

NODE = "node"


class TakenCidrs:
    """Whoever makes addresses of pod CIDRs; it may have trouble at first."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, ...]] = []
        self.failures = 0

    async def use(self, cidrs: tuple[str, ...]) -> None:
        if self.failures:
            self.failures -= 1
            raise KletError("the runtime is not there")
        self.taken.append(cidrs)


class ClusterNode:
    """What outlives the agent."""

    def __init__(self, cluster: Any, root: Path, threads: Threads) -> None:
        self.clock = SystemClock()
        self.cluster = cluster
        self.root = root
        self._threads = threads
        features = Features(runtime_handlers=("", "runc", "crun"))
        runtime = FakeRuntime(start=self.clock.now(), images=(FakeImage(name=IMAGE),), features=features)
        directories = RealDirectories(root=root, threads=threads)
        self.mounts = directories.mounts
        self.machine = SimulatedNode(clock=self.clock, runtime=runtime, directories=directories)
        self.pods: Informer[Pod]
        self.nodes: Informer[Node]
        self.offline_after: timedelta | None = None
        """Set it for an agent that goes on without its API server."""
        self.declared_features: tuple[str, ...] | None = None
        """What the node declares that it can do."""
        self.has_pod_certificates = True
        self.watch_clock: Clock = self.clock
        """By which watches wait before they are tried again."""
        self.gates = resolve_gates({})
        self.statuses: StatusBoard
        self.metrics: MetricRegistry
        self.cidrs = TakenCidrs()

    def set_features(self, **features: bool) -> None:
        """Give the runtime features; before the agent runs."""
        known = Features(runtime_handlers=("", "runc", "crun"), **features)
        self.machine.runtime = FakeRuntime(start=self.clock.now(), images=(FakeImage(name=IMAGE),), features=known)

    @asynccontextmanager
    async def run(self, *, strategy: str = "Watch") -> AsyncIterator[None]:
        """An agent on the machine, joined with the API server, until the block is left."""
        recorder = EventingRecorder(inner=self.machine.journal, clock=self.clock)
        changes = PodConfig(sources=("api",), recorder=recorder, clock=self.clock)
        sink = GatedPods(is_enabled=self.gates.enabled, sink=changes)
        cluster = await self._join(strategy, events=recorder, sink=sink)
        self.machine.has_image_volumes = self.gates.enabled("ImageVolume")
        features = PodFeatures(ready_to_start=self.gates.enabled("PodReadyToStartContainersCondition"))
        settings = replace(
            simulated_settings(8, features=features, node=self.machine.settings),
            has_pod_level_resources=self.gates.enabled("PodLevelResources"),
            declared_features=self.declared_features,
        )
        async with run_in_process(self.machine.runtime, clock=self.clock) as runtime:
            ports = self.machine.build_ports(runtime, changes, seed=1, objects=cluster.objects, recorder=recorder)
            addresses = find_host_ips(cluster, expected=tuple(map(str, self.machine.machine.addresses)))
            plugins = open_plugins(self.root, cluster.drivers.handlers, threads=self._threads, clock=self.clock)
            ports = replace(ports, host_ips=addresses, node_ips=addresses, plugins=plugins)
            node = build_node(NodeSpecification(settings=settings, ports=ports, cluster=cluster))
            self.pods, self.nodes = cluster.informers.pods, cluster.informers.node
            self.statuses = node.agent.statuses
            self.metrics = node.agent.metrics.agent
            async with running(node.parts):
                yield

    async def _join(self, strategy: str, *, events: EventingRecorder, sink: PodSink) -> Cluster:
        randomness = random.Random(1)
        reach = self.cluster
        clients = simulated_clients(
            reach.client, reach.watcher, reach.transport, clock=self.watch_clock, randomness=randomness
        )
        informers, offline = build_informers(clients.informers, NODE), await self._open_offline()
        served = build_served_objects(
            clients,
            informers,
            settings=ObjectSettings(
                node_name=NODE,
                strategy=strategy,
                sync_period=timedelta(minutes=1),
                has_trust_bundles=True,
                has_pod_certificates=self.has_pod_certificates,
            ),
            offline=offline,
            clock=self.clock,
            randomness=randomness,
        )
        drivers = build_drivers(
            clients.main,
            informers.csi_drivers,
            settings=DriverSettings(node_name=NODE),
            metrics=MetricRegistry(),
            clock=self.clock,
            randomness=randomness,
        )
        return Cluster(
            clients=clients,
            informers=informers,
            offline=offline,
            objects=replace(served.objects, csi=drivers.volumes),
            certificates=served.certificates,
            events=events,
            sink=sink,
            drivers=drivers,
            cidrs=PodCidrs(users=(self.cidrs,)),
            reports=ReportSettings(node=replace(self.machine.settings, declared_features=self.declared_features or ())),
            parts=(*informers.followed, *served.parts),
        )

    async def _open_offline(self) -> Offline | None:
        if self.offline_after is None:
            return None
        store = await open_store(
            self.root / "klet-offline", node_name=NODE, make_sealer=load_sealer, threads=self._threads, clock=self.clock
        )
        return Offline(store=store, outage=Outage(), patience=self.offline_after, node_name=NODE, clock=self.clock)

    async def bind(self, name: str = "p", *, container: dict[str, Any] | None = None, **spec: Any) -> Pod:
        """Put a pod on this node; its volumes are mounted by their names."""
        mounts = [{"name": each["name"], "mountPath": f"/{each['name']}"} for each in spec.get("volumes", ())]
        main = {"name": "c", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "volumeMounts": mounts}
        fields = {"nodeName": NODE, "terminationGracePeriodSeconds": 0, "dnsPolicy": "Default"}
        body = {"metadata": {"name": name}, "spec": {"containers": [main | (container or {})]} | fields | spec}
        return await self.cluster.client.create(convert(Pod, body), "default")

    async def until(self, holds: Callable[[Pod | None], bool], name: str = "p") -> Pod | None:
        with self.pods.changes() as changes:
            async with asyncio.timeout(30):
                while not holds(found := self.pods.get(name, "default")):
                    await changes.get()
        return found

    async def until_running(self, name: str = "p") -> Pod:
        found = await self.until(lambda pod: pod is not None and pod.status.phase == "Running", name)
        assert found is not None
        return found

    async def reported(self, decision: str) -> list[str]:
        """The messages of a decision, once there is one."""
        journal = self.machine.journal
        with journal.follow() as news:
            async with asyncio.timeout(30):
                while not (found := [c.finding.message for c in journal.all() if c.finding.decision == decision]):
                    await news.get()
        return found

    def environment(self, container: str = "c") -> dict[str, str]:
        [made] = [each for each in self.machine.runtime.containers() if each.config.metadata.name == container]
        return {variable.key: variable.value.decode() for variable in made.config.envs}

    def volume(self, pod: Pod, plugin: str, name: str = "v") -> Path:
        return self.root / "pods" / pod.metadata.uid / "volumes" / f"kubernetes.io~{plugin}" / name

    async def until_shown(self, file: Path, text: str) -> float:
        """Wait for the content of a file; return when it was there."""
        async with asyncio.timeout(30), aclosing(watch_directory(file.parent)) as changes:
            async for _ in changes:
                if shows(file, text):
                    return self.clock.monotonic()
        raise AssertionError("a watch of a directory never ends")


def shows(file: Path, text: str) -> bool:
    return file.exists() and file.read_text() == text


@pytest.fixture
async def node(cluster, tmp_path) -> AsyncIterator[ClusterNode]:
    await cluster.client.create(Node(metadata=ObjectMeta(name=NODE)))
    threads = Threads(limit=8)
    yield ClusterNode(cluster, tmp_path / "root", threads)
    threads.close()

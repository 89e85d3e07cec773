"""A node's volumes with a real API server; memory is played by plain directories."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path

import pytest

from klet.aio.clock import SystemClock
from klet.aio.threads import Threads
from klet.allocation.book import AllocationBook
from klet.api.codec import convert
from klet.api.config import ConfigMap
from klet.api.pod import Pod
from klet.api.quantity import Quantity
from klet.certs.pod_certificates.board import NoPodCertificates
from klet.host.inotify import watch_directory
from klet.kube.informer import InformerSettings
from klet.metrics import MetricRegistry
from klet.model.causes import CauseId, Finding
from klet.objectcache.claims import StandaloneClaims
from klet.objectcache.cluster import build_cluster_objects
from klet.objectcache.tokens import TokenCache
from klet.objectcache.trust_bundles import NoTrustBundles
from klet.testing.mounts import NotedMounts
from klet.volumes.build import ManagerPorts, VolumePorts, build_manager, build_plugins
from klet.volumes.directories import PodDirectories
from klet.volumes.keeper import VolumeKeeper
from klet.volumes.names import Layout

BUDGET = 1.0
"""Seconds from a change at the API server to the files of a pod."""


class Clock(SystemClock):
    """Real time that a test can put forward."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def now(self):
        return super().now() + self.ahead


class Journal:
    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.arrived = asyncio.Event()

    def record(self, finding: Finding, *, parent: CauseId | None = None) -> CauseId:
        assert parent is None
        self.findings.append(finding)
        self.arrived.set()
        return CauseId(str(len(self.findings)))


class Resources:
    def allocatable(self):
        return {"cpu": Quantity.parse("2"), "memory": Quantity.parse("1Gi")}


class VolumeNode:
    """Object caches, the volume manager and its keeper, as the agent joins them."""

    def __init__(
        self,
        cluster,
        root: Path,
        threads: Threads,
        strategy: str = "Watch",
        refresh: timedelta = timedelta(minutes=1),
    ) -> None:
        self.root = root
        self.clock = Clock()
        self.refresh = refresh
        self.cluster = cluster
        self.journal = Journal()
        self.mounter = NotedMounts()
        settings = InformerSettings(cluster.client, cluster.watcher, self.clock, random.Random(1))
        self.objects = build_cluster_objects(
            strategy, settings=settings, node=lambda: None, sync_period=timedelta(minutes=1)
        )
        self.tokens = TokenCache(client=cluster.client, randomness=random.Random(1), clock=self.clock)
        ports = VolumePorts(
            root=root,
            objects=self.objects,
            tokens=self.tokens,
            trust=NoTrustBundles(),
            certificates=NoPodCertificates(),
            node=Resources(),
            mounter=self.mounter,
            recorder=self.journal,
            threads=threads,
            clock=self.clock,
            has_api=True,
            noswap=False,
        )
        self.volumes = build_manager(
            ManagerPorts(
                registry=MetricRegistry(),
                plugins=build_plugins(ports),
                allocations=AllocationBook(),
                disk=PodDirectories(layout=Layout(root), threads=threads),
                recorder=self.journal,
                refresh=self.refresh,
                randomness=random.Random(1),
                clock=self.clock,
                claims=StandaloneClaims(),
                find_node=lambda: None,
            )
        )
        self.keeper = VolumeKeeper(objects=(self.objects,), volumes=self.volumes)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for part in (self.objects, self.tokens, self.volumes, self.keeper):
                group.create_task(part.run())

    def give(self, pod: Pod) -> None:
        """What a sync does first."""
        self.objects.register(pod)
        self.volumes.process(pod)

    async def start(self, pod: Pod) -> None:
        self.give(pod)
        await self.volumes.wait_for_attach_and_mount(pod)

    async def end(self, uid: str) -> None:
        await self.volumes.wait_for_unmount(uid)
        self.objects.unregister(uid)

    def path(self, pod: Pod, volume: str = "v") -> Path:
        return Path(self.volumes.mounted_volumes(pod.metadata.uid)[volume].path)

    async def change(self, name: str = "cfg", **data: str) -> float:
        """Change a config map; returns when that was asked for."""
        began = self.clock.monotonic()
        await self.cluster.client.patch(ConfigMap, name, "default", patch={"data": data})
        return began

    async def until_shown(self, directory: Path, name: str, text: str) -> float:
        """Wait for the content of a file; returns when it was there."""
        async with aclosing(watch_directory(directory)) as changes:
            async for _ in changes:
                if (directory / name).exists() and (directory / name).read_text() == text:
                    return self.clock.monotonic()
        raise AssertionError("a watch of a directory never ends")


@pytest.fixture
def threads():
    made = Threads(limit=8)
    yield made
    made.close()


@pytest.fixture
async def node(cluster, tmp_path, threads) -> AsyncIterator[VolumeNode]:
    made = VolumeNode(cluster, tmp_path, threads)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(made.run())
        yield made
        task.cancel()


@pytest.fixture
def volume_node(cluster, tmp_path, threads):
    """Makes another node over the same directory, as an agent does that restarts."""

    def make(strategy: str = "Watch", **options: timedelta) -> VolumeNode:
        return VolumeNode(cluster, tmp_path, threads, strategy, **options)

    return make


@pytest.fixture
def pod_with():
    def make(*volumes, uid="u", labels=None, **spec) -> Pod:
        named = [{"name": "v", **volume} for volume in volumes]
        mounts = [{"name": volume["name"], "mountPath": f"/{volume['name']}"} for volume in named]
        meta = {"name": f"pod-{uid}", "namespace": "default", "uid": uid, "labels": labels or {"app": "x"}}
        containers = [{"name": "c", "image": "i", "volumeMounts": mounts}]
        return convert(Pod, {"metadata": meta, "spec": {"containers": containers, "volumes": named, **spec}})

    return make


@pytest.fixture
def budget() -> float:
    return BUDGET

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
from klet.host.project_quotas import NoQuotas
from klet.kube.informer import InformerSettings
from klet.metrics import MetricRegistry
from klet.model.causes import CauseId, Finding
from klet.model.objects import ObjectMissing
from klet.objectcache.claims import StandaloneClaims
from klet.objectcache.cluster import build_cluster_objects
from klet.objectcache.tokens import TokenCache
from klet.objectcache.trust_bundles import NoTrustBundles
from klet.testing.attachable import AttachableDisks, DiskRack
from klet.testing.clock import ManualClock, SteppingClock
from klet.testing.devices import MemoryDevices
from klet.testing.mounts import NotedMounts
from klet.testing.no_storage import no_storage
from klet.testing.storage import DiskTrees, RecordingTools, ToolMounts, storage_of
from klet.testing.volume_cluster import VolumeCluster
from klet.volumes.build import ManagerPorts, VolumePorts, build_manager, build_plugins
from klet.volumes.directories import PodDirectories
from klet.volumes.keeper import VolumeKeeper
from klet.volumes.labels import LabelRules
from klet.volumes.names import Layout

BUDGET = 15.0
"""Seconds from a change at the API server to the files of a pod, on a machine with much else to do: what waits for the
next look takes a minute. How quick it is on a machine at rest is measured by bench/cluster."""


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
            strategy,
            settings=settings,
            client=cluster.client,
            node=lambda: None,
            sync_period=timedelta(minutes=1),
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
            storage=no_storage(root),
            devices=MemoryDevices(),
            quotas=NoQuotas(),
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
                layout=Layout(root),
                devices=MemoryDevices(),
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


class StagedNode:
    """A machine with disks, and the agents that run on it one after the other."""

    def __init__(self, group):
        self.group = group
        self.clock = SteppingClock()
        self.rack = DiskRack()
        self.devices = MemoryDevices(effect=self.rack.effect)
        self.devices.links, self.devices.maps = self.rack.links, self.rack.maps
        self.cluster = VolumeCluster()
        self.notes = Journal()
        self.attaches = False
        self.labels = LabelRules()
        self.has_api = True
        self.tasks = []
        self.begin()

    def begin(self):
        """Make an agent that does not run yet."""
        self.disks = AttachableDisks(self.rack)
        self.registry = MetricRegistry()
        self.volumes = build_manager(
            ManagerPorts(
                registry=self.registry,
                plugins=(self.disks,),
                allocations=AllocationBook(),
                layout=Layout(Path("/")),
                disk=self.rack,
                devices=self.devices,
                recorder=self.notes,
                refresh=timedelta(minutes=1),
                randomness=random.Random(1),
                clock=self.clock,
                claims=self.cluster,
                find_node=self.cluster.find,
                node=self.cluster if self.has_api else None,
                node_name="n1",
                attaches=self.attaches,
                labels=self.labels,
            )
        )

    async def start(self):
        self.tasks.append(self.group.create_task(self.volumes.run()))
        await self.settle()

    async def kill(self):
        """End the agent without letting it do anything more, and begin another one."""
        self.rack.killed.set()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.tasks.clear()
        self.rack.kill_after = None
        self.rack.killed = asyncio.Event()
        self.begin()

    async def settle(self, duration=timedelta()):
        await self.clock.run(duration)

    def report(self):
        """What a sync of the node's status does."""
        self.volumes.mark_reported_in_use(self.volumes.volumes_in_use() or ())

    async def go_on(self, *names):
        """Report the volumes in use, and be the controller that attaches them."""
        self.report()
        self.cluster.attach(*names)
        await self.settle()

    async def wait(self, pod):
        """Somebody who waits for the volumes of a pod."""
        waiter = asyncio.ensure_future(self.volumes.wait_for_attach_and_mount(pod))
        self.tasks.append(waiter)
        await self.settle()
        return waiter

    async def end(self, uid):
        ending = asyncio.ensure_future(self.volumes.wait_for_unmount(uid))
        self.tasks.append(ending)
        await self.settle()
        return ending

    def messages(self):
        return [f"{finding.decision} {finding.message}" for finding in self.notes.findings]

    def metrics(self, prefix):
        """What a scrape shows of the metrics that begin so."""
        lines = self.registry.write().decode().splitlines()
        return dict(line.rsplit(" ", 1) for line in lines if line.startswith(prefix))


@pytest.fixture
async def staged():
    async with asyncio.TaskGroup() as group:
        made = StagedNode(group)
        yield made
        for task in made.tasks:
            task.cancel()
        await asyncio.gather(*made.tasks, return_exceptions=True)


@pytest.fixture
async def running(staged):
    """The same, with an agent that runs on it."""
    staged.cluster.attach()
    await staged.start()
    return staged


def disk(name="a", volume="v"):
    """A disk as a volume of the pod itself."""
    return {"name": volume, "gcePersistentDisk": {"pdName": name}}


@pytest.fixture
def pod_on():
    """Makes pods that mount disks, or claims (`claim=`), or have them as devices (`devices=`)."""

    def make(*volumes, uid="u", claims=(), devices=(), read_only=False, **context):
        named = [*volumes, *({"name": name, **_claim(name, read_only=read_only)} for name in (*claims, *devices))]
        mounts = [{"name": each["name"], "mountPath": f"/{each['name']}"} for each in named]
        container = {
            "name": "c",
            "image": "i",
            "volumeMounts": [each for each in mounts if each["name"] not in devices],
            "volumeDevices": [{"name": name, "devicePath": f"/dev/{name}"} for name in devices],
        }
        meta = {"name": f"pod-{uid}", "namespace": "ns", "uid": uid}
        spec = {"containers": [container], "volumes": named, "securityContext": context}
        return convert(Pod, {"metadata": meta, "spec": spec})

    return make


def _claim(name, *, read_only):
    return {"persistentVolumeClaim": {"claimName": name, "readOnly": read_only}}


@pytest.fixture
def disk_volume():
    return disk


IQN, PORTAL = "iqn.2030-01.example:disks", "10.0.0.1:3260"
IFACE = """case "$*" in *"-o show"*) echo "iface.transport_name = tcp" ;; esac"""


class NamespacedSecrets:
    """Secrets by namespace and name."""

    def __init__(self):
        self.secrets = {}

    async def secret(self, namespace, name):
        if (namespace, name) not in self.secrets:
            raise ObjectMissing(f'secret "{name}" not found')
        return self.secrets[namespace, name]


class JumpingClock(ManualClock):
    """Time passes at once for whoever waits."""

    async def sleep(self, duration):
        self.advance(duration)


class NotAsked:
    """Stands for what these plugins never ask."""


class DiskNode:
    """A machine with disks."""

    def __init__(self, tmp_path, threads):
        self.root = tmp_path / "kubelet"
        self.root.mkdir()
        self.machine = RecordingTools(tmp_path / "bin")
        self.trees = DiskTrees(tmp_path)
        self.mounts = ToolMounts(self.machine)
        for name in ("mkfs.ext4", "fsck", "multipath", "blockdev"):
            self.machine.add(name)
        self.machine.add("blkid", "exit 2")
        self.machine.add("iscsiadm", IFACE)
        self.secrets = NamespacedSecrets()
        self.clock = JumpingClock()
        self.devices = MemoryDevices()
        self.threads = threads
        self.plugins = self.restart()

    def build_ports(self):
        return VolumePorts(
            root=self.root,
            objects=self.secrets,
            tokens=NotAsked(),
            trust=NoTrustBundles(),
            certificates=NoPodCertificates(),
            node=NotAsked(),
            mounter=self.mounts,
            devices=self.devices,
            storage=storage_of(self.machine, self.trees),
            quotas=NoQuotas(),
            recorder=NotAsked(),
            threads=self.threads,
            clock=self.clock,
            has_api=True,
            noswap=False,
        )

    def restart(self):
        return {plugin.name: plugin for plugin in build_plugins(self.build_ports())}

    @property
    def iscsi(self):
        return self.plugins["kubernetes.io/iscsi"]

    @property
    def fc(self):
        return self.plugins["kubernetes.io/fc"]

    @property
    def iscsi_place(self):
        return self.root / "plugins/kubernetes.io/iscsi/iface-default" / f"{PORTAL}-{IQN}-lun-3"


@pytest.fixture
def disk_node(tmp_path, threads):
    return DiskNode(tmp_path, threads)


class ManagedDisks:
    """One run of a volume manager that attaches by itself, on a machine with disks."""

    def __init__(self, disk_node: DiskNode) -> None:
        self.disks = disk_node
        ports = disk_node.build_ports()
        layout = Layout(disk_node.root)
        self.manager = build_manager(
            ManagerPorts(
                registry=MetricRegistry(),
                plugins=build_plugins(ports),
                allocations=AllocationBook(),
                disk=PodDirectories(layout=layout, threads=disk_node.threads),
                recorder=Journal(),
                refresh=timedelta(minutes=1),
                randomness=random.Random(1),
                clock=SystemClock(),
                claims=StandaloneClaims(),
                find_node=lambda: None,
                layout=layout,
                devices=disk_node.devices,
                attaches=True,
            )
        )


@pytest.fixture
def managed():
    return ManagedDisks

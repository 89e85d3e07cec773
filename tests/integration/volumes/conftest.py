"""A node's volumes on this machine's mounts; the objects that they show are in dictionaries."""

import asyncio
import os
import random
from datetime import UTC, datetime, timedelta

import pytest

from klet.aio.clock import SystemClock
from klet.aio.threads import Threads
from klet.allocation.book import AllocationBook
from klet.api.codec import convert
from klet.api.config import ConfigMap, Secret
from klet.api.pod import Pod
from klet.api.quantity import Quantity
from klet.certs.pod_certificates.board import NoPodCertificates
from klet.host import mounts
from klet.host.loop_devices import LoopDevices
from klet.host.mounts import Propagation
from klet.host.project_quotas import NoQuotas
from klet.metrics import MetricRegistry
from klet.model.objects import IssuedToken
from klet.objectcache.claims import StandaloneClaims
from klet.objectcache.trust_bundles import NoTrustBundles
from klet.testing.no_storage import no_storage
from klet.volumes.build import ManagerPorts, VolumePorts, build_manager, build_plugins
from klet.volumes.directories import PodDirectories
from klet.volumes.host_devices import HostDevices
from klet.volumes.host_mounter import HostMounter, find_noswap
from klet.volumes.names import Layout
from klet.volumes.orphans import OrphanedPods

NODE_MEMORY = 64 << 20


class Objects:
    def __init__(self):
        self.config_maps = {"cfg": ConfigMap(data={"a": "1"})}
        self.secrets = {"key": Secret(data={"k": b"v"})}

    async def config_map(self, namespace, name):
        assert namespace == "ns"
        return self.config_maps[name]

    async def secret(self, namespace, name):
        assert namespace == "ns"
        return self.secrets[name]


class Tokens:
    async def get(self, namespace, account, request):
        assert (namespace, account) == ("ns", "default")
        assert request.spec.bound_object_ref is not None
        return IssuedToken("token", datetime.now(UTC) + timedelta(hours=1))

    def forget_pod(self, uid):
        """Nothing is kept."""


class Resources:
    def allocatable(self):
        return {"memory": Quantity.of(NODE_MEMORY)}


class Journal:
    def __init__(self):
        self.findings = []

    def record(self, finding, *, parent=None):
        assert parent is None
        self.findings.append(finding)
        return str(len(self.findings))


class MountingNode:
    """One life of an agent's volumes."""

    def __init__(self, root, threads):
        clock = SystemClock()
        self.root = root
        self.objects = Objects()
        self.journal = Journal()
        ports = VolumePorts(
            root=root,
            objects=self.objects,
            tokens=Tokens(),
            trust=NoTrustBundles(),
            certificates=NoPodCertificates(),
            node=Resources(),
            mounter=HostMounter(),
            storage=no_storage(root),
            devices=HostDevices(root=root, loops=LoopDevices(), threads=threads, clock=clock),
            quotas=NoQuotas(),
            recorder=self.journal,
            threads=threads,
            clock=clock,
            has_api=True,
            noswap=find_noswap(root, in_user_namespace=False),
        )
        directories = PodDirectories(layout=Layout(root), threads=threads)
        self.volumes = build_manager(
            ManagerPorts(
                registry=MetricRegistry(),
                plugins=build_plugins(ports),
                allocations=AllocationBook(),
                disk=directories,
                recorder=self.journal,
                refresh=timedelta(minutes=1),
                randomness=random.Random(1),
                clock=clock,
                claims=StandaloneClaims(),
                find_node=lambda: None,
                layout=Layout(root),
                devices=HostDevices(root=root, loops=LoopDevices(), threads=threads, clock=clock),
            )
        )
        self.orphans = OrphanedPods(volumes=self.volumes, directories=directories)

    def path(self, plugin, name="v"):
        return self.root / "pods" / "u" / "volumes" / f"kubernetes.io~{plugin}" / name


@pytest.fixture
def root(tmp_path):
    """A private tmpfs for the agent's root, so that no mount can stay behind or reach the rest of the machine."""
    if os.geteuid() != 0:
        pytest.skip("needs root: run the tests as root")
    base = tmp_path / "root"
    base.mkdir()
    mounts.mount("klet-test", base, fs_type="tmpfs", options=["size=8m"])
    mounts.set_propagation(base, Propagation.PRIVATE)
    before = os.umask(0o022)
    yield base
    os.umask(before)
    mounts.unmount_tree(base)


@pytest.fixture
def threads():
    made = Threads(limit=8)
    yield made
    made.close()


@pytest.fixture
async def life(root, threads):
    """Begins a life of the agent; the one before ends as by a kill."""
    async with asyncio.TaskGroup() as group:
        tasks = []

        def begin():
            for task in tasks:
                task.cancel()
            node = MountingNode(root, threads)
            tasks.append(group.create_task(node.volumes.run()))
            return node

        yield begin
        for task in tasks:
            task.cancel()


@pytest.fixture
def pod_with():
    def make(*volumes, **spec):
        named = [{"name": "v", **volume} for volume in volumes]
        wanted = [{"name": volume["name"], "mountPath": f"/{volume['name']}"} for volume in named]
        meta = {"name": "p", "namespace": "ns", "uid": "u"}
        containers = [{"name": "c", "image": "i", "volumeMounts": wanted}]
        whole = {"containers": containers, "volumes": named, "serviceAccountName": "default", **spec}
        return convert(Pod, {"metadata": meta, "spec": whole})

    return make

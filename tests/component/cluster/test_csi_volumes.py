"""CSI volumes of a whole agent: staged, published, taken down; and an agent that is killed in between.

The test driver is strict about the order of calls and remembers what it has done. The controllers are the test.
"""

import asyncio
import json
import random
from contextlib import aclosing, asynccontextmanager

import pytest

from klet.aio.clock import SystemClock
from klet.api.claim import PersistentVolumeClaim
from klet.api.codec import convert
from klet.api.node import Node
from klet.api.pod import Pod
from klet.api.storage import CSIDriver, PersistentVolume, VolumeAttachment
from klet.csi.client import NodeCapability
from klet.host.inotify import watch_directory
from klet.kube.informer import Informer, InformerSettings
from klet.kube.watch import WatchScope
from klet.testing.csi.backing import PlainBacking
from klet.testing.csi.driver import NAME
from klet.testing.csi.faults import DriverFault, Mishap, Moment
from klet.testing.csi.serving import serve_driver
from klet.volumes.csi.places import attachment_name
from klet.wire.codes import Code

HANDLE = "vol-0a1b"
UNIQUE = f"kubernetes.io/csi/{NAME}^{HANDLE}"
CLAIM = {"name": "data", "persistentVolumeClaim": {"claimName": "claim"}}
INLINE = {"name": "scratch", "csi": {"driver": NAME, "volumeAttributes": {"size": "1"}}}
DEVICE = {"volumeMounts": [], "volumeDevices": [{"name": "data", "devicePath": "/dev/data"}]}
RPCS = ("NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume")


class Storage:
    """The driver, and its objects at the API server."""

    def __init__(self, node, server):
        self.node = node
        self.server = server
        self.driver = server.driver
        self.client = node.cluster.client
        self.registry = node.root / "plugins_registry"

    async def describe(self, **spec):
        given = {"attachRequired": False, "fsGroupPolicy": "File", "volumeLifecycleModes": ["Persistent", "Ephemeral"]}
        body = {"metadata": {"name": NAME}, "spec": {**given, **spec}}
        await self.client.create(convert(CSIDriver, body))

    async def register(self):
        self.registry.mkdir(parents=True, exist_ok=True)
        await self.server.register(self.registry)

    async def provision(self, *, mode="Filesystem", size="1Gi", **spec):
        """Make a claim of one GiB that is bound to a volume, which may be larger by now."""
        meta = {"name": "claim", "namespace": "default"}
        body = {"volumeName": "pv", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        claim = await self.client.create(
            convert(PersistentVolumeClaim, {"metadata": meta, "spec": {**body, "volumeMode": mode}}), "default"
        )
        status = {"phase": "Bound", "capacity": {"storage": "1Gi"}}
        await self.client.patch(
            PersistentVolumeClaim, "claim", "default", patch={"status": status}, subresource="status"
        )
        source = {"driver": NAME, "volumeHandle": HANDLE, "volumeAttributes": {"a": "b"}}
        reference = {"namespace": "default", "name": "claim", "uid": claim.metadata.uid}
        volume = {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "volumeMode": mode,
            "claimRef": reference,
            "csi": source,
            **spec,
        }
        await self.client.create(convert(PersistentVolume, {"metadata": {"name": "pv"}, "spec": volume}))

    async def until_grown(self):
        """Wait until the claim shows the size of its volume."""
        scope = WatchScope("default")
        informer = Informer(
            struct=PersistentVolumeClaim,
            scope=scope,
            settings=InformerSettings(self.client, self.node.cluster.watcher, SystemClock(), random.Random(1)),
        )
        async with asyncio.TaskGroup() as group:
            task = group.create_task(informer.run())
            with informer.changes() as changes:
                await informer.until_synced()
                async with asyncio.timeout(30):
                    while str(informer.get("claim", "default").status.capacity["storage"]) != "2Gi":
                        await changes.get()
            task.cancel()

    async def remove_pod(self, name="p"):
        await self.client.delete(Pod, name, "default")

    async def until_released(self):
        """Wait until the driver has nothing staged or published any more."""
        memory = self.driver.memory
        async with asyncio.timeout(30):
            await self.driver.wait_for(lambda: not memory.staged and not memory.published)
            drivers = self.node.root / "plugins/kubernetes.io/csi"
            blocks = drivers / "volumeDevices"
            for directory in (
                drivers / self.driver.name,
                blocks / "staging",
                blocks / "publish",
                self.node.root / "pods",
            ):
                await until_empty(directory)
            await until_empty(blocks, besides={"staging", "publish"})

    def left(self):
        """What is left on disk of volumes of this driver."""
        places = [self.node.root / "plugins/kubernetes.io/csi", self.node.root / "pods"]
        kept = {"volumeDevices", "staging", "publish", NAME}
        found = list(places[0].rglob("*"))
        found += [path for path in places[1].rglob("*") if "kubernetes.io~csi" in str(path)]
        return sorted(str(path.relative_to(self.node.root)) for path in found if path.name not in kept)


@pytest.fixture
async def storage(node, tmp_path):
    backing = PlainBacking(root=tmp_path / "backing")
    async with serve_driver(backing=backing, socket=tmp_path / "csi.sock") as server:
        yield Storage(node, server)


async def until_empty(directory, *, besides=()):
    """Wait until a directory has no other entry, or is not there."""
    if not directory.exists():
        return
    async with aclosing(watch_directory(directory)) as changes:
        while {each.name for each in directory.iterdir()} - set(besides):
            await anext(changes)


async def until_gone(node, name="p"):
    await node.until(lambda pod: pod is None, name)


async def test_an_inline_volume_lives_as_long_as_its_pod(node, storage):
    await storage.describe(podInfoOnMount=True)
    await storage.register()
    async with node.run():
        await node.bind(volumes=[INLINE])
        pod = await node.until_running()
        [request] = storage.driver.requests("NodePublishVolume")
        assert request.volume_context["csi.storage.k8s.io/pod.uid"] == pod.metadata.uid
        assert request.target_path == str(node.volume(pod, "csi", "scratch") / "mount")
        await storage.remove_pod()
        await until_gone(node)
        await storage.until_released()
    assert storage.driver.order() == ["NodePublishVolume", "NodeUnpublishVolume"]
    assert storage.left() == []


async def test_a_claimed_volume_is_staged_once_and_published_for_each_pod(node, storage):
    await storage.describe()
    await storage.provision()
    await storage.register()
    async with node.run():
        for name in ("p", "q"):
            await node.bind(name, volumes=[CLAIM])
            await node.until_running(name)
        assert storage.driver.order() == ["NodeStageVolume", "NodePublishVolume", "NodePublishVolume"]
        await storage.remove_pod("p")
        await until_gone(node, "p")
        await storage.driver.wait_for(lambda: len(storage.driver.memory.published) == 1)
        assert storage.driver.memory.staged
        await storage.remove_pod("q")
        await until_gone(node, "q")
        await storage.until_released()
    assert storage.driver.order()[-1] == "NodeUnstageVolume"
    assert storage.left() == []


async def test_a_driver_that_comes_late_is_used_at_once(node, storage):
    await storage.describe()
    await storage.provision()
    async with node.run():
        await node.bind(volumes=[CLAIM])
        [first, *_] = await node.reported("FailedMount")
        assert "not found in the list of registered CSI drivers" in first
        await storage.register()
        await node.until_running()


async def test_a_device_is_staged_published_and_taken_down(node, storage):
    await storage.describe()
    await storage.provision(mode="Block")
    await storage.register()
    async with node.run():
        await node.bind(volumes=[CLAIM], container=DEVICE)
        await node.until_running()
        assert storage.driver.requests("NodePublishVolume")[0].volume_capability.HasField("block")
        await storage.remove_pod()
        await until_gone(node)
        await storage.until_released()
    assert storage.left() == []


async def test_a_volume_that_has_to_be_attached_waits_for_its_controllers(node, storage):
    await storage.describe(attachRequired=True)
    await storage.provision()
    await storage.register()
    async with node.run():
        await node.bind(volumes=[CLAIM])
        with node.nodes.changes() as changes:
            async with asyncio.timeout(30):
                while UNIQUE not in (((found := node.nodes.get("node")) and found.status.volumes_in_use) or ()):
                    await changes.get()
        assert storage.driver.order() == []
        attachment = {
            "metadata": {"name": attachment_name(HANDLE, NAME, "node")},
            "spec": {"attacher": NAME, "nodeName": "node", "source": {"persistentVolumeName": "pv"}},
            "status": {"attached": True, "attachmentMetadata": {"devicePath": "/dev/x"}},
        }
        await storage.client.create(convert(VolumeAttachment, attachment))
        status = {"volumesAttached": [{"name": UNIQUE, "devicePath": ""}]}
        await storage.client.patch(Node, "node", patch={"status": status}, subresource="status")
        await node.until_running()
        assert dict(storage.driver.requests("NodeStageVolume")[0].publish_context) == {"devicePath": "/dev/x"}


async def test_a_volume_is_published_again_with_fresh_tokens_while_its_pod_runs(node, storage):
    await storage.describe(requiresRepublish=True, tokenRequests=[{"audience": "vault"}])
    await storage.register()
    async with node.run():
        await node.bind(volumes=[INLINE], serviceAccountName="default")
        await node.until_running()
        patch = {"metadata": {"labels": {"changed": "yes"}}}
        await storage.client.patch(Pod, "p", "default", patch=patch)
        async with asyncio.timeout(30):
            await storage.driver.wait_for(lambda: len(storage.driver.requests("NodePublishVolume")) > 1)
    for request in storage.driver.requests("NodePublishVolume"):
        tokens = json.loads(request.volume_context["csi.storage.k8s.io/serviceAccount.tokens"])
        assert tokens["vault"]["token"]


@pytest.mark.parametrize("is_inline", [True, False])
async def test_a_cloud_volume_is_its_drivers_now(node, tmp_path, is_inline):
    name = "cinder.csi.openstack.org"
    backing = PlainBacking(root=tmp_path / "backing")
    async with serve_driver(backing=backing, socket=tmp_path / "csi.sock", name=name) as server:
        storage = Storage(node, server)
        spec = {"attachRequired": False, "fsGroupPolicy": "File"}
        await storage.client.create(convert(CSIDriver, {"metadata": {"name": name}, "spec": spec}))
        await storage.register()
        cloud = {"cinder": {"volumeID": "volume", "fsType": "ext4"}}
        if not is_inline:
            await storage.provision(csi=None, **cloud)
        async with node.run():
            await node.bind(volumes=[{"name": "data", **cloud} if is_inline else CLAIM])
            pod = await node.until_running()
            [request] = server.driver.requests("NodePublishVolume")
            directory = f"{name}-volume" if is_inline else "pv"
            assert request.volume_id == "volume"
            assert request.target_path == str(node.volume(pod, "csi", directory) / "mount")
            await storage.remove_pod()
            await until_gone(node)
            await storage.until_released()
        assert server.driver.order()[-1] == "NodeUnstageVolume"


EXPANDS = frozenset({NodeCapability.STAGE_UNSTAGE_VOLUME, NodeCapability.EXPAND_VOLUME})


async def test_a_volume_that_has_grown_is_expanded_before_its_pod_starts(node, storage):
    storage.driver.capabilities = EXPANDS
    await storage.describe()
    await storage.provision(size="2Gi")
    await storage.register()
    async with node.run():
        await node.bind(volumes=[CLAIM])
        pod = await node.until_running()
        await storage.until_grown()
        [request] = storage.driver.requests("NodeExpandVolume")
    assert request.capacity_range.required_bytes == 2 << 30
    assert request.volume_path == str(node.volume(pod, "csi", "pv") / "mount")
    assert request.staging_target_path == storage.driver.memory.staged[HANDLE]


@asynccontextmanager
async def killed(node):
    """An agent that is gone at the end, whatever it was doing."""
    async with node.run():
        yield


@pytest.mark.parametrize("at", [Moment.BEFORE, Moment.AFTER])
@pytest.mark.parametrize("rpc", RPCS[:2])
@pytest.mark.parametrize("is_wanted", [True, False])
async def test_an_agent_that_is_killed_while_it_sets_up_loses_nothing(node, storage, rpc, at, is_wanted):
    await storage.describe()
    await storage.provision()
    await storage.register()
    fault = DriverFault(rpc=rpc, does=Mishap.HANG, at=at)
    storage.driver.faults.add(fault)
    async with killed(node):
        await node.bind(volumes=[CLAIM, INLINE])
        async with asyncio.timeout(30):
            await storage.driver.faults.reached.wait()
    if not is_wanted:
        await storage.remove_pod()
    storage.driver.faults.release()
    async with node.run():
        if is_wanted:
            await node.until_running()
            assert len(storage.driver.memory.published) == 2
            await storage.remove_pod()
        await until_gone(node)
        await storage.until_released()
    assert storage.left() == []


@pytest.mark.parametrize("at", [Moment.BEFORE, Moment.AFTER])
@pytest.mark.parametrize("rpc", RPCS[2:])
async def test_an_agent_that_is_killed_while_it_takes_down_leaves_nothing(node, storage, rpc, at):
    await storage.describe()
    await storage.provision()
    await storage.register()
    async with killed(node):
        await node.bind(volumes=[CLAIM, INLINE])
        await node.until_running()
        storage.driver.faults.add(DriverFault(rpc=rpc, does=Mishap.HANG, at=at))
        await storage.remove_pod()
        async with asyncio.timeout(30):
            await storage.driver.faults.reached.wait()
    storage.driver.faults.release()
    async with node.run():
        await until_gone(node)
        await storage.until_released()
    assert storage.left() == []


@pytest.mark.parametrize("at", [Moment.BEFORE, Moment.PARTIAL, Moment.AFTER])
@pytest.mark.parametrize("code", [Code.INTERNAL, Code.UNAVAILABLE])
@pytest.mark.parametrize("rpc", RPCS)
async def test_a_driver_that_fails_once_is_called_again(node, storage, rpc, code, at):
    await storage.describe()
    await storage.provision()
    await storage.register()
    storage.driver.faults.add(DriverFault(rpc=rpc, does=code, at=at))
    async with node.run():
        await node.bind(volumes=[CLAIM])
        await node.until_running()
        await storage.remove_pod()
        await until_gone(node)
        await storage.until_released()
    assert storage.left() == []


async def test_a_driver_whose_capability_changes_leaves_nothing(node, storage):
    await storage.describe()
    await storage.provision()
    await storage.register()
    storage.driver.capabilities = frozenset()
    async with node.run():
        await node.bind(volumes=[CLAIM])
        await node.until_running()
        storage.driver.capabilities = frozenset({NodeCapability.STAGE_UNSTAGE_VOLUME})
        await storage.remove_pod()
        await until_gone(node)
        await storage.until_released()
    assert storage.driver.order() == ["NodePublishVolume", "NodeUnpublishVolume"]


@pytest.mark.parametrize("at", [Moment.BEFORE, Moment.AFTER])
async def test_an_agent_that_is_killed_while_it_expands_a_volume_expands_it_again(node, storage, at):
    storage.driver.capabilities = EXPANDS
    await storage.describe()
    await storage.provision(size="2Gi")
    await storage.register()
    storage.driver.faults.add(DriverFault(rpc="NodeExpandVolume", does=Mishap.HANG, at=at))
    async with killed(node):
        await node.bind(volumes=[CLAIM])
        async with asyncio.timeout(30):
            await storage.driver.faults.reached.wait()
    storage.driver.faults.release()
    async with node.run():
        await node.until_running()
        await storage.until_grown()
        await storage.remove_pod()
        await until_gone(node)
        await storage.until_released()
    assert storage.left() == []


@pytest.mark.parametrize("at", [Moment.BEFORE, Moment.AFTER])
@pytest.mark.parametrize("rpc", RPCS)
async def test_an_agent_that_is_killed_while_it_handles_a_device_leaves_nothing(node, storage, rpc, at):
    await storage.describe()
    await storage.provision(mode="Block")
    await storage.register()
    hang = DriverFault(rpc=rpc, does=Mishap.HANG, at=at)
    is_up = rpc in RPCS[:2]
    async with killed(node):
        if is_up:
            storage.driver.faults.add(hang)
        await node.bind(volumes=[CLAIM], container=DEVICE)
        if not is_up:
            await node.until_running()
            storage.driver.faults.add(hang)
            await storage.remove_pod()
        async with asyncio.timeout(30):
            await storage.driver.faults.reached.wait()
    storage.driver.faults.release()
    async with node.run():
        if is_up:
            await node.until_running()
            await storage.remove_pod()
        await until_gone(node)
        await storage.until_released()
    assert storage.left() == []

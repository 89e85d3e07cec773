"""CSI volumes in containers of a real runtime, with a real control plane and mounts; agents killed in calls.

The driver is the test driver: bind mounts and loop devices. The tests bind claims and are the external attacher.
"""

import asyncio
import hashlib
import shutil
from pathlib import Path

import pytest

from klet.api.codec import convert
from klet.api.node import Node
from klet.api.pod import Pod
from klet.api.storage import CSIDriver, VolumeAttachment
from klet.host.mounts import unmount_tree
from klet.testing.control_plane.storage import claim_volume, create_bound_claim
from klet.testing.csi.backing import MountBacking
from klet.testing.csi.driver import NAME
from klet.testing.csi.faults import DriverFault, Mishap, Moment
from klet.testing.csi.serving import serve_driver
from klet.testing.leftovers import list_files
from klet.volumes.csi.places import attachment_name

WRITE = "echo written > /v/file; cat /v/file > /dev/termination-log"
STAY = "echo started > /v/file; trap 'exit 0' TERM; while true; do sleep 1000 & wait $!; done"
RPCS = ("NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume")
NEEDS_LOOP = pytest.mark.skipif(
    not Path("/dev/loop-control").exists() or shutil.which("losetup") is None,
    reason="there are no loop devices: modprobe loop",
)


class Storage:
    """The driver on the node, and what the API server has of it."""

    def __init__(self, api, node, server):
        self.api = api
        self.node = node
        self.driver = server.driver
        self.csi = node.root / "plugins/kubernetes.io/csi"

    async def describe(self, **spec):
        given = {"attachRequired": False, "fsGroupPolicy": "File", "volumeLifecycleModes": ["Persistent", "Ephemeral"]}
        await self.api.client.create(convert(CSIDriver, {"metadata": {"name": NAME}, "spec": {**given, **spec}}))

    async def provision(self, name, *, mode="Filesystem"):
        source = {"driver": NAME, "volumeHandle": name, "fsType": "ext4"}
        await create_bound_claim(self.api.client, name, source, mode=mode)

    async def until_written(self, name):
        """What a pod has written to a volume, after a while."""

        async def read():
            file = self.driver.content(name) / "file"
            return file.read_text() if file.exists() else ""

        return await self.api.until(read, bool)

    async def until_released(self, name, *pods):
        """What is left of a volume, on the node and in the driver: nothing, after a while."""

        async def read():
            memory = self.driver.memory
            kept = [*(volume for volume in memory.staged if volume == name), *memory.published]
            own = (staging_of(name), *(pod.metadata.uid for pod in pods))
            kept += [path for path in self.node.mounts() if any(each in path for each in own)]
            kept += [str(path) for path in list_files(self.csi) if staging_of(name) in str(path)]
            directories = (self.node.root / "pods" / pod.metadata.uid for pod in pods)
            return kept + [str(path) for path in directories if path.exists()]

        return await self.api.until(read, lambda left: not left)


def staging_of(name):
    """What the directories are called where a volume is staged."""
    return hashlib.sha256(name.encode()).hexdigest()


@pytest.fixture
async def storage(api, node, tmp_path):
    backing = MountBacking(root=tmp_path / "backing")
    async with serve_driver(backing=backing, socket=tmp_path / "csi.sock") as server:
        registry = node.root / "plugins_registry"
        registry.mkdir(parents=True, exist_ok=True)
        link = await server.register(registry)
        made = Storage(api, node, server)
        await made.describe()
        yield made
        link.unlink()
    await api.client.delete(CSIDriver, NAME)
    unmount_tree(made.csi)


async def test_a_pod_writes_to_a_claimed_volume(ready, api, node, mounting, storage):
    await storage.provision("writes")
    context = {"runAsUser": 1234, "fsGroup": 4242}
    made = mounting("writes", WRITE, claim_volume("writes"), restartPolicy="Never", securityContext=context)
    pod = await api.create(made, node=node.name)
    assert await api.until_succeeded("writes") == "written\n"
    found = (storage.driver.content("writes") / "file").stat()
    assert (found.st_uid, found.st_gid) == (1234, 4242)
    await api.delete("writes")
    await api.until_gone("writes")
    assert await storage.until_released("writes", pod) == []
    assert (storage.driver.content("writes") / "file").read_text() == "written\n"


async def test_a_pod_writes_to_an_inline_volume(ready, api, node, mounting, storage):
    made = mounting("inline", WRITE, {"csi": {"driver": NAME}}, restartPolicy="Never")
    pod = await api.create(made, node=node.name)
    assert await api.until_succeeded("inline") == "written\n"
    await api.delete("inline")
    await api.until_gone("inline")
    assert await storage.until_released("", pod) == []


@NEEDS_LOOP
async def test_a_pod_writes_to_a_device(ready, api, node, manifest, storage):
    await storage.provision("device", mode="Block")
    script = "test -b /dev/data && printf klet | dd of=/dev/data conv=notrunc 2>/dev/null"
    made = manifest(
        "device", main=script, spec={"volumes": [{"name": "v", **claim_volume("device")}], "restartPolicy": "Never"}
    )
    made["spec"]["containers"][0]["volumeDevices"] = [{"name": "v", "devicePath": "/dev/data"}]
    pod = await api.create(made, node=node.name)
    await api.until_succeeded("device")
    await api.delete("device")
    await api.until_gone("device")
    assert await storage.until_released("device", pod) == []
    image = storage.driver.content("x").parent / "device.img"
    assert image.read_bytes()[:4] == b"klet"


async def test_a_volume_that_has_to_be_attached_waits_for_the_controllers(ready, api, node, mounting, storage):
    """No controller attaches here: the test does it, and so does the external attacher."""
    await api.client.delete(CSIDriver, NAME)
    await storage.describe(attachRequired=True)
    await storage.provision("attached")
    unique = f"kubernetes.io/csi/{NAME}^attached"
    made = mounting("attached", WRITE, claim_volume("attached"), restartPolicy="Never")
    pod = await api.create(made, node=node.name)
    await api.until_node(node.name, lambda found: unique in found.status.volumes_in_use, what="uses it")
    assert storage.driver.order() == []
    name = attachment_name("attached", NAME, node.name)
    spec = {"attacher": NAME, "nodeName": node.name, "source": {"persistentVolumeName": "attached"}}
    await api.client.create(convert(VolumeAttachment, {"metadata": {"name": name}, "spec": spec}))
    status = {"attached": True, "attachmentMetadata": {"devicePath": "/dev/x"}}
    await api.client.patch(VolumeAttachment, name, patch={"status": status}, subresource="status")
    status = {"volumesAttached": [{"name": unique, "devicePath": ""}]}
    await api.client.patch(Node, node.name, patch={"status": status}, subresource="status")
    assert await api.until_succeeded("attached") == "written\n"
    assert dict(storage.driver.requests("NodeStageVolume")[0].publish_context) == {"devicePath": "/dev/x"}
    await api.delete("attached")
    await api.until_gone("attached")
    assert await storage.until_released("attached", pod) == []
    await api.until_node(node.name, lambda found: not found.status.volumes_in_use, what="does not use it any more")


@pytest.mark.parametrize("at", [Moment.BEFORE, Moment.AFTER])
@pytest.mark.parametrize("rpc", RPCS)
async def test_an_agent_that_is_killed_in_a_call_leaves_nothing(ready, api, node, agent, mounting, storage, rpc, at):
    name = f"killed-{rpc.lower()}-{at}"
    await storage.provision(name)
    hang = DriverFault(rpc=rpc, does=Mishap.HANG, at=at)
    is_up = rpc in RPCS[:2]
    if is_up:
        storage.driver.faults.add(hang)
    pod = await api.create(mounting(name, STAY, claim_volume(name)), node=node.name)
    if not is_up:
        await api.until_running(name)
        storage.driver.faults.add(hang)
        await api.client.delete(Pod, name, "default", grace=0)
    async with asyncio.timeout(40):
        await storage.driver.faults.reached.wait()
    await agent.kill()
    storage.driver.faults.release()
    agent.start()
    if is_up:
        await api.until_running(name)
        assert await storage.until_written(name) == "started\n"
        await api.delete(name)
    await api.until_gone(name)
    assert await storage.until_released(name, pod) == []

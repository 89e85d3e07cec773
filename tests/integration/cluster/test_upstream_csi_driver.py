"""Upstream's csi-driver-host-path, which nobody here wrote, on a node of a real control plane and a real runtime.

The driver runs as a process on the machine. The test is what its sidecars are: it registers the driver, creates volumes
through it, and binds claims to them.
"""

import json
import shutil
from pathlib import Path
from urllib.parse import quote

import pytest
from grpc import aio

from klet.api.claim import PersistentVolumeClaim
from klet.api.codec import convert
from klet.api.pod import Pod
from klet.api.quantity import Quantity
from klet.api.storage import CSIDriver, CSINode
from klet.testing.control_plane.processes import Daemon
from klet.testing.control_plane.programs import HOSTPATH_PLUGIN, describe_program, find_program, missing_programs
from klet.testing.control_plane.storage import claim_volume, create_bound_claim
from klet.testing.leftovers import list_files
from klet.testing.registrar import serve_registrar
from klet.wire import csi_v1_pb2 as csi
from klet.wire.methods import method_of

NAME = "hostpath.csi.k8s.io"
IDENTITY = csi.DESCRIPTOR.services_by_name["Identity"]
INFO = method_of(IDENTITY, "GetPluginInfo", csi.GetPluginInfoRequest, csi.GetPluginInfoResponse)
CONTROLLER = csi.DESCRIPTOR.services_by_name["Controller"]
CREATE = method_of(CONTROLLER, "CreateVolume", csi.CreateVolumeRequest, csi.CreateVolumeResponse)
DELETE = method_of(CONTROLLER, "DeleteVolume", csi.DeleteVolumeRequest, csi.DeleteVolumeResponse)
MIB = 1 << 20
WRITE = "echo written > /v/file; cat /v/file > /dev/termination-log"
STAY = "echo started >> /v/file; trap 'exit 0' TERM; while true; do sleep 1000 & wait $!; done"
NEEDS_LOOP = pytest.mark.skipif(
    not Path("/dev/loop-control").exists() or shutil.which("losetup") is None,
    reason="there are no loop devices: modprobe loop",
)


class HostPathDriver:
    """The driver's process, and its calls that a provisioner makes."""

    def __init__(self, *, directory: Path, node, api) -> None:
        self.socket = directory / "csi.sock"
        self.state = directory / "state"
        self._api = api
        self._node = node
        command = (
            str(find_program(HOSTPATH_PLUGIN)),
            f"--endpoint=unix://{self.socket}",
            f"--statedir={self.state}",
            f"--nodeid={node.name}",
            # It then refuses to delete what is still staged or published; its state file does not say that.
            "--check-volume-lifecycle",
            "--v=5",
        )
        self.daemon = Daemon(command=command, log=directory / "driver.log", clock=api.plane.clock)

    async def until_serving(self) -> csi.GetPluginInfoResponse:
        """What the driver is, once it listens. Its registrar waits for that too."""
        return await self._call(INFO, csi.GetPluginInfoRequest())

    async def provision(self, name, *, mode="Filesystem", claimed=None) -> str:
        """Create a volume of 2 MiB, and a claim that is bound to it; the handle of the volume."""
        block = csi.VolumeCapability(block=csi.VolumeCapability.BlockVolume())
        mount = csi.VolumeCapability(mount=csi.VolumeCapability.MountVolume())
        request = csi.CreateVolumeRequest(
            name=name,
            capacity_range=csi.CapacityRange(required_bytes=2 * MIB),
            volume_capabilities=[block if mode == "Block" else mount],
        )
        handle = (await self._call(CREATE, request)).volume.volume_id
        source = {"driver": NAME, "volumeHandle": handle}
        await create_bound_claim(self._api.client, name, source, mode=mode, size="2Mi", claimed=claimed)
        return handle

    async def delete(self, handle) -> str:
        """Delete a volume; what the driver says against it."""
        try:
            await self._call(DELETE, csi.DeleteVolumeRequest(volume_id=handle))
        except aio.AioRpcError as error:
            return error.details()
        return ""

    def volumes(self) -> set[str]:
        """The handles of all volumes that the driver has."""
        file = self.state / "state.json"
        found = json.loads(file.read_text())["Volumes"] if file.exists() else None
        return {each["VolID"] for each in found or ()}

    async def until_released(self, *pods: Pod, handle: str = "") -> list[str]:
        """What is still mounted, what is left of the pods, and whether the volume cannot go: nothing, after a while."""

        async def read() -> list[str]:
            kept = [path for path in self._node.mounts() if "kubernetes.io/csi" in path or "kubernetes.io~csi" in path]
            kept += [str(path) for path in list_files(self._node.root / "plugins/kubernetes.io/csi")]
            directories = (self._node.root / "pods" / pod.metadata.uid for pod in pods)
            kept += [str(path) for path in directories if path.exists()]
            return kept or [said for said in [await self.delete(handle) if handle else ""] if said]

        return await self._api.until(read, lambda left: not left)

    async def _call(self, method, request):
        async with aio.insecure_channel(f"unix:{quote(str(self.socket))}") as channel:
            send = channel.unary_unary(method.path, request.__class__.SerializeToString, method.response.FromString)
            return await send(request, timeout=30, wait_for_ready=True)


@pytest.fixture
async def driver(ready, api, node, tmp_path_factory):
    """The driver, registered with the node."""
    if missing_programs((HOSTPATH_PLUGIN,)):
        pytest.skip(describe_program(HOSTPATH_PLUGIN))
    made = HostPathDriver(directory=tmp_path_factory.mktemp("hostpath"), node=node, api=api)
    spec = {"attachRequired": False, "podInfoOnMount": True, "volumeLifecycleModes": ["Persistent", "Ephemeral"]}
    await api.client.create(convert(CSIDriver, {"metadata": {"name": NAME}, "spec": spec}))
    made.daemon.start()
    try:
        assert (await made.until_serving()).name == NAME
        registry = node.root / "plugins_registry"
        async with serve_registrar(registry / f"{NAME}-reg.sock", name=NAME, endpoint=str(made.socket)) as registrar:
            assert await registrar.until_notified() == (True, ""), made.daemon.log
            yield made
        made.daemon.check()
        assert [said for handle in made.volumes() if (said := await made.delete(handle))] == []
    finally:
        await made.daemon.stop()
        await api.client.delete(CSIDriver, NAME)


async def test_the_driver_is_shown_with_its_topology(driver, api, node):
    (found,) = (await api.client.get(CSINode, node.name)).spec.drivers
    assert (found.name, found.node_id, found.topology_keys) == (NAME, node.name, ("topology.hostpath.csi/node",))
    await api.until_node(
        node.name, lambda found: found.metadata.labels.get("topology.hostpath.csi/node") == node.name, what="its label"
    )


async def test_a_volume_outlives_the_agent_and_is_unstaged_in_the_end(driver, api, node, agent, mounting):
    handle = await driver.provision("outlives")
    pod = await api.create(mounting("outlives", STAY, claim_volume("outlives")), node=node.name)
    before = await api.until_running("outlives")
    file = driver.state / handle / "file"
    assert await api.until(lambda: read(file), bool) == "started\n"
    assert "is still used" in await driver.delete(handle)

    await agent.kill()
    agent.start()
    second = await api.create(mounting("again", WRITE, claim_volume("outlives"), restartPolicy="Never"), node=node.name)
    assert await api.until_succeeded("again") == "written\n"
    after = await api.until_running("outlives")
    assert containers(after) == containers(before)
    for name in ("outlives", "again"):
        await api.delete(name)
        await api.until_gone(name)
    assert file.read_text() == "written\n"
    assert await driver.until_released(pod, second, handle=handle) == []


async def test_what_the_pod_of_a_killed_agent_had_is_taken_down_by_the_next(driver, api, node, agent, mounting):
    handle = await driver.provision("orphan")
    pod = await api.create(mounting("orphan", STAY, claim_volume("orphan")), node=node.name)
    await api.until_running("orphan")
    await agent.kill()
    await api.client.delete(Pod, "orphan", "default", grace=0)
    agent.start()
    await api.until_gone("orphan")
    assert await driver.until_released(pod, handle=handle) == []


async def test_an_inline_volume_goes_with_its_pod(driver, api, node, mounting):
    made = mounting("inline", WRITE, {"csi": {"driver": NAME}}, restartPolicy="Never")
    pod = await api.create(made, node=node.name)
    assert await api.until_succeeded("inline") == "written\n"
    await api.delete("inline")
    await api.until_gone("inline")
    assert await driver.until_released(pod) == []
    assert driver.volumes() == set()


async def test_a_volume_that_has_grown_is_expanded(driver, api, node, mounting):
    handle = await driver.provision("grown", claimed="1Mi")
    pod = await api.create(mounting("grown", WRITE, claim_volume("grown"), restartPolicy="Never"), node=node.name)
    await api.until_succeeded("grown")
    claim = await api.client.get(PersistentVolumeClaim, "grown", "default")
    assert claim.status.capacity["storage"] == Quantity.of(2 * MIB)
    assert "/csi.v1.Node/NodeExpandVolume" in driver.daemon.log
    await api.delete("grown")
    await api.until_gone("grown")
    assert await driver.until_released(pod, handle=handle) == []


@NEEDS_LOOP
async def test_a_pod_writes_to_a_device(driver, api, node, manifest):
    handle = await driver.provision("hostpath-device", mode="Block")
    script = "test -b /dev/data && printf klet | dd of=/dev/data conv=notrunc,fsync 2>/dev/null"
    spec = {"volumes": [{"name": "v", **claim_volume("hostpath-device")}], "restartPolicy": "Never"}
    made = manifest("device", main=script, spec=spec)
    made["spec"]["containers"][0]["volumeDevices"] = [{"name": "v", "devicePath": "/dev/data"}]
    pod = await api.create(made, node=node.name)
    await api.until_succeeded("device")
    await api.delete("device")
    await api.until_gone("device")
    assert await driver.until_released(pod) == []
    with (driver.state / handle).open("rb") as image:
        assert image.read(4) == b"klet"
    assert await driver.until_released(handle=handle) == []


async def read(file):
    return file.read_text() if file.exists() else ""


def containers(pod):
    return [(each.container_id, each.restart_count) for each in pod.status.container_statuses]

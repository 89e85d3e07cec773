"""The agent is killed at every change that it makes for a pod's volumes, on a real runtime with real mounts.

`klet.testing.killed_agent` kills it before a change of a given number to directories, files, mounts or loop devices.
The next run either brings the pod up or takes it down, and in the end nothing is left. A few numbers are part of every
run of the tests; `KLET_VOLUME_KILLS=200` takes each from 1 to 200. When the agent makes fewer, it is not killed.
"""

import os
import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from klet.api.codec import convert
from klet.api.config import ConfigMap, Secret
from klet.api.pod import Pod
from klet.api.storage import CSIDriver
from klet.csi.client import NodeCapability
from klet.host.images import BUSYBOX_IMAGE
from klet.host.mounts import unmount_tree
from klet.testing.control_plane.storage import claim_volume, create_bound_claim
from klet.testing.csi.backing import MountBacking
from klet.testing.csi.driver import NAME
from klet.testing.csi.serving import serve_driver
from klet.testing.leftovers import list_files, list_loop_backings

ALL = int(os.environ.get("KLET_VOLUME_KILLS", "0"))
NUMBERS = range(1, ALL + 1) if ALL else (9, 24, 38, 52)
FLAGS = ("--klet-leave-kernel-tunables",)
PATIENCE = timedelta(seconds=100)
STAY = "echo started > /csi/file; echo part > /part/file; trap 'exit 0' TERM; while true; do sleep 1000 & wait $!; done"
HAS_LOOP = Path("/dev/loop-control").exists() and shutil.which("losetup") is not None


class KilledNode:
    """The node, whose agents are killed, and all that they could leave behind."""

    def __init__(self, *, api, node, driver) -> None:
        self._api = api
        self._node = node
        self.driver = driver

    async def create(self, name) -> Pod:
        """Create a pod with a volume of each kind that changes something on the machine."""
        client = self._api.client
        await client.create(convert(ConfigMap, {"metadata": {"name": name}, "data": {"a": "1"}}), "default")
        await client.create(convert(Secret, {"metadata": {"name": name}, "stringData": {"k": "v"}}), "default")
        devices = ["device"] if HAS_LOOP else []
        for kind, mode in (("csi", "Filesystem"), *((each, "Block") for each in devices)):
            source = {"driver": NAME, "volumeHandle": f"{name}-{kind}", "fsType": "ext4"}
            # It has grown, so that it is expanded before the pod starts.
            await create_bound_claim(client, f"{name}-{kind}", source, mode=mode, size="2Mi", claimed="1Mi")
        token = {"serviceAccountToken": {"path": "token"}}
        volumes = {
            "config": {"configMap": {"name": name}},
            "secret": {"secret": {"secretName": name}},
            "token": {"projected": {"sources": [token]}},
            "scratch": {"emptyDir": {}},
            "memory": {"emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
            "csi": claim_volume(f"{name}-csi"),
            "inline": {"csi": {"driver": NAME}},
        }
        mounts = [{"name": each, "mountPath": f"/{each}"} for each in volumes]
        mounts.append({"name": "scratch", "mountPath": "/part", "subPath": "a/part"})
        container = {
            "name": "main",
            "image": BUSYBOX_IMAGE,
            "command": ["sh", "-c", STAY],
            "volumeMounts": mounts,
            "volumeDevices": [{"name": each, "devicePath": "/dev/data"} for each in devices],
        }
        volumes |= {each: claim_volume(f"{name}-{each}") for each in devices}
        spec = {
            "nodeName": self._node.name,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            "volumes": [{"name": key, **value} for key, value in volumes.items()],
        }
        return await client.create(convert(Pod, {"metadata": {"name": name}, "spec": spec}), "default")

    def has_written(self, name) -> bool:
        return (self.driver.content(f"{name}-csi") / "file").exists()

    def is_up(self, name) -> bool:
        pod = self._api.pods.get(name, "default")
        return pod is not None and pod.status.phase == "Running" and self.has_written(name)

    def is_gone(self, name) -> bool:
        return self._api.pods.get(name, "default") is None and not self.leftovers()

    def leftovers(self) -> list[str]:
        """What is mounted, made, staged or published for any pod."""
        root = self._node.root
        left = [*self.driver.memory.staged, *self.driver.memory.published, *self._node.mounts()]
        left += [str(path) for path in (root / "pods").glob("*")]
        left += [str(path) for path in list_files(root / "plugins")]
        left += [str(path) for path in (root / f"plugins/kubernetes.io/csi/{NAME}").glob("*")]
        return left + [path for path in list_loop_backings() if path.startswith(f"{root}/")]

    async def until(self, holds, what) -> None:
        async def read():
            return holds()

        if not await self._api.until(read, bool, patience=PATIENCE):
            log = self._node.directory / "klet.log"
            pytest.fail(f"not within {PATIENCE}: {what}; left: {self.leftovers()}\n{log.read_text()[-6000:]}")


@pytest.fixture
async def machine(api, node, tmp_path):
    """The node with a driver on it; no agent runs."""
    backing = MountBacking(root=tmp_path / "backing")
    able = frozenset({NodeCapability.STAGE_UNSTAGE_VOLUME, NodeCapability.EXPAND_VOLUME})
    async with serve_driver(backing=backing, socket=tmp_path / "csi.sock", capabilities=able) as server:
        registry = node.root / "plugins_registry"
        registry.mkdir(parents=True, exist_ok=True)
        link = await server.register(registry)
        spec = {"attachRequired": False, "fsGroupPolicy": "File", "volumeLifecycleModes": ["Persistent", "Ephemeral"]}
        await api.client.create(convert(CSIDriver, {"metadata": {"name": NAME}, "spec": spec}))
        try:
            yield KilledNode(api=api, node=node, driver=server.driver)
        finally:
            link.unlink()
            await api.client.delete(CSIDriver, NAME)
            unmount_tree(node.root / "plugins")


async def live_until_killed(machine, api, node, name, number) -> bool:
    """Bring a pod up and take it down, unless the agent is killed before; whether the pod was being taken down."""
    async with node.running(node.killed_klet(number, *FLAGS)) as agent:
        await machine.create(name)
        await machine.until(lambda: machine.is_up(name) or not agent.is_running, f"{name} is up, or the agent dead")
        if not agent.is_running:
            return False
        await api.client.delete(Pod, name, "default")
        await machine.until(lambda: machine.is_gone(name) or not agent.is_running, f"{name} is gone, or the agent dead")
        if agent.is_running:
            print(f"{number}: there are fewer changes")  # noqa: T201 - with -s
        # In the default run each number is one of a change that every machine makes.
        assert ALL or not agent.is_running
        return True


@pytest.mark.parametrize("number", NUMBERS)
async def test_nothing_is_left_or_lost_whenever_the_agent_is_killed(api, node, machine, number):
    name = f"killed-{number}"
    is_ending = await live_until_killed(machine, api, node, name, number)
    print(f"{number}: the agent is gone while the pod {'ended' if is_ending else 'started'}")  # noqa: T201 - with -s
    async with node.running(node.klet(*FLAGS)):
        if not is_ending:
            if number % 2:
                await machine.until(lambda: machine.is_up(name), f"{name} is up")
            await api.client.delete(Pod, name, "default")
        await machine.until(lambda: machine.is_gone(name), f"nothing is left of {name}")
        assert not is_ending or machine.has_written(name)

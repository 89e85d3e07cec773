"""Pods with PersistentVolumeClaims: directories of the machine, shared, bound late, and left behind by a killed agent.

No controller binds claims here: the test does it.
"""

from pathlib import Path

import pytest

from klet.api.claim import PersistentVolumeClaim
from klet.api.codec import convert
from klet.api.pod import Pod
from klet.api.storage import PersistentVolume

GID = "5000"
KINDS = ("hostPath", "local")
HOSTNAME = "kubernetes.io/hostname"
WRITE = "id -G > /dev/termination-log; echo written > /v/file"
WRITE_AND_STAY = "id -G > /v/groups; trap 'exit 0' TERM; while true; do sleep 1000 & wait $!; done"
SIZE = {"storage": "1Mi"}


class Storage:
    """Claims and the volumes that they are bound to, which are directories of the machine."""

    def __init__(self, api, node, directory: Path) -> None:
        self._api = api
        self._node = node
        self._directory = directory

    async def claim(self, name: str, volume: str) -> PersistentVolumeClaim:
        """A claim that is to get a volume, and is not bound to it."""
        spec = {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": SIZE},
            "storageClassName": "",
            "volumeName": volume,
        }
        made = convert(PersistentVolumeClaim, {"metadata": {"name": name}, "spec": spec})
        return await self._api.client.create(made, "default")

    async def volume(self, name: str, kind: str, claim: PersistentVolumeClaim, *, at: str = "") -> Path:
        """A volume of a claim; returns the directory that it is."""
        directory = self._directory / name
        directory.mkdir(mode=0o770)
        directory.chmod(0o770)
        terms = [{"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [at or self._node.name]}]}]
        spec = {
            "accessModes": ["ReadWriteMany"],
            "capacity": SIZE,
            "claimRef": {"namespace": "default", "name": claim.metadata.name, "uid": claim.metadata.uid},
            "persistentVolumeReclaimPolicy": "Retain",
            kind: {"path": str(directory)},
            **({"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}} if kind == "local" else {}),
        }
        meta = {"name": name, "annotations": {"pv.beta.kubernetes.io/gid": GID}}
        await self._api.client.create(convert(PersistentVolume, {"metadata": meta, "spec": spec}))
        return directory

    async def bind(self, claim: str) -> None:
        patch = {"status": {"phase": "Bound", "accessModes": ["ReadWriteMany"], "capacity": SIZE}}
        await self._api.client.patch(PersistentVolumeClaim, claim, "default", patch=patch, subresource="status")

    async def bound(self, name: str, kind: str) -> Path:
        """A claim that is bound to a volume of the same name; returns the directory that this is."""
        directory = await self.volume(name, kind, await self.claim(name, name))
        await self.bind(name)
        return directory


@pytest.fixture
def storage(api, node, tmp_path):
    return Storage(api, node, tmp_path)


def claiming(manifest, name, claim, script, **spec):
    """A pod that has a claim at /v."""
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]
    made = manifest(name, main=script, spec={"volumes": volumes, **spec})
    made["spec"]["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/v"}]
    return made


def once(manifest, name, claim, script=WRITE, **spec):
    return claiming(manifest, name, claim, script, restartPolicy="Never", **spec)


async def until_nothing_left(api, node, *pods: Pod) -> list[str]:
    """What is left on the node of pods that are gone: nothing, after a while."""

    async def read() -> list[str]:
        directories = [node.root / "pods" / pod.metadata.uid for pod in pods]
        return [path for path in node.mounts() if "local-volume" in path] + [
            str(path) for path in directories if path.exists()
        ]

    return await api.until(read, lambda left: not left)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_pod_writes_to_its_claim(ready, api, node, manifest, storage, kind):
    name = f"writes-{kind.lower()}"
    directory = await storage.bound(name, kind)
    pod = await api.create(once(manifest, name, name), node=node.name)
    assert GID in (await api.until_succeeded(name)).split()
    assert (directory / "file").read_text() == "written\n"
    await api.delete(name)
    await api.until_gone(name)
    assert await until_nothing_left(api, node, pod) == []
    assert (directory / "file").read_text() == "written\n"


async def test_a_user_writes_by_the_group_of_the_volume(ready, api, node, manifest, storage):
    directory = await storage.bound("by-group", "local")
    context = {"runAsUser": 1234, "runAsGroup": 1234, "fsGroup": int(GID)}
    await api.create(once(manifest, "by-group", "by-group", securityContext=context), node=node.name)
    assert (await api.until_succeeded("by-group")).split() == ["1234", GID]
    assert (directory.stat().st_gid, (directory / "file").stat().st_uid) == (int(GID), 1234)


@pytest.mark.parametrize("kind", KINDS)
async def test_two_pods_share_a_claim(ready, api, node, manifest, storage, kind):
    name = f"shared-{kind.lower()}"
    directory = await storage.bound(name, kind)
    first, second = f"{name}-first", f"{name}-second"
    kept = await api.create(claiming(manifest, first, name, WRITE_AND_STAY), node=node.name)
    await api.until_running(first)
    script = "until [ -s /v/groups ]; do sleep 0.1; done; cat /v/groups > /dev/termination-log; echo both > /v/file"
    gone = await api.create(once(manifest, second, name, script), node=node.name)
    assert GID in (await api.until_succeeded(second)).split()
    await api.delete(second)
    await api.until_gone(second)
    # The other pod has it still.
    assert await api.kubectl("exec", first, "--", "cat", "/v/file") == "both\n"
    await api.delete(first)
    await api.until_gone(first)
    assert await until_nothing_left(api, node, kept, gone) == []
    assert (directory / "file").read_text() == "both\n"


async def test_a_claim_that_is_bound_later_starts_the_pod(ready, api, node, manifest, storage):
    claim = await storage.claim("late", "late")
    await api.create(once(manifest, "late", "late"), node=node.name)
    event = await api.until_event("FailedMount", about="late")
    assert "error processing PVC default/late: PVC is not bound" in event.message
    directory = await storage.volume("late", "local", claim)
    await storage.bind("late")
    await api.until_succeeded("late")
    assert (directory / "file").read_text() == "written\n"


async def test_a_volume_of_another_node_is_not_mounted(ready, api, node, manifest, storage):
    claim = await storage.claim("afar", "afar")
    directory = await storage.volume("afar", "local", claim, at="another-node")
    await storage.bind("afar")
    await api.create(once(manifest, "afar", "afar"), node=node.name)
    event = await api.until_event("FailedMount", about="afar")
    assert event.message.startswith('MountVolume.NodeAffinity check failed for volume "afar" : ')
    await api.delete("afar")
    await api.until_gone("afar")
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "grace"),
    [
        pytest.param("killed", None, id="the pod is being deleted when the agent is back"),
        pytest.param("orphaned", 0, id="the pod is gone when the agent is back"),
    ],
)
async def test_an_agent_that_was_killed_takes_its_volumes_down(ready, api, node, agent, manifest, storage, name, grace):
    directory = await storage.bound(name, "local")
    pod = await api.create(claiming(manifest, name, name, WRITE_AND_STAY), node=node.name)
    await api.until_running(name)
    target = node.root / "pods" / pod.metadata.uid / "volumes" / "kubernetes.io~local-volume" / name
    assert str(target) in node.mounts()
    await agent.kill()
    await api.client.delete(Pod, name, "default", grace=grace)
    agent.start()
    await api.until_gone(name)
    assert await until_nothing_left(api, node, pod) == []
    assert GID in (directory / "groups").read_text().split()

"""Volumes of the wired agent on a node without an API server; memory is played by plain directories."""

import asyncio
import shutil
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.aio.clock import SystemClock
from klet.aio.threads import Threads
from klet.api.codec import convert
from klet.api.pod import Pod
from klet.host.inotify import watch_directory
from klet.model.reasons import Reason
from klet.simulation import DrivenPodSource, SimulatedNode
from klet.simulation.node import RealDirectories
from klet.testing.builders import IMAGE
from klet.testing.fake_runtime import FakeImage, FakeRuntime, Script
from klet.testing.fake_runtime.lives import always, by_name, runs_for

LABELS = {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}
NAME = {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}


class Machine:
    """What outlives the agent: a fake runtime, and directories that are real."""

    def __init__(self, root, threads, **lives):
        clock = SystemClock()
        script = Script(lives=by_name(lives)) if lives else Script()
        runtime = FakeRuntime(start=clock.now(), script=script, images=(FakeImage(name=IMAGE),))
        directories = RealDirectories(root=root, threads=threads)
        self.node = SimulatedNode(clock=clock, runtime=runtime, directories=directories)
        self.mounts = directories.mounts
        self.root = root

    @asynccontextmanager
    async def agent(self, wanted):
        async with self.node.run_agent(wanted, seed=1) as running:
            yield running.agent

    async def recorded(self, decision, *, times=1):
        """The messages of a decision, once there are so many."""
        with self.node.journal.follow() as news:
            async with asyncio.timeout(20):
                while len(found := self._messages(decision)) < times:
                    await news.get()
        return found

    def _messages(self, decision):
        return [cause.finding.message for cause in self.node.journal.all() if cause.finding.decision == decision]

    def mounted(self, container="c"):
        """Where the mounts of a container come from, and whether they can be written to."""
        [found] = [each for each in self.node.runtime.containers() if each.config.metadata.name == container]
        return {mount.container_path: (mount.host_path, mount.readonly) for mount in found.config.mounts}

    def left(self):
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*"))


@pytest.fixture
def threads():
    made = Threads(limit=4)
    yield made
    made.close()


@pytest.fixture
def machine(tmp_path, threads):
    return Machine(tmp_path / "root", threads)


def pod_with(*volumes, labels=None, mounts=None, **spec) -> Pod:
    mounts = mounts or [{"name": each["name"], "mountPath": f"/{each['name']}"} for each in volumes]
    container = {"name": "c", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "volumeMounts": mounts}
    meta = {
        "name": "p",
        "namespace": "default",
        "uid": "u",
        "labels": labels or {"app": "x"},
        "annotations": {"kubernetes.io/config.source": "file"},
    }
    fields = {"restartPolicy": "Always", "dnsPolicy": "Default", "enableServiceLinks": True}
    grace = {"terminationGracePeriodSeconds": 0}
    return convert(
        Pod, {"metadata": meta, "spec": {"containers": [container], "volumes": list(volumes)} | fields | grace | spec}
    )


async def until_phase(agent, phase):
    with agent.statuses.changes() as changes:
        async with asyncio.timeout(20):
            while (status := agent.statuses.get("u")) is None or status.phase != phase:
                await changes.get()


async def until_finished(agent):
    """Until the pod is over and nothing is held for it any more."""
    with agent.statuses.changes() as changes:
        async with asyncio.timeout(20):
            while (reported := agent.statuses.reported("u")) is None or not reported.is_finished:
                await changes.get()


async def until_shown(path, text):
    """Wait for the content of a file that is shown through links."""
    async with asyncio.timeout(20), aclosing(watch_directory(path.parent)) as changes:
        async for _ in changes:
            if path.read_text() == text:
                return


async def until_gone(machine, agent):
    """Until housekeeping has removed the pod and all it had."""
    await machine.recorded("Removed")
    assert agent.ledger.get("u") is None


async def test_a_pod_has_its_volumes_before_its_container_is_made(machine, tmp_path):
    pod = pod_with(
        {"name": "scratch", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        {"name": "host", "hostPath": {"path": str(tmp_path / "srv"), "type": "DirectoryOrCreate"}},
        {"name": "down", "downwardAPI": {"defaultMode": 0o644, "items": [LABELS]}},
        {"name": "all", "projected": {"defaultMode": 0o644, "sources": [{"downwardAPI": {"items": [NAME]}}]}},
        {"name": "unused", "emptyDir": {}},
        mounts=[{"name": name, "mountPath": f"/{name}"} for name in ("scratch", "memory", "host", "down", "all")],
    )
    wanted = DrivenPodSource()
    async with machine.agent(wanted) as agent:
        wanted.add(pod)
        await until_phase(agent, "Running")
        volumes = machine.root / "pods/u/volumes"
        assert (
            machine.mounted().items()
            >= {
                "/scratch": (str(volumes / "kubernetes.io~empty-dir/scratch"), False),
                "/memory": (str(volumes / "kubernetes.io~empty-dir/memory"), False),
                "/host": (str(tmp_path / "srv"), False),
                "/down": (str(volumes / "kubernetes.io~downward-api/down"), True),
                "/all": (str(volumes / "kubernetes.io~projected/all"), True),
            }.items()
        )
        assert (tmp_path / "srv").is_dir()
        assert (volumes / "kubernetes.io~downward-api/down/labels").read_text() == 'app="x"'
        assert (volumes / "kubernetes.io~projected/all/name").read_text() == "p"
        assert not (volumes / "kubernetes.io~empty-dir/unused").exists()
        assert machine.mounts.mounts[volumes / "kubernetes.io~empty-dir/memory"][1] == "tmpfs"
        (volumes / "kubernetes.io~empty-dir/scratch/file").write_text("the pod's")
        wanted.remove("u")
        await until_gone(machine, agent)
        assert machine.mounts.mounts == {}
        assert machine.left() == ["pods"]
        assert (tmp_path / "srv").is_dir()


async def test_a_pod_that_is_over_loses_its_volumes_while_it_is_still_wanted(tmp_path, threads):
    machine = Machine(tmp_path / "root", threads, c=always(runs_for(timedelta(milliseconds=100))))
    wanted = DrivenPodSource()
    async with machine.agent(wanted) as agent:
        wanted.add(pod_with({"name": "memory", "emptyDir": {"medium": "Memory"}}, restartPolicy="Never"))
        await machine.recorded("Created")
        assert machine.mounts.mounts
        await until_finished(agent)
        assert agent.statuses.get("u").phase == "Succeeded"
        assert machine.mounts.mounts == {}


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        pytest.param(
            {"configMap": {"name": "cfg", "defaultMode": 0o644}},
            'MountVolume.SetUp failed for volume "v" : not supported due to running kubelet in standalone mode',
            id="a config map",
        ),
        pytest.param(
            {"secret": {"secretName": "key", "defaultMode": 0o644}},
            'MountVolume.SetUp failed for volume "v" : not supported due to running kubelet in standalone mode',
            id="a secret",
        ),
        pytest.param(
            {"projected": {"defaultMode": 0o644, "sources": [{"serviceAccountToken": {"path": "token"}}]}},
            'MountVolume.SetUp failed for volume "v" : cannot setup projected volume v because kube client is not '
            "configured",
            id="a token",
        ),
        pytest.param(
            {"glusterfs": {"endpoints": "e", "path": "/"}},
            "Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], failed to process "
            'volumes=[v]: failed to get Plugin from volumeSpec for volume "v" err=no volume plugin matched',
            id="a kind that no node has any more",
        ),
        pytest.param(
            {"gitRepo": {"repository": "https://example.com/x"}},
            'MountVolume.SetUp failed for volume "v" : git-repo volume plugin has been disabled; if necessary, it may '
            "be re-enabled by enabling the feature-gate `GitRepoVolumeDriver`",
            id="a repository of git",
        ),
    ],
)
async def test_what_cannot_be_had_holds_the_pod_up_and_says_why(machine, volume, message):
    wanted = DrivenPodSource()
    async with machine.agent(wanted) as agent:
        wanted.add(pod_with({"name": "v"} | volume))
        assert await machine.recorded("FailedMount") == [message]
        assert agent.statuses.get("u").phase == "Pending"
        assert not machine.node.runtime.sandboxes()
        wanted.remove("u")
        await until_gone(machine, agent)
        assert machine.left() in ([], ["pods"])


async def test_the_next_agent_goes_on_with_what_is_there(machine):
    pod = pod_with(
        {"name": "scratch", "emptyDir": {"medium": "Memory"}},
        {"name": "down", "downwardAPI": {"defaultMode": 0o644, "items": [LABELS]}},
    )
    volumes = machine.root / "pods/u/volumes"
    wanted = DrivenPodSource()
    async with machine.agent(wanted) as agent:
        wanted.add(pod)
        await until_phase(agent, "Running")
    (volumes / "kubernetes.io~empty-dir/scratch/file").write_text("kept")
    before = dict(machine.mounts.mounts)
    wanted = DrivenPodSource()
    async with machine.agent(wanted) as agent:
        wanted.add(pod)
        changed = replace(pod, metadata=replace(pod.metadata, labels={"app": "y"}))
        await until_phase(agent, "Running")
        wanted.update(changed)
        await until_shown(volumes / "kubernetes.io~downward-api/down/labels", 'app="y"')
        assert machine.mounts.mounts == before
        assert (volumes / "kubernetes.io~empty-dir/scratch/file").read_text() == "kept"
        assert len(machine.node.runtime.containers()) == 1
        wanted.remove("u")
        await until_gone(machine, agent)
        assert machine.mounts.mounts == {}


async def test_what_an_agent_left_of_a_pod_that_is_gone_is_taken_down(machine):
    wanted = DrivenPodSource()
    async with machine.agent(wanted) as agent:
        wanted.add(pod_with({"name": "memory", "emptyDir": {"medium": "Memory"}}))
        await until_phase(agent, "Running")
    async with machine.agent(DrivenPodSource()) as agent:
        await until_gone(machine, agent)
        assert machine.mounts.mounts == {}
        assert machine.left() == ["pods"]


async def test_after_a_reboot_memory_is_mounted_and_filled_again_and_the_disk_keeps_its_data(machine):
    pod = pod_with(
        {"name": "disk", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
        {"name": "info", "downwardAPI": {"items": [NAME], "defaultMode": 420}},
        {"name": "all", "projected": {"sources": [{"downwardAPI": {"items": [LABELS]}}], "defaultMode": 420}},
    )
    wanted = DrivenPodSource()
    wanted.add(pod)
    async with machine.agent(wanted) as agent:
        await until_phase(agent, "Running")
    volumes = machine.root / "pods/u/volumes"
    in_memory = dict(machine.mounts.mounts)
    (volumes / "kubernetes.io~empty-dir/disk/kept").write_text("data")
    (volumes / "kubernetes.io~empty-dir/memory/lost").write_text("data")

    machine.node.reboot(clean=False)
    # A reboot takes every tmpfs; the directories below them are on the disk, and empty.
    for path in machine.mounts.mounts:
        shutil.rmtree(path)
        path.mkdir()
    machine.mounts.mounts.clear()

    again = DrivenPodSource()
    again.add(pod)
    async with machine.agent(again):
        await machine.recorded(Reason.STARTED, times=2)
        assert machine.mounts.mounts == in_memory
        assert {path.name for path in in_memory} == {"memory", "info", "all"}
        assert (volumes / "kubernetes.io~empty-dir/disk/kept").read_text() == "data"
        assert list((volumes / "kubernetes.io~empty-dir/memory").iterdir()) == []
        assert (volumes / "kubernetes.io~downward-api/info/name").read_text() == "p"
        assert (volumes / "kubernetes.io~projected/all/labels").read_text() == 'app="x"'

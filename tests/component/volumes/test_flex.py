"""Drivers of flexVolume that are scripts, on a machine whose mounts are only noted."""

import asyncio
import json
from datetime import timedelta

import pytest

from klet.api.codec import convert
from klet.api.config import Secret
from klet.api.pod import Pod
from klet.api.quantity import Quantity
from klet.api.storage import PersistentVolume
from klet.api.volume import Volume
from klet.model.allocation import desired_allocation
from klet.testing.clock import ManualClock
from klet.volumes.build import build_flex_finder, build_plugins
from klet.volumes.errors import VolumeSetupError
from klet.volumes.flex.calls import encode_options, pod_options
from klet.volumes.flex.probing import PERIOD, FlexWatcher
from klet.volumes.plugin_board import PluginBoard
from klet.volumes.plugins.base import ExpandRequest, ExpansionOutcome, LeftVolume, MountRequest, StageRequest
from klet.volumes.spec import VolumeSpec

NAME = "vendor/disk"
OK = """echo '{"status":"Success","device":"/dev/flex0"}'"""
NO = """echo '{"status":"Not supported"}'; exit 1"""


class FlexNode:
    """A machine with a directory of drivers."""

    def __init__(self, disk_node, directory):
        self.disks = disk_node
        self.directory = directory
        self.calls_file = directory.parent / "flex-calls"
        ports = disk_node.build_ports()
        self.board = PluginBoard(build_plugins(ports))
        self.finder = build_flex_finder(ports, directory, self.board)

    def install(self, *, attaches=False, **commands):
        """Have a driver with these commands; the others are not supported."""
        mounted = self.disks.machine.directory / "mounted"
        commands.setdefault(
            "init", f"""echo '{{"status":"Success","capabilities":{{"attach":{str(attaches).lower()}}}}}'"""
        )
        cases = "\n".join(f"{name}) {script} ;;" for name, script in commands.items())
        text = (
            f"#!/bin/sh\n{{ printf '%s\\0' \"$@\"; printf '\\n'; }} >>{self.calls_file}\nmounted={mounted}\n"
            f"case $1 in\n{cases}\n*) {NO} ;;\nesac\n"
        )
        place = self.directory / "vendor~disk"
        place.mkdir(parents=True, exist_ok=True)
        (place / ".new").write_text(text)
        (place / ".new").chmod(0o755)
        (place / ".new").rename(place / "disk")

    def calls(self):
        lines = self.calls_file.read_text().split("\0\n")[:-1]
        self.calls_file.unlink()
        return [line.split("\0") for line in lines]

    @property
    def plugin(self):
        return next((plugin for plugin in self.board if plugin.name == NAME), None)

    @property
    def target(self):
        return self.disks.root / "pods/u/volumes/vendor~disk/v"


@pytest.fixture
def node(disk_node, tmp_path):
    return FlexNode(disk_node, tmp_path / "exec")


def spec_of(**fields):
    return VolumeSpec(convert(Volume, {"name": "v", "flexVolume": {"driver": NAME, **fields}}))


def pod_of():
    metadata = {"name": "p", "namespace": "ns", "uid": "u"}
    return convert(Pod, {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i"}]}})


def request_of(spec, **fields):
    pod = pod_of()
    return MountRequest(pod=pod, allocation=desired_allocation(pod), spec=spec, **fields)


def stage(spec, **fields):
    return StageRequest(pod=pod_of(), spec=spec, **fields)


MOUNT = f'echo "$2" >>$mounted; {OK}'


async def test_a_driver_that_mounts_for_pods(node):
    node.install(mount=MOUNT)
    assert await node.finder.probe() == {NAME}
    spec = spec_of(options={"size": "1"})
    assert node.plugin.supports(spec)
    assert not node.plugin.supports(spec_of(driver="vendor/other"))
    assert (node.plugin.is_attachable(spec), node.plugin.is_device_mountable(spec)) == (False, False)
    for _ in range(2):
        await node.plugin.set_up(request_of(spec))
    init, mount = node.calls()
    assert (init, mount[:2]) == (["init"], ["mount", str(node.target)])
    assert json.loads(mount[2])["size"] == "1"
    for _ in range(2):
        await node.plugin.tear_down("u", "v")
    # It has no unmount, so the agent has unmounted.
    assert [call[0] for call in node.calls()] == ["unmount"]
    assert node.disks.mounts.by_tool == []
    assert not node.target.exists()


async def test_a_command_that_is_not_supported_is_asked_for_once(node):
    node.install(attaches=True, mountdevice=f'echo "$2" >>$mounted; {OK}')
    await node.finder.probe()
    spec = spec_of()
    path = node.plugin.device_mount_path(spec)
    await node.plugin.mount_device(stage(spec, device_path="/dev/x", mount_path=path))
    for _ in range(2):
        await node.plugin.set_up(request_of(spec, device_mount_path=path))
        await node.plugin.tear_down("u", "v")
    assert [call[0] for call in node.calls()] == ["init", "mountdevice", "mount", "unmount"]


async def test_a_driver_that_attaches(node):
    every = dict.fromkeys(("attach", "detach", "waitforattach"), OK)
    node.install(attaches=True, mountdevice=f'echo "$2" >>$mounted; {OK}', **every)
    await node.finder.probe()
    spec, plugin = spec_of(), node.plugin
    options = json.dumps(
        {"kubernetes.io/fsType": "", "kubernetes.io/pvOrVolumeName": "v", "kubernetes.io/readwrite": "rw"},
        separators=(",", ":"),
    )
    assert plugin.volume_name(spec) == "vendor/disk/v"
    assert await plugin.attach(spec, node="n") == "/dev/flex0"
    assert await plugin.wait_for_attach(stage(spec, device_path="/dev/status")) == "/dev/flex0"
    path = plugin.device_mount_path(spec)
    await plugin.mount_device(stage(spec, device_path="/dev/flex0", mount_path=path))
    await plugin.set_up(request_of(spec, device_mount_path=path))
    assert node.disks.mounts.mounts[node.target][0] == path
    await plugin.tear_down("u", "v")
    await plugin.unmount_device(path, device_path="/dev/flex0")
    await plugin.detach(plugin.volume_name(spec), node="n")
    assert node.calls() == [
        ["init"],
        ["attach", options, "n"],
        ["waitforattach", "/dev/status", options],
        ["mountdevice", path, "/dev/flex0", options],
        ["mount", str(node.target), encode_options(spec, pod_options(pod_of(), fs_group=None))],
        ["unmount", str(node.target)],
        ["unmountdevice", path],
        ["detach", "v", "n"],
    ]


async def test_a_device_that_the_driver_does_not_mount_is_formatted_and_mounted(node):
    node.install(attaches=True)
    await node.finder.probe()
    spec = spec_of(fsType="xfs", readOnly=True)
    node.disks.machine.add("blkid", "echo TYPE=xfs")
    path = node.plugin.device_mount_path(spec)
    assert await node.plugin.wait_for_attach(stage(spec, device_path="/dev/status")) == "/dev/status"
    await node.plugin.mount_device(stage(spec, device_path="/dev/status", mount_path=path))
    assert node.disks.machine.calls("mount") == [["-t", "xfs", "-o", "ro,defaults", "/dev/status", path]]


async def test_no_directory_of_the_node_is_given_to_a_pod_in_place_of_a_device(node):
    node.install(attaches=True)
    await node.finder.probe()
    path = node.plugin.device_mount_path(spec_of())
    await node.plugin.mount_device(stage(spec_of(), device_path="", mount_path=path))
    with pytest.raises(VolumeSetupError, match="no disk is mounted at"):
        await node.plugin.set_up(request_of(spec_of(), device_mount_path=path))


async def test_a_failed_mount_leaves_no_directory(node):
    node.install(mount="""echo '{"status":"Failure","message":"no disk"}'; exit 1""")
    await node.finder.probe()
    with pytest.raises(VolumeSetupError, match=r"^mount command failed, status: Failure, reason: no disk$"):
        await node.plugin.set_up(request_of(spec_of()))
    assert not node.target.exists()


async def test_a_secret_has_the_type_of_the_driver(node):
    node.install(mount=MOUNT)
    await node.finder.probe()
    spec = spec_of(secretRef={"name": "key"})
    with pytest.raises(VolumeSetupError, match='Couldn\'t get secret ns/key err: secret "key" not found'):
        await node.plugin.set_up(request_of(spec))
    node.disks.secrets.secrets["ns", "key"] = Secret(data={"user": b"me"}, type="Opaque")
    with pytest.raises(VolumeSetupError, match="cannot get secret of type vendor/disk"):
        await node.plugin.set_up(request_of(spec))
    assert [call[0] for call in node.calls()] == ["init"]
    node.disks.secrets.secrets["ns", "key"] = Secret(data={"user": b"me"}, type=NAME)
    await node.plugin.set_up(request_of(spec))
    [call] = node.calls()
    assert json.loads(call[2])["kubernetes.io/secret/user"] == "bWU="


async def test_growing_with_and_without_the_driver(node):
    volume = convert(PersistentVolume, {"metadata": {"name": "pv"}, "spec": {"flexVolume": {"driver": NAME}}})
    spec = VolumeSpec(Volume(name="v"), volume)
    sizes = {"new_size": Quantity.parse("2Gi"), "old_size": Quantity.parse("1Gi")}
    request = ExpandRequest(spec=spec, device_path="/dev/x", device_mount_path="/m", **sizes)
    node.install(expandfs=OK)
    await node.finder.probe()
    assert (await node.plugin.expand(request)).outcome is ExpansionOutcome.FINISHED
    assert node.calls()[-1][2:] == ["/dev/x", "/m", str(2 << 30), str(1 << 30)]
    node.install()
    await node.finder.probe()
    node.disks.machine.add("blkid", "echo TYPE=ext4")
    node.disks.machine.add("resize2fs")
    assert (await node.plugin.expand(request)).outcome is ExpansionOutcome.FINISHED
    assert node.disks.machine.calls("resize2fs") == [["/dev/x"]]


async def test_a_restart_knows_what_a_directory_is_of(node):
    node.install()
    await node.finder.probe()
    found = await node.plugin.reconstruct(LeftVolume(uid="u", name="v", path=node.target))
    assert node.plugin.supports(found)


class Noting:
    def __init__(self):
        self.changed = []
        self.seen = asyncio.Event()

    def plugin_changed(self, name):
        self.changed.append(name)
        self.seen.set()


async def test_drivers_come_change_and_go_while_the_agent_runs(node):
    clock, noting = ManualClock(), Noting()
    watcher = FlexWatcher(finder=node.finder, volumes=noting, clock=clock)

    async def look():
        await clock.until_asleep(1)
        clock.advance(PERIOD)
        await noting.seen.wait()
        noting.seen.clear()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(watcher.run())
        node.install()
        await look()
        assert not node.plugin.is_attachable(spec_of())
        node.install(attaches=True)
        await look()
        assert node.plugin.is_attachable(spec_of())
        (node.directory / "vendor~disk/disk").unlink()
        await look()
        assert node.plugin is None
        task.cancel()
    assert noting.changed == [NAME] * 3
    assert timedelta(seconds=10) == PERIOD


async def test_a_driver_that_does_not_start_is_asked_again_and_hides_no_other(node, caplog):
    node.install(init="echo oops")
    for _ in range(2):
        assert await node.finder.probe() == frozenset()
    assert [record.message for record in caplog.records] == ["A driver of flexVolume does not start"]
    other = node.directory / "other"
    other.mkdir()
    (other / "other").write_text('#!/bin/sh\necho \'{"status":"Success"}\'\n')
    (other / "other").chmod(0o755)
    assert await node.finder.probe() == {"other"}
    node.install()
    assert await node.finder.probe() == {NAME}


async def test_no_driver_takes_the_name_of_a_plugin_of_the_agent(node):
    place = node.directory / "kubernetes.io~nfs"
    place.mkdir(parents=True)
    (place / "nfs").write_text('#!/bin/sh\necho \'{"status":"Success"}\'\n')
    (place / "nfs").chmod(0o755)
    before = [plugin for plugin in node.board if plugin.name == "kubernetes.io/nfs"]
    assert await node.finder.probe() == frozenset()
    (place / "nfs").unlink()
    await node.finder.probe()
    assert [plugin for plugin in node.board if plugin.name == "kubernetes.io/nfs"] == before


async def test_git_repositories_are_refused(node):
    plugin = next(plugin for plugin in node.board if plugin.name == "kubernetes.io/git-repo")
    spec = VolumeSpec(convert(Volume, {"name": "v", "gitRepo": {"repository": "https://example.com/x"}}))
    assert plugin.supports(spec)
    with pytest.raises(VolumeSetupError) as caught:
        await plugin.set_up(request_of(spec))
    assert str(caught.value) == (
        "git-repo volume plugin has been disabled; if necessary, it may be re-enabled by enabling the feature-gate "
        "`GitRepoVolumeDriver`"
    )
    left = node.disks.root / "pods/u/volumes/kubernetes.io~git-repo/v"
    (left / "x").mkdir(parents=True)
    await plugin.tear_down("u", "v")
    assert not left.exists()

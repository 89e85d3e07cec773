"""Disks under the volume manager: shared by pods, left by a run that was killed, and given to pods as devices."""

import asyncio
from contextlib import asynccontextmanager, suppress

import pytest

from klet.api.codec import convert
from klet.api.pod import Pod
from klet.host.mountinfo import MountEntry

FC = {"targetWWNs": ["50a"], "lun": 0}


def pod_of(uid, source):
    container = {"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    metadata = {"name": f"p-{uid}", "namespace": "ns", "uid": uid}
    return convert(
        Pod, {"metadata": metadata, "spec": {"containers": [container], "volumes": [{"name": "v", **source}]}}
    )


def entry(number, point, source="/dev/sda"):
    return MountEntry(number, 1, "8:0", "/", str(point), ("rw",), (), "ext4", source, ("rw",))


@asynccontextmanager
async def running(manager):
    async with asyncio.TaskGroup() as group:
        task = group.create_task(manager.run())
        manager.release_unused()
        yield manager
        task.cancel()


@pytest.fixture
def node(disk_node):
    disk_node.trees.add_disk("sda", by_path="fc-0x50a-lun-0")
    return disk_node


@pytest.fixture
def place(node):
    return node.root / "plugins/kubernetes.io/fc/50a-lun-0"


def target(node, uid, kind="fc"):
    return node.root / f"pods/{uid}/volumes/kubernetes.io~{kind}/v"


async def test_a_disk_is_mounted_once_for_two_pods_and_removed_after_the_last(node, managed, place):
    async with running(managed(node).manager) as manager:
        for uid in ("u", "w"):
            await manager.wait_for_attach_and_mount(pod_of(uid, {"fc": FC}))
        assert len(node.machine.calls("mount")) == 1
        assert {target(node, uid) for uid in ("u", "w")} == set(node.mounts.mounts)
        await manager.wait_for_unmount("u")
        assert node.mounts.by_tool == [str(place)]
        await manager.wait_for_unmount("w")
        await until(lambda: not place.exists())
        assert node.mounts.by_tool == []
        assert node.mounts.mounts == {}
        await until(lambda: (node.trees.sys / "block/sda/device/delete").read_text() == "1")


async def test_a_run_that_was_killed_leaves_nothing(node, managed, place):
    async with running(managed(node).manager) as manager:
        await manager.wait_for_attach_and_mount(pod_of("u", {"fc": FC}))
    node.devices.table += [entry(2, place), entry(3, target(node, "u"))]
    async with running(managed(node).manager) as manager:
        await manager.wait_for_unmount("u")
        await until(lambda: not place.exists())
        assert not target(node, "u").exists()
        assert (node.mounts.by_tool, node.mounts.mounts) == ([], {})


async def test_a_run_that_was_killed_between_pod_and_device_leaves_nothing(node, managed, place):
    async with running(managed(node).manager) as manager:
        await manager.wait_for_attach_and_mount(pod_of("u", {"fc": FC}))
    node.mounts.unmount(target(node, "u"))
    target(node, "u").rmdir()
    node.devices.table.append(entry(2, place))
    async with running(managed(node).manager):
        await until(lambda: not place.exists())
        assert node.mounts.by_tool == []


async def until(condition):
    """Wait for what the manager does by itself; the deadline of the test ends it."""
    while not condition():
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 0.02)

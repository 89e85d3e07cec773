"""Devices that pods share: mounted before the first pod, unmounted after the last, and uncertain in between."""

import asyncio
from datetime import timedelta

import pytest

from klet.errors import KletError
from klet.volumes.errors import FilesystemMismatch, TransientFailure, UncertainProgress

LOCAL = "kubernetes.io/gce-pd/local-1"
RETRY = timedelta(milliseconds=500)


def calls_of(node, *methods):
    return [call[0] for call in node.disks.calls if call[0] in methods]


@pytest.fixture
def local(disk_volume):
    return disk_volume("local-1")


async def test_pods_share_one_device(running, pod_on, local):
    for uid in ("u1", "u2"):
        assert (await running.wait(pod_on(local, uid=uid))).done()
    await running.end("u1")
    assert calls_of(running, "mount_device", "unmount_device") == ["mount_device"]
    await running.end("u2")
    assert calls_of(running, "mount_device", "unmount_device") == ["mount_device", "unmount_device"]
    assert running.rack.is_empty()


async def test_a_device_stays_for_a_pod_that_wants_it(running, pod_on, local):
    await running.wait(pod_on(local, uid="u1"))
    running.disks.faults["set_up"] = KletError("no")
    await running.wait(pod_on(local, uid="u2"))
    await running.end("u1")
    assert calls_of(running, "unmount_device") == []
    await running.end("u2")
    assert calls_of(running, "unmount_device") == ["unmount_device"]


async def test_two_pods_take_turns_to_mount_and_unmount_together(running, pod_on, local):
    running.disks.gates["set_up"] = asyncio.Event()
    first = await running.wait(pod_on(local, uid="u1"))
    second = await running.wait(pod_on(local, uid="u2"))
    assert running.disks.ups == [("u1", "v")]
    running.disks.gates.pop("set_up").set()
    await running.settle()
    assert (first.done(), second.done()) == (True, True)
    running.disks.gates["tear_down"] = asyncio.Event()
    await running.end("u1")
    await running.end("u2")
    assert running.disks.downs == [("u1", "v"), ("u2", "v")]


async def test_a_pod_that_comes_while_the_device_goes_waits_and_has_it_mounted_again(running, pod_on, local):
    await running.wait(pod_on(local, uid="u1"))
    running.disks.gates["unmount_device"] = asyncio.Event()
    await running.end("u1")
    waiter = await running.wait(pod_on(local, uid="u2"))
    assert not waiter.done()
    running.disks.gates.pop("unmount_device").set()
    await running.settle()
    assert waiter.done()
    assert calls_of(running, "mount_device", "unmount_device", "set_up") == [
        "mount_device", "set_up", "unmount_device", "mount_device", "set_up"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("errors", "unmounts"),
    [
        pytest.param([UncertainProgress("timeout")], 1, id="a timeout: it may be there"),
        pytest.param([KletError("no")], 0, id="a final error: it is not there"),
        pytest.param([TransientFailure("no driver")], 0, id="nothing was tried"),
        pytest.param([UncertainProgress("timeout"), KletError("no")], 0, id="a timeout, and then a final error"),
        pytest.param([UncertainProgress("timeout"), TransientFailure("no driver")], 1, id="a timeout, then nothing"),
    ],
)
@pytest.mark.parametrize(("method", "undo"), [("mount_device", "unmount_device"), ("set_up", "tear_down")])
async def test_what_may_be_there_is_undone(running, pod_on, local, method, undo, errors, unmounts):
    running.rack.directories.clear()
    delay = timedelta()
    for error in errors:
        running.disks.faults[method] = error
        running.volumes.process(pod_on(local))
        await running.settle(delay)
        delay = RETRY
    running.rack.directories.clear()  # only what the manager knows is to be undone
    await running.end("u")
    assert len(calls_of(running, undo)) == unmounts


async def test_a_failed_remount_leaves_the_volume_mounted(running, pod_on, local):
    running.disks.requires_remount = True  # on this object alone
    await running.wait(pod_on(local))
    running.disks.faults["set_up"] = UncertainProgress("timeout")
    await running.settle(timedelta(minutes=2))
    assert len(running.disks.ups) > 1
    assert "v" in running.volumes.mounted_volumes("u")
    await running.end("u")
    assert len(running.disks.downs) == 1


@pytest.mark.parametrize(
    ("method", "step"),
    [
        pytest.param("wait_for_attach", "MountVolume.WaitForAttach failed", id="the attachment"),
        pytest.param("mount_device", "MountVolume.MountDevice failed", id="the device"),
        pytest.param("set_up", "MountVolume.SetUp failed", id="the pod's part"),
    ],
)
async def test_an_event_names_the_step_that_failed(running, pod_on, disk_volume, method, step):
    running.disks.faults[method] = UncertainProgress("no")
    await running.wait(pod_on(disk_volume()))
    await running.go_on("kubernetes.io/gce-pd/a")
    assert running.messages() == [f'FailedMount {step} for volume "v" : no']


async def test_another_filesystem_is_an_event_of_the_persistent_volume_too(running, pod_on):
    running.cluster.add_claim(disk="local-1")
    running.disks.faults["mount_device"] = FilesystemMismatch("it has xfs")
    await running.wait(pod_on(claims=["c"]))
    [mismatch, failed] = running.notes.findings
    assert mismatch.message == 'MountVolume failed for volume "pv-local-1" it has xfs'
    assert (mismatch.event_on.kind, mismatch.event_on.name) == ("PersistentVolume", "pv-local-1")
    assert failed.event_on is None


async def test_a_device_that_is_mounted_elsewhere_stays(running, pod_on, local):
    await running.wait(pod_on(local))
    path = "/plugins/kubernetes.io/gce-pd/mounts/local-1"
    running.devices.elsewhere[path] = [f"/var/lib/klet{path}", "/mnt/mine"]
    await running.end("u")
    assert calls_of(running, "unmount_device") == []
    assert running.messages() == [
        (
            f'FailedUnmountDevice UnmountDevice failed for volume "{LOCAL}" : GetDeviceMountRefs check failed: '
            f'the device mount path "{path}" is still mounted by other references [/mnt/mine]'
        )
    ]
    running.devices.elsewhere[path] = [f"/var/lib/klet{path}"]
    await running.settle(RETRY)
    assert running.rack.is_empty()


async def test_a_device_that_is_open_is_not_given_back(running, pod_on, disk_volume):
    await running.wait(pod_on(disk_volume()))
    await running.go_on("kubernetes.io/gce-pd/a")
    running.devices.busy.add("/dev/a")
    await running.end("u")
    assert running.volumes.volumes_in_use() == ("kubernetes.io/gce-pd/a",)
    assert running.messages() == [
        ('FailedUnmountDevice UnmountDevice failed for volume "kubernetes.io/gce-pd/a" : '
        "the device is in use when it was no longer expected to be in use")
    ]  # fmt: skip
    running.devices.busy.clear()
    await running.settle(RETRY)
    assert running.volumes.volumes_in_use() == ()


async def test_a_volume_for_one_pod_is_refused_to_another(running, pod_on):
    running.cluster.add_claim(disk="local-1", access="ReadWriteOncePod")
    await running.wait(pod_on(claims=["c"], uid="u1"))
    waiter = await running.wait(pod_on(claims=["c"], uid="u2"))
    assert running.messages() == [
        ('FailedMount MountVolume.SetUp failed for volume "pv-local-1" : '
        "volume uses the ReadWriteOncePod access mode and is already in use by another pod")
    ]  # fmt: skip
    await running.end("u1")
    await running.settle(timedelta(minutes=2))
    assert waiter.done()


async def test_a_bug_in_a_plugin_concerns_its_volume_alone(running, pod_on, disk_volume, caplog):
    async def mount_device(_):
        raise ZeroDivisionError("oops")

    running.disks.mount_device = mount_device
    await running.wait(pod_on(disk_volume("local-1")))
    assert running.messages() == ['FailedMount MountVolume.MountDevice failed for volume "v" : ZeroDivisionError: oops']
    assert [record.volume for record in caplog.records] == [LOCAL]

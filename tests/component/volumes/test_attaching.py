"""Volumes that a controller attaches: none is set up before the node's status reports it, and lists it as attached."""

import asyncio
from datetime import timedelta

import pytest

from klet.errors import KletError
from klet.volumes.errors import AttachLimitReached

A = "kubernetes.io/gce-pd/a"
B = "kubernetes.io/gce-pd/b"


async def test_it_waits_until_its_use_is_reported_and_it_is_attached(running, pod_on, disk_volume):
    waiter = await running.wait(pod_on(disk_volume()))
    assert running.volumes.volumes_in_use() == (A,)
    running.cluster.attach(A)
    await running.settle()
    assert (running.disks.calls, waiter.done()) == ([], False)  # a status from before the report may be seen
    running.cluster.attach()
    running.report()
    await running.settle(timedelta(minutes=1))
    assert (running.disks.calls, waiter.done()) == ([], False)
    assert running.cluster.reads == []  # nothing is polled
    running.cluster.attach(A)
    await running.settle()
    assert waiter.done()
    assert running.disks.calls == [("wait_for_attach", "a"), ("mount_device", "a"), ("set_up", "u", "v")]
    assert running.cluster.reads == ["node"]


async def test_what_the_watch_shows_is_not_enough(running, pod_on, disk_volume):
    """The watch may be behind: the controller may have detached the volume before it saw the report."""
    waiter = await running.wait(pod_on(disk_volume()))
    running.report()
    running.cluster.attach(A)
    running.cluster.be_live()
    await running.settle()
    assert (running.disks.calls, waiter.done()) == ([], False)
    assert running.messages() == [
        (
            'VolumeNotAttached VerifyControllerAttachedVolume.Attach failed for volume "v" : '
            "Volume not attached according to node status"
        )
    ]
    running.cluster.be_live(A)
    await running.settle(timedelta(milliseconds=500))
    assert waiter.done()


async def test_the_wait_names_what_is_not_attached(running, pod_on, disk_volume):
    waiter = await running.wait(pod_on(disk_volume()))
    await running.settle(timedelta(minutes=2, seconds=3))
    [error] = await asyncio.gather(waiter, return_exceptions=True)
    assert str(error) == (
        "unmounted volumes=[v], unattached volumes=[v], failed to process volumes=[]: context deadline exceeded"
    )


async def test_a_node_that_can_have_no_more_volumes_says_so(running, pod_on, disk_volume):
    running.disks.is_full = True
    waiter = await running.wait(pod_on(disk_volume()))
    await running.settle(timedelta(minutes=2, seconds=3))
    with pytest.raises(AttachLimitReached) as raised:
        await waiter
    assert str(raised.value) == (
        "Node has reached its volume attachment limit, rejecting pod. "
        "unmounted volumes=[v], unattached volumes=[v], failed to process volumes=[]: context deadline exceeded"
    )


async def test_volumes_in_use_are_named_once_and_in_order(running, pod_on, disk_volume):
    for uid, name in (("u2", "b"), ("u1", "b"), ("u3", "a")):
        running.volumes.process(pod_on(disk_volume(name), uid=uid))
    assert running.volumes.volumes_in_use() == (A, B)


async def test_a_volume_that_needs_no_attaching_does_not_wait(running, pod_on, disk_volume):
    waiter = await running.wait(pod_on(disk_volume("local-1")))
    assert waiter.done()
    assert running.volumes.volumes_in_use() == ()
    assert running.disks.calls == [("mount_device", "local-1"), ("set_up", "u", "v")]


async def test_what_a_pod_has_is_in_use_until_its_device_is_gone(running, pod_on, disk_volume):
    await running.wait(pod_on(disk_volume()))
    await running.go_on(A)
    running.disks.gates["unmount_device"] = asyncio.Event()
    ending = await running.end("u")
    assert ending.done()
    assert running.volumes.volumes_in_use() == (A,)
    with running.volumes.in_use_changes() as changes:
        running.disks.gates["unmount_device"].set()
        await running.settle()
        assert changes.drain() == [A]
    assert running.volumes.volumes_in_use() == ()
    assert running.rack.is_empty()


async def test_other_kinds_are_no_news(running, pod_on, disk_volume):
    with running.volumes.in_use_changes() as changes:
        await running.wait(pod_on(disk_volume("local-1")))
        await running.end("u")
        assert changes.drain() == []


async def test_a_second_pod_of_an_attached_volume_need_not_wait(running, pod_on, disk_volume):
    await running.wait(pod_on(disk_volume(), uid="u1"))
    await running.go_on(A)
    waiter = await running.wait(pod_on(disk_volume(), uid="u2"))
    assert waiter.done()
    assert running.disks.ups == [("u1", "v"), ("u2", "v")]
    assert [call for call in running.disks.calls if call[0] == "mount_device"] == [("mount_device", "a")]


async def test_a_volume_that_comes_back_is_reported_again(running, pod_on, disk_volume):
    await running.wait(pod_on(disk_volume(), uid="u1"))
    await running.go_on(A)
    await running.end("u1")
    again = await running.wait(pod_on(disk_volume(), uid="u2"))
    assert not again.done()  # a status without it may be on its way
    running.report()
    await running.settle()
    assert again.done()


async def test_a_report_without_a_volume_takes_it_back(running, pod_on, disk_volume):
    running.volumes.mark_reported_in_use([A])  # nobody wants it yet
    running.cluster.attach(A)
    waiter = await running.wait(pod_on(disk_volume()))
    assert not waiter.done()
    running.volumes.mark_reported_in_use([])
    running.volumes.mark_reported_in_use([A])
    await running.settle()
    assert waiter.done()


async def test_one_of_which_it_is_not_known_is_reported_and_waits(running, pod_on, disk_volume):
    running.disks.is_unknown = True
    waiter = await running.wait(pod_on(disk_volume("local-1")))
    assert running.volumes.volumes_in_use() == ("kubernetes.io/gce-pd/local-1",)
    await running.go_on("kubernetes.io/gce-pd/local-1")
    assert not waiter.done()
    running.disks.is_unknown = False
    running.volumes.plugin_changed("kubernetes.io/gce-pd")
    await running.settle()
    assert waiter.done()
    assert running.volumes.volumes_in_use() == ()


async def test_a_driver_that_comes_ends_the_back_off(running, pod_on, disk_volume):
    running.disks.faults["mount_device"] = KletError("driver not registered")
    waiter = await running.wait(pod_on(disk_volume("local-1")))
    await running.settle(timedelta(seconds=40))
    del running.disks.faults["mount_device"]
    running.volumes.plugin_changed("kubernetes.io/gce-pd")
    await running.settle()
    assert waiter.done()


@pytest.fixture
async def attaching(staged):
    """A node that no controller attaches volumes to."""
    staged.attaches = True
    staged.begin()
    staged.cluster.attach()
    await staged.start()
    return staged


async def test_without_a_controller_the_agent_attaches(attaching, pod_on, disk_volume):
    waiter = await attaching.wait(pod_on(disk_volume()))
    assert waiter.done()
    assert attaching.rack.attached == {"a"}
    assert attaching.messages() == ['SuccessfulAttachVolume AttachVolume.Attach succeeded for volume "v" ']
    assert attaching.volumes.volumes_in_use() == (A,)
    await attaching.end("u")
    assert attaching.disks.calls[-2:] == [("unmount_device", "a", "/dev/a"), ("detach", "a", "n1")]
    assert attaching.rack.is_empty()
    assert attaching.volumes.volumes_in_use() == ()


async def test_a_failed_attach_is_an_event_and_tried_again(attaching, pod_on, disk_volume):
    attaching.disks.faults["attach"] = KletError("attaching volumes from the kubelet is not supported")
    waiter = await attaching.wait(pod_on(disk_volume()))
    assert attaching.messages() == [
        (
            'FailedAttachVolume AttachVolume.Attach failed for volume "v" : '
            "attaching volumes from the kubelet is not supported"
        )
    ]
    del attaching.disks.faults["attach"]
    await attaching.settle(timedelta(milliseconds=500))
    assert waiter.done()


async def test_a_failed_detach_is_tried_again(attaching, pod_on, disk_volume):
    await attaching.wait(pod_on(disk_volume()))
    attaching.disks.faults["detach"] = KletError("busy")
    await attaching.end("u")
    assert attaching.messages()[-1] == f'FailedDetachVolume DetachVolume.Detach failed for volume "{A}" : busy'
    del attaching.disks.faults["detach"]
    await attaching.settle(timedelta(milliseconds=500))
    assert attaching.rack.is_empty()

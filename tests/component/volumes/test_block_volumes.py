"""Block volumes: staged once, published and linked for each pod, and never a directory."""

from datetime import timedelta
from pathlib import Path

import pytest

from klet.errors import KletError
from klet.volumes.errors import UncertainProgress

MAP = "/plugins/kubernetes.io/gce-pd/volumeDevices/local-1"
RETRY = timedelta(milliseconds=500)


@pytest.fixture
async def block(running):
    running.cluster.add_claim(disk="local-1", mode="Block")
    return running


def link(uid="u"):
    return Path(f"/pods/{uid}/volumeDevices/kubernetes.io~gce-pd/pv-local-1")


async def test_containers_get_the_link_to_the_device(block, pod_on):
    waiter = await block.wait(pod_on(devices=["c"]))
    assert waiter.done()
    found = block.volumes.mounted_volumes("u")["c"]
    assert (found.path, found.device, found.attributes.read_only) == ("", str(link()), False)
    assert block.devices.links == {link(): "/dev/local-1"}
    assert block.devices.binds == {(MAP, "u"): "/dev/local-1"}
    assert block.devices.locks == {(MAP, "u")}
    assert [call[0] for call in block.disks.calls] == ["set_up_device", "map_pod_device"]
    assert block.messages() == [
        f'SuccessfulMountVolume MapVolume.MapPodDevice succeeded for volume "pv-local-1" globalMapPath "{MAP}"',
        ('SuccessfulMountVolume MapVolume.MapPodDevice succeeded for volume "pv-local-1" '
        f'volumeMapPath "{link().parent}"'),
    ]  # fmt: skip


async def test_a_claim_for_reading_only_is_a_device_for_reading_only(block, pod_on):
    await block.wait(pod_on(devices=["c"], read_only=True))
    assert block.volumes.mounted_volumes("u")["c"].attributes.read_only


async def test_the_usage_of_a_device_is_not_measured(block, pod_on):
    await block.wait(pod_on(devices=["c"]))
    assert block.volumes.measurable("u") == ()


async def test_pods_share_the_stage(block, pod_on):
    for uid in ("u1", "u2"):
        await block.wait(pod_on(devices=["c"], uid=uid))
    await block.end("u1")
    assert block.devices.links == {link("u2"): "/dev/local-1"}
    await block.end("u2")
    assert [call for call in block.disks.calls if call[0] != "map_pod_device"] == [
        ("set_up_device", "local-1"),
        ("unmap_pod_device", "u1", "pv-local-1"),
        ("unmap_pod_device", "u2", "pv-local-1"),
        ("tear_down_device", "pv-local-1", "/dev/local-1"),
    ]
    assert block.rack.is_empty()
    assert (block.devices.links, block.devices.binds, block.devices.locks, block.devices.maps) == ({}, {}, set(), set())


@pytest.mark.parametrize(
    ("method", "on_host", "step"),
    [
        pytest.param("set_up_device", False, "SetUpDevice", id="the stage"),
        pytest.param("map_pod_device", False, "MapPodDevice", id="the publication"),
        pytest.param("map_device", True, "MapBlockVolume", id="the bind, the link or the lock"),
    ],
)
async def test_an_event_names_the_step_that_failed(block, pod_on, method, on_host, step):
    if on_host:
        block.devices.errors[method] = "no"
    else:
        block.disks.faults[method] = UncertainProgress("no")
    waiter = await block.wait(pod_on(devices=["c"]))
    assert block.messages() == [f'FailedMapVolume MapVolume.{step} failed for volume "pv-local-1" : no']
    block.devices.errors.clear()
    block.disks.faults.clear()
    await block.settle(RETRY)
    assert waiter.done()


async def test_what_was_published_is_taken_back_though_the_link_failed(block, pod_on):
    block.devices.errors["map_device"] = "no"
    await block.wait(pod_on(devices=["c"]))
    await block.end("u")
    assert block.rack.is_empty()


async def test_a_device_that_pods_still_have_is_not_unstaged(block, pod_on):
    await block.wait(pod_on(devices=["c"]))
    block.devices.binds[MAP, "other"] = "/dev/local-1"
    await block.end("u")
    assert block.messages()[-1] == (
        'FailedUnmountDevice UnmapDevice failed for volume "kubernetes.io/gce-pd/local-1" : '
        f'the device "{MAP}" is still referenced from other Pods [other]'
    )
    del block.devices.binds[MAP, "other"]
    await block.settle(RETRY)
    assert block.rack.is_empty()


async def test_a_failed_unmap_is_tried_again(block, pod_on):
    await block.wait(pod_on(devices=["c"]))
    block.devices.errors["unmap_device"] = "busy"
    ending = await block.end("u")
    assert not ending.done()
    assert block.messages()[-1] == (
        'FailedUnmount UnmapVolume.TearDown failed for volume "kubernetes.io/gce-pd/local-1" : busy'
    )
    block.devices.errors.clear()
    await block.settle(RETRY)
    assert ending.done()


@pytest.mark.parametrize(
    ("mode", "as_device", "message"),
    [
        pytest.param("Block", False, "volume c has volumeMode Block, but is specified in volumeMounts", id="mounted"),
        pytest.param(
            "Filesystem",
            True,
            "volume c has volumeMode Filesystem, but is specified in volumeDevices",
            id="as a device",
        ),
    ],
)
async def test_the_mode_of_the_volume_counts(running, pod_on, mode, as_device, message):
    running.cluster.add_claim(disk="local-1", mode=mode)
    pod = pod_on(devices=["c"]) if as_device else pod_on(claims=["c"])
    with pytest.raises(KletError, match=message):
        await (await running.wait(pod))

"""Volumes that grow: while they are mounted, and while a pod has them; and what their claims say then."""

from datetime import timedelta

import pytest

from klet.errors import KletError
from klet.volumes.plugins.base import Expansion, ExpansionOutcome

RETRY = timedelta(milliseconds=500)
SYNC = timedelta(seconds=10)
OK = Expansion(ExpansionOutcome.FINISHED)
PENDING = {"allocatedResourceStatuses": {"storage": "NodeResizePending"}, "allocatedResources": {"storage": "2Gi"}}
DONE = 'FileSystemResizeSuccessful MountVolume.NodeExpandVolume succeeded for volume "pv-local-1" n1'


@pytest.fixture
async def growing(running):
    running.disks.grows = OK
    running.cluster.add_claim(disk="local-1")
    return running


def grow(node, size="2Gi", **status):
    """Be the controller that has made the volume larger."""
    node.cluster.volumes["pv-local-1"]["spec"]["capacity"]["storage"] = size
    node.cluster.claims["c"]["spec"]["resources"]["requests"]["storage"] = size
    node.cluster.claims["c"]["status"].update(status)


async def sync(node, pod):
    """What a later sync of the pod does."""
    await node.settle(SYNC)
    node.volumes.process(pod)
    await node.settle()


def status(node):
    return node.cluster.claims["c"]["status"]


async def test_a_volume_that_has_grown_before_it_is_mounted_is_expanded(growing, pod_on):
    grow(growing, **PENDING)
    waiter = await growing.wait(pod_on(claims=["c"]))
    assert waiter.done()
    [asked] = growing.disks.expansions
    assert (str(asked.new_size), str(asked.old_size)) == ("2Gi", "1Gi")
    assert (asked.mount_path, asked.device_mount_path) == (
        "/u/pv-local-1", "/plugins/kubernetes.io/gce-pd/mounts/local-1"
    )  # fmt: skip
    assert status(growing)["capacity"] == {"storage": "2Gi"}
    assert status(growing)["allocatedResourceStatuses"] == {}
    assert [patch["status"] for patch in growing.cluster.patches] == [
        {"allocatedResourceStatuses": {"storage": "NodeResizeInProgress"}},
        {"capacity": {"storage": "2Gi"}, "allocatedResourceStatuses": {"storage": None}},
    ]
    assert growing.messages() == [DONE, DONE]
    on = [finding.event_on and finding.event_on.kind for finding in growing.notes.findings]
    assert on == [None, "PersistentVolumeClaim"]


async def test_a_volume_that_has_not_grown_is_left_alone(growing, pod_on):
    pod = pod_on(claims=["c"])
    await growing.wait(pod)
    await sync(growing, pod)
    assert (growing.disks.expansions, growing.cluster.patches) == ([], [])


async def test_a_volume_grows_while_a_pod_has_it(growing, pod_on):
    pod = pod_on(claims=["c"])
    await growing.wait(pod)
    grow(growing, **PENDING)
    await sync(growing, pod)
    assert len(growing.disks.expansions) == 1
    assert status(growing)["capacity"] == {"storage": "2Gi"}
    await sync(growing, pod)
    assert len(growing.disks.expansions) == 1  # it has that size now


async def test_a_volume_of_a_claim_that_says_nothing_grows_too(growing, pod_on):
    pod = pod_on(claims=["c"])
    await growing.wait(pod)
    grow(growing)
    await sync(growing, pod)
    assert [patch["status"] for patch in growing.cluster.patches] == [{"capacity": {"storage": "2Gi"}}]


async def test_a_volume_waits_for_the_controller_with_one_look_a_sync(growing, pod_on):
    pod = pod_on(claims=["c"])
    await growing.wait(pod)
    grow(growing, **{**PENDING, "allocatedResourceStatuses": {"storage": "ControllerResizeInProgress"}})
    await sync(growing, pod)
    reads = len(growing.cluster.reads)
    await growing.settle(timedelta(seconds=9))
    assert len(growing.cluster.reads) == reads
    assert growing.disks.expansions == []
    status(growing).update(PENDING)
    await sync(growing, pod)
    assert len(growing.disks.expansions) == 1


async def test_a_volume_that_does_not_grow_is_an_event_and_a_condition(growing, pod_on):
    pod = pod_on(claims=["c"])
    await growing.wait(pod)
    growing.disks.grows = Expansion(ExpansionOutcome.FAILED, "no space")
    grow(growing, **PENDING)
    await sync(growing, pod)
    assert growing.messages() == [
        'VolumeResizeFailed NodeExpandVolume.NodeExpandVolume failed for volume "pv-local-1" : no space'
    ]
    assert status(growing)["allocatedResourceStatuses"] == {"storage": "NodeResizeInProgress"}
    assert [each["message"] for each in status(growing)["conditions"]] == ["failed to expand pvc with no space"]
    growing.disks.grows = OK
    await growing.settle(RETRY)
    assert status(growing)["conditions"] == []
    assert status(growing)["capacity"] == {"storage": "2Gi"}


async def test_a_size_that_it_never_reaches_is_given_up(growing, pod_on):
    pod = pod_on(claims=["c"])
    await growing.wait(pod)
    growing.disks.grows = Expansion(ExpansionOutcome.INFEASIBLE, "too large")
    grow(growing, **PENDING)
    await sync(growing, pod)
    assert status(growing)["allocatedResourceStatuses"] == {"storage": "NodeResizeInfeasible"}
    await growing.settle(timedelta(minutes=5))
    assert len(growing.disks.expansions) == 1


async def test_a_volume_that_grows_only_unused_is_not_tried_again(growing, pod_on):
    pod = pod_on(claims=["c"])
    await growing.wait(pod)
    growing.disks.grows = Expansion(ExpansionOutcome.IN_USE, "in use")
    grow(growing, **PENDING)
    await sync(growing, pod)
    for _ in range(3):
        await sync(growing, pod)
    assert len(growing.disks.expansions) == 1
    assert growing.messages() == []
    await growing.end("u")
    growing.disks.grows = OK
    await growing.wait(pod_on(claims=["c"], uid="u2"))
    assert status(growing)["capacity"] == {"storage": "2Gi"}


async def test_a_mount_goes_on_though_the_volume_grows_only_unused(growing, pod_on):
    growing.disks.grows = Expansion(ExpansionOutcome.IN_USE, "in use")
    grow(growing, **PENDING)
    assert (await growing.wait(pod_on(claims=["c"]))).done()


async def test_a_mount_fails_with_its_expansion_and_is_undone(growing, pod_on):
    growing.disks.grows = Expansion(ExpansionOutcome.FAILED, "no space")
    grow(growing, **PENDING)
    waiter = await growing.wait(pod_on(claims=["c"]))
    assert not waiter.done()
    assert growing.messages() == [
        'FailedMount MountVolume.Setup failed while expanding volume for volume "pv-local-1" : no space'
    ]
    growing.rack.directories.clear()
    await growing.end("u")
    assert growing.disks.downs == [("u", "pv-local-1")]


async def test_a_volume_for_reading_only_does_not_grow(growing, pod_on):
    grow(growing, **PENDING)
    pod = pod_on(claims=["c"], read_only=True)
    assert (await growing.wait(pod)).done()
    await sync(growing, pod)
    message = 'MountVolume.NodeExpandVolume failed for volume "pv-local-1" requested read-only file system'
    assert growing.messages() == [f"FileSystemResizeFailed {message}"] * 2
    assert growing.disks.expansions == []


async def test_a_claim_that_cannot_be_updated_is_tried_again(growing, pod_on):
    pod = pod_on(claims=["c"])
    await growing.wait(pod)
    growing.cluster.patch_error = KletError("conflict")
    grow(growing)
    await sync(growing, pod)
    assert growing.messages()[-1] == (
        'VolumeResizeFailed NodeExpandVolume.NodeExpandVolume failed for volume "pv-local-1" : '
        'mountVolume.NodeExpandVolume update pvc status failed: patchPVCStatus failed to patch PVC "c": conflict'
    )
    growing.cluster.patch_error = None
    await growing.settle(RETRY)
    assert status(growing)["capacity"] == {"storage": "2Gi"}


async def test_a_block_volume_grows_by_its_stage(running, pod_on):
    running.disks.grows = OK
    running.cluster.add_claim(disk="local-1", mode="Block")
    grow(running, **PENDING)
    await running.wait(pod_on(devices=["c"]))
    [asked] = running.disks.expansions
    assert (asked.mount_path, asked.device_mount_path) == ("/dev/local-1", "/staging/local-1")

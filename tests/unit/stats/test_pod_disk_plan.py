"""What is measured of a pod, and the sums of it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from klet.api.stats import FsStats, VolumeStats
from klet.host.disk import FilesystemUsage
from klet.host.disk_usage import DiskTargetKind, DiskUsage
from klet.model.pods import PodUID
from klet.model.runtime import ContainerId, ContainerRecord, PodRuntimeStatus, RuntimeContainerState, SandboxId
from klet.model.stats import ContainerDisk
from klet.model.volumes import MeasurableVolume, UsageSource
from klet.stats.disk_walker import Measurement
from klet.stats.pod_disk_plan import LOG_PERIOD, compose_pod_disk, compute_ephemeral_storage, plan_targets

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(seconds=5)
NODE_FS = FilesystemUsage(device=1, capacity=1000, available=600, used=400, inodes=100, inodes_free=70)
UID = PodUID("11111111-2222-3333-4444-555555555555")
MINUTE = timedelta(minutes=1)


def fs(used, inodes, at=NOW):
    return FsStats(time=at, used_bytes=used, inodes_used=inodes)


def record(name, state=RuntimeContainerState.RUNNING):
    return ContainerRecord(
        id=ContainerId(name),
        sandbox_id=SandboxId("s"),
        name=name,
        state=state,
        created_at=NOW,
        log_path=f"/var/log/pods/ns_pod_uid/{name}/0.log",
    )


def volume(name, *, source=UsageSource.DU, is_ephemeral=True):
    return MeasurableVolume(name=name, path=f"/root/{name}", source=source, is_ephemeral=is_ephemeral)


HOSTS, EMPTY_LOG, ROOTFS = fs(4096, 1), fs(0, 1), fs(36864, 12)


@pytest.mark.parametrize(
    ("containers", "volumes", "files", "expected"),
    [
        pytest.param(
            [ContainerDisk(rootfs=ROOTFS, logs=EMPTY_LOG)], [], [HOSTS], (40960, 14), id="upstream's worked example"
        ),
        pytest.param(
            [ContainerDisk(logs=fs(500, 1))], [], [HOSTS], (4096, 1), id="a container without a rootfs does not count"
        ),
        pytest.param(
            [ContainerDisk(rootfs=fs(10, 1))], [], [], (10, 1), id="logs that are not known yet count as nothing"
        ),
        pytest.param(
            [ContainerDisk(rootfs=fs(10, 1), logs=fs(20, 2)), ContainerDisk(rootfs=fs(30, 3), logs=fs(40, 4))],
            [VolumeStats(time=NOW, used_bytes=100, inodes_used=5)],
            [fs(1000, 6), HOSTS],
            (5296, 22),
            id="everything is added up",
        ),
        pytest.param(
            [ContainerDisk(rootfs=FsStats(time=NOW))], [], [HOSTS], (4096, 1), id="a layer without numbers is zero"
        ),
    ],
)
def test_compute_ephemeral_storage(containers, volumes, files, expected):
    found = compute_ephemeral_storage(containers, volumes=volumes, files=files, node_fs=NODE_FS)
    assert (found.used_bytes, found.inodes_used) == expected
    assert (found.capacity_bytes, found.available_bytes, found.inodes, found.inodes_free) == (1000, 600, 100, 70)


def test_ephemeral_storage_is_as_new_as_its_newest_part():
    found = compute_ephemeral_storage([], volumes=[], files=[HOSTS, fs(1, 1, LATER)], node_fs=NODE_FS)
    assert found.time == LATER


def test_ephemeral_storage_of_nothing_is_not_known():
    assert compute_ephemeral_storage([], volumes=[], files=[], node_fs=NODE_FS) is None


def test_logs_of_running_containers_the_pod_s_own_files_and_volumes_are_measured():
    pod = PodRuntimeStatus(uid=UID, containers=(record("a"), record("old", RuntimeContainerState.EXITED)))
    targets = plan_targets(pod, [volume("v"), volume("n", source=UsageSource.STATFS)], root=Path("/k"))
    assert [(target.kind, target.path, period) for target, period in targets.periods(MINUTE)] == [
        (DiskTargetKind.TREE, "/root/v", MINUTE),
        (DiskTargetKind.FILESYSTEM, "/root/n", MINUTE),
        (DiskTargetKind.FILES, "/var/log/pods/ns_pod_uid/a", LOG_PERIOD),
        (DiskTargetKind.FILES, "/var/log/pods/ns_pod_uid", LOG_PERIOD),
        (DiskTargetKind.FILE, f"/k/pods/{UID}/etc-hosts", LOG_PERIOD),
    ]


def test_ephemeral_volumes_come_first_and_only_they_count():
    pod = PodRuntimeStatus(uid=UID, containers=(record("a"),))
    targets = plan_targets(pod, [volume("token", is_ephemeral=False), volume("scratch")], root=Path("/k"))

    def measured(target):
        if target.kind is DiskTargetKind.TREE:
            return Measurement(DiskUsage(used=100, inodes=3, filesystem=NODE_FS), NOW)
        return None

    disk = compose_pod_disk(targets, measured=measured, rootfs={}, containers=[ContainerId("a")], node_fs=NODE_FS)
    assert [each.name for each in disk.volumes] == ["scratch", "token"]
    assert disk.volumes[0].capacity_bytes == 1000
    assert disk.ephemeral_storage.used_bytes == 100
    assert disk.containers[ContainerId("a")] == ContainerDisk()


@pytest.mark.parametrize(
    ("is_abnormal", "expected"),
    [
        pytest.param(True, {"data": "dying"}, id="abnormal"),
        pytest.param(False, {}, id="well"),
        pytest.param(None, {}, id="its driver says nothing"),
    ],
)
def test_what_a_driver_says_of_an_abnormal_volume_is_kept(is_abnormal, expected):
    pod = PodRuntimeStatus(uid=UID, name="p", namespace="ns", containers=())
    data = volume("data", source=UsageSource.DRIVER, is_ephemeral=False)
    targets = plan_targets(pod, [data], root=Path("/root"))
    usage = DiskUsage(used=1, inodes=1, is_abnormal=is_abnormal, condition="dying")
    measured = {targets.volumes[0][1]: Measurement(usage, NOW)}
    found = compose_pod_disk(targets, measured=measured.get, rootfs={}, containers=(), node_fs=NODE_FS)
    assert found.abnormal_volumes == expected

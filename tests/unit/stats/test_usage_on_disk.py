from datetime import UTC, datetime

import pytest

from klet.api.stats import FsStats, PVCReference, VolumeHealthStats, VolumeStats
from klet.errors import KletError
from klet.metrics import MetricRegistry
from klet.model.runtime import ContainerRecord, PodRuntimeStatus, RuntimeContainerState
from klet.model.stats import ContainerDisk, PodDisk
from klet.stats.usage_on_disk import DiskUsageMetrics

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CLAIM = PVCReference(name="data", namespace="ns")
VOLUME = VolumeStats(time=NOW, capacity_bytes=9, used_bytes=4, inodes=3, name="v", pvc_ref=CLAIM)
LOGS = 'kubelet_container_log_filesystem_used_bytes{container="main",namespace="ns",pod="web",uid="uid"} 4096'


def record(name, state=RuntimeContainerState.RUNNING):
    return ContainerRecord(id=f"id-{name}", sandbox_id="s", name=name, image="i", state=state, created_at=NOW)


class Runtime:
    def pods(self):
        records = (record("main"), record("new"), record("old", RuntimeContainerState.EXITED))
        return {"uid": PodRuntimeStatus(uid="uid", name="web", namespace="ns", containers=records)}


class Disk:
    """Logs of two containers, and volumes."""

    def __init__(self, *volumes):
        logs = ContainerDisk(logs=FsStats(time=NOW, used_bytes=4096))
        self.found = {"uid": PodDisk(containers={"id-main": logs, "id-old": logs}, volumes=volumes)}
        self.error = None

    async def pods(self):
        if self.error is not None:
            raise self.error
        return self.found


async def scrape(disk):
    registry = MetricRegistry()
    metrics = DiskUsageMetrics(registry=registry, disk=disk, seen=Runtime())
    await metrics.refresh()
    return {line for line in registry.write().decode().splitlines() if not line.startswith("#")}


async def test_logs_of_running_containers_are_shown():
    assert await scrape(Disk()) == {LOGS}


async def test_volumes_of_claims_are_shown_and_no_others():
    labels = '{namespace="ns",persistentvolumeclaim="data"}'
    assert await scrape(Disk(VOLUME, VOLUME, VolumeStats(time=NOW, used_bytes=1, name="scratch"))) == {
        LOGS,
        f"kubelet_volume_stats_capacity_bytes{labels} 9",
        f"kubelet_volume_stats_used_bytes{labels} 4",
        f"kubelet_volume_stats_inodes{labels} 3",
    }


@pytest.mark.parametrize(("abnormal", "value"), [(True, "1"), (False, "0")])
async def test_the_health_of_volumes_is_shown_where_their_driver_says_it(abnormal, value):
    ill = VolumeStats(time=NOW, name="v", pvc_ref=CLAIM, volume_health_stats=VolumeHealthStats(abnormal=abnormal))
    shown = 'kubelet_volume_stats_health_status_abnormal{namespace="ns",persistentvolumeclaim="data"}'
    assert await scrape(Disk(ill)) == {LOGS, f"{shown} {value}"}


async def test_a_disk_that_cannot_be_read_is_left_out_of_the_scrape():
    disk = Disk(VOLUME)
    disk.error = KletError("the runtime does not answer")
    assert await scrape(disk) == set()

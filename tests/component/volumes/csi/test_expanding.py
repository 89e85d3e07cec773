"""Expansion and usage against the driver."""

import pytest

from klet.aio.clock import SystemClock
from klet.aio.threads import Threads
from klet.api.quantity import Quantity
from klet.csi.client import CsiVolumeStats, NodeCapability, UsageNumbers
from klet.host.disk_usage import DiskTarget, DiskTargetKind, HostDiskMeter, NotMeasured
from klet.host.project_quotas import NoQuotas
from klet.testing.csi.driver import NAME
from klet.testing.csi.faults import DriverFault
from klet.volumes.csi.expanding import CsiUsage
from klet.volumes.csi.usage import DriverDiskMeter
from klet.volumes.errors import TransientFailure
from klet.volumes.plugins.base import ExpandRequest, Expansion, ExpansionOutcome
from klet.wire import csi_v1_pb2 as pb
from klet.wire.codes import Code

EXPAND = NodeCapability.EXPAND_VOLUME
STAGE = NodeCapability.STAGE_UNSTAGE_VOLUME
STATS = NodeCapability.GET_VOLUME_STATS


def request(bench, spec=None, **more):
    given = {"mount_path": str(bench.target()), "device_mount_path": str(bench.staging), **more}
    sizes = {"new_size": Quantity.parse("2Gi"), "old_size": Quantity.parse("1Gi")}
    return ExpandRequest(spec=spec or bench.persistent(), **sizes, **given)


async def test_the_driver_is_asked_for_the_new_size(bench):
    bench.allow(EXPAND, STAGE)
    bench.api.secrets["ns", "s"] = {"key": "hush"}
    spec = bench.persistent(nodeExpandSecretRef={"name": "s", "namespace": "ns"}, options=("noatime",))
    assert bench.plugin.is_expandable(spec)
    assert await bench.plugin.expand(request(bench, spec)) == Expansion(ExpansionOutcome.FINISHED)
    (seen,) = bench.driver.requests("NodeExpandVolume")
    assert seen.capacity_range == pb.CapacityRange(required_bytes=2 << 30)
    assert (seen.volume_path, seen.staging_target_path) == (str(bench.target()), str(bench.staging))
    assert (dict(seen.secrets), list(seen.volume_capability.mount.mount_flags)) == ({"key": "hush"}, ["noatime"])


async def test_a_device_grows_at_its_path_with_the_staging_path(bench):
    bench.allow(EXPAND)
    spec = bench.persistent(mode="Block")
    await bench.plugin.expand(request(bench, spec, device_path="/dev/x", device_mount_path="/map"))
    (seen,) = bench.driver.requests("NodeExpandVolume")
    assert seen.volume_capability.HasField("block")
    assert seen.volume_path == "/dev/x"
    assert seen.staging_target_path.endswith("/volumeDevices/staging/pvc-7f3a")


async def test_a_driver_that_cannot_is_not_asked(bench):
    found = await bench.plugin.expand(request(bench))
    assert found == Expansion(ExpansionOutcome.NOT_SUPPORTED, f"NodeExpand is not supported by the CSI driver {NAME}")
    assert bench.driver.requests("NodeExpandVolume") == []


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (Code.FAILED_PRECONDITION, ExpansionOutcome.IN_USE),
        (Code.OUT_OF_RANGE, ExpansionOutcome.INFEASIBLE),
        (Code.DEADLINE_EXCEEDED, ExpansionOutcome.FAILED),
    ],
)
async def test_failures(bench, code, outcome):
    bench.allow(EXPAND)
    bench.driver.faults.add(DriverFault(rpc="NodeExpandVolume", does=code))
    assert (await bench.plugin.expand(request(bench))).outcome is outcome


async def test_what_is_missing_before_the_call(bench):
    bench.allow(EXPAND)
    spec = bench.persistent(nodeExpandSecretRef={"name": "s", "namespace": "ns"})
    found = await bench.plugin.expand(request(bench, spec))
    assert found.outcome is ExpansionOutcome.FAILED
    assert found.error.startswith("expander.NodeExpand failed to get NodeExpandSecretRef ns/s: ")
    bench.driver.faults.add(DriverFault(rpc="NodeGetCapabilities", does=Code.INTERNAL, message="no"))
    found = await bench.plugin.expand(request(bench))
    assert found.error == (
        "Expander.NodeExpand failed to check if node supports expansion : rpc error: code = Internal desc = no"
    )
    bench.drivers.endpoints.clear()
    with pytest.raises(TransientFailure):
        await bench.plugin.expand(request(bench))


@pytest.mark.parametrize(
    ("has_conditions", "capabilities", "is_abnormal"),
    [
        pytest.param(True, {STATS, NodeCapability.VOLUME_CONDITION}, True, id="health is asked for and known"),
        pytest.param(True, {STATS}, None, id="the driver does not know it"),
        pytest.param(False, {STATS, NodeCapability.VOLUME_CONDITION}, None, id="nobody asks"),
    ],
)
async def test_usage_and_health(bench, has_conditions, capabilities, is_abnormal):
    bench.allow(*capabilities)
    bench.driver.condition = pb.VolumeCondition(abnormal=True, message="dying")
    await bench.publish()
    usage = CsiUsage(access=bench.access, has_conditions=has_conditions)
    assert await usage.read(NAME, "vol-0a1b", str(bench.target())) == CsiVolumeStats(
        space=UsageNumbers(1_000_000, 1_000_000, 0),
        inodes=UsageNumbers(100, 100, 0),
        is_abnormal=is_abnormal,
        condition="dying" if is_abnormal else "",
    )


async def test_a_driver_that_does_not_count_is_not_asked(bench):
    usage = CsiUsage(access=bench.access, has_conditions=True)
    assert await usage.read(NAME, "vol-0a1b", "/x") is None
    assert bench.driver.requests("NodeGetVolumeStats") == []


@pytest.fixture
def meter(bench, request):
    threads = Threads(limit=1)
    clock = SystemClock()
    inner = HostDiskMeter(threads=threads, clock=clock, quotas=NoQuotas())
    usage = CsiUsage(access=bench.access, has_conditions=getattr(request, "param", False))
    yield DriverDiskMeter(inner=inner, usage=usage, root=bench.root, threads=threads, clock=clock)
    threads.close()


async def test_volumes_of_drivers_are_measured_beside_all_others(bench, meter, tmp_path):
    bench.allow(STATS)
    await bench.publish()
    (bench.driver.content("vol-0a1b") / "file").touch()
    volume = DiskTarget(DiskTargetKind.DRIVER, str(bench.target()), 5)
    other = DiskTarget(DiskTargetKind.FILESYSTEM, str(tmp_path), 1)
    readings = await meter.measure((volume, other))
    found = readings[volume]
    assert (found.used, found.inodes, found.driver, found.is_abnormal) == (1, 1, NAME, None)
    assert (found.filesystem.capacity, found.filesystem.available) == (1_000_000, 999_999)
    assert readings[other].filesystem.capacity > 0


@pytest.mark.parametrize("meter", [True], ids=["health is asked for"], indirect=True)
async def test_a_measured_volume_has_what_its_driver_says_of_it(bench, meter):
    bench.allow(STATS, NodeCapability.VOLUME_CONDITION)
    bench.driver.condition = pb.VolumeCondition(abnormal=True, message="dying")
    await bench.publish()
    volume = DiskTarget(DiskTargetKind.DRIVER, str(bench.target()), 5)
    found = (await meter.measure([volume]))[volume]
    assert (found.is_abnormal, found.condition) == (True, "dying")


@pytest.mark.parametrize(
    ("capabilities", "is_published", "is_missing"),
    [
        pytest.param({STATS}, False, True, id="it is not published"),
        pytest.param(set(), True, True, id="the driver does not count"),
        pytest.param({STATS}, True, False, id="the driver fails"),
    ],
)
async def test_what_cannot_be_measured_says_why(bench, meter, capabilities, is_published, is_missing):
    bench.allow(*capabilities)
    if is_published:
        await bench.publish()
    if not is_missing:
        bench.driver.faults.add(DriverFault(rpc="NodeGetVolumeStats", does=Code.INTERNAL))
    volume = DiskTarget(DiskTargetKind.DRIVER, str(bench.target()), 5)
    found = (await meter.measure((volume,)))[volume]
    assert isinstance(found, NotMeasured)
    assert found.is_missing == is_missing

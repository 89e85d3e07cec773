"""When cgroups are read, and which rate they are shown with."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from klet.model.runtime import PodRuntimeStatus, SandboxRecord
from klet.model.stats import CgroupLevel, CpuCounters
from klet.simulation.fake_usage import MemoryUsageHost
from klet.stats.collector import SHORT_SPAN, StatsCollector, StatsSettings
from klet.stats.sandbox_images import SandboxImages
from klet.testing.clock import ManualClock
from klet.wire import cri_v1_pb2 as pb

SECOND = 1_000_000_000
POD = "/kubepods/poduid"


SANDBOX = "5" * 64
ON_HOST = PodRuntimeStatus(
    uid="uid",
    name="web",
    namespace="default",
    sandboxes=(
        SandboxRecord(
            id=SANDBOX, attempt=0, ready=True, created_at=datetime(2026, 1, 1, tzinfo=UTC), host_network=True
        ),
    ),
)


class Pods:
    def __init__(self, *pods):
        self._pods = {pod.uid: pod for pod in pods}

    def pods(self):
        return self._pods


class NamedSandboxes:
    """A runtime that gives every sandbox the same image."""

    async def pod_sandbox_status(self, request):
        assert request.verbose
        return pb.PodSandboxStatusResponse(info={"info": '{"image":"pause:1"}'})


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def host(clock):
    return MemoryUsageHost(clock=clock)


@pytest.fixture
def collector(host, clock):
    return make_collector(host, clock)


def make_collector(host, clock, *pods):
    return StatsCollector(
        host=host,
        seen=Pods(*pods),
        images=SandboxImages(runtime=NamedSandboxes(), clock=clock),
        settings=StatsSettings(),
        pods_root=lambda: "/kubepods",
        clock=clock,
    )


async def read_twice(collector, clock):
    """Ask for a snapshot that needs two readings of CPU time, and let the time between them pass."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(collector.snapshot())
        await clock.until_asleep()
        clock.advance(SHORT_SPAN)
    return task.result()


def rate(snapshot, path):
    return snapshot.by_path()[path].cpu.rate


async def test_the_first_snapshot_measures_old_cgroups_twice(collector, host, clock):
    async with asyncio.TaskGroup() as group:
        task = group.create_task(collector.snapshot())
        await clock.until_asleep()
        host.put("/", cpu=CpuCounters(SECOND // 8))
        clock.advance(SHORT_SPAN)
    assert rate(task.result(), "/") == SECOND // 2
    assert host.reads == 1


async def test_a_young_cgroup_began_with_nothing(collector, host, clock):
    await read_twice(collector, clock)
    host.put(POD, cpu=CpuCounters(0))
    clock.advance(timedelta(seconds=20))
    host.put(POD, cpu=CpuCounters(4 * SECOND))
    assert rate(await collector.snapshot(), POD) == SECOND // 5


async def test_the_rate_covers_the_time_since_the_snapshot_before(collector, host, clock):
    await read_twice(collector, clock)
    clock.advance(timedelta(seconds=15))
    host.put("/", cpu=CpuCounters(3 * SECOND))
    found = rate(await collector.snapshot(), "/")
    assert found == SECOND // 5


async def test_after_a_long_pause_cpu_is_measured_twice_again(collector, host, clock):
    await read_twice(collector, clock)
    clock.advance(timedelta(hours=1))
    host.put("/", cpu=CpuCounters(3600 * SECOND))
    assert rate(await read_twice(collector, clock), "/") == 0


@pytest.mark.parametrize(
    ("pause", "max_age", "reads"),
    [
        pytest.param(10, None, 1, id="a snapshot serves for the interval"),
        pytest.param(10.5, None, 2, id="one that is older is read again"),
        pytest.param(5, 2, 2, id="a caller may ask for a newer one"),
        pytest.param(50, 60, 1, id="or be content with an older one"),
    ],
)
async def test_how_long_a_snapshot_is_handed_out(collector, host, clock, pause, max_age, reads):
    await read_twice(collector, clock)
    clock.advance(timedelta(seconds=pause))
    await collector.snapshot(max_age=None if max_age is None else timedelta(seconds=max_age))
    assert host.reads == reads


async def test_requests_at_the_same_time_share_one_reading(collector, host, clock):
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(collector.snapshot(max_age=timedelta())) for _ in range(3)]
        await clock.until_asleep()
        clock.advance(SHORT_SPAN)
    assert len({id(task.result()) for task in tasks}) == 1
    assert host.reads == 1


async def test_cgroups_of_pods_and_of_the_system_are_found(collector, host, clock):
    for path in ("/kubepods", POD, "/elsewhere"):
        host.put(path, cpu=CpuCounters(0))
    snapshot = await read_twice(collector, clock)
    assert {each.cgroup.path: each.cgroup.level for each in snapshot.cgroups} == {
        "/": CgroupLevel.ROOT,
        "/kubepods": CgroupLevel.PODS,
        POD: CgroupLevel.POD,
    }


async def test_a_sandbox_on_the_network_of_the_host_has_that_network_and_its_image(host, clock):
    for path in (POD, f"{POD}/{SANDBOX}"):
        host.put(path, cpu=CpuCounters(0))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(make_collector(host, clock, ON_HOST).snapshot())
        await clock.run(SHORT_SPAN)
    snapshot = task.result()
    found = snapshot.by_path()[f"{POD}/{SANDBOX}"]
    assert found.cgroup.image == "pause:1"
    assert found.network is not None
    assert snapshot.by_path()[POD].network is None

from datetime import timedelta

import pytest

from klet.aio.threads import Threads
from klet.host.cgroups.layout import CgroupMode
from klet.host.cgroups.manager import CgroupManager, NoUnits
from klet.host.cgroups.metrics import register_cgroups
from klet.host.cgroups.names import ROOT, CgroupDriver, CgroupName
from klet.host.cgroups.resources import CgroupResources
from klet.host.errors import CgroupBusy, CgroupMissing, CgroupNameError
from klet.metrics import MetricRegistry
from klet.testing.cgroups import MemoryHierarchy

POD = CgroupName(("kubepods", "burstable", "pod1"))
PATH = "/kubepods/burstable/pod1"


class CountingClock:
    """Notes how long was slept and returns at once."""

    def __init__(self):
        self.slept = []

    def monotonic(self):
        return float(len(self.slept))

    async def sleep(self, duration):
        self.slept.append(duration)


@pytest.fixture
def hierarchy():
    return MemoryHierarchy()


@pytest.fixture
def clock():
    return CountingClock()


@pytest.fixture
def registry():
    return MetricRegistry()


@pytest.fixture
def cgroups(hierarchy, clock, registry):
    threads = Threads(limit=1)
    manager: CgroupManager = CgroupManager(
        hierarchy=hierarchy, units=NoUnits(), threads=threads, clock=clock, durations=register_cgroups(registry)
    )
    yield manager
    threads.close()


async def test_create_makes_the_parents_and_writes_the_values(cgroups, hierarchy):
    assert not cgroups.exists(POD)
    await cgroups.create(POD, CgroupResources(cpu_shares=102, memory_limit=4096))
    cgroups.validate(POD)
    assert cgroups.exists(POD.parent)
    assert (await cgroups.read(POD)).memory_limit == 4096
    assert hierarchy.cgroups[PATH].cpu_shares == 102


async def test_values_that_a_new_cgroup_refuses_are_only_logged(cgroups, hierarchy, caplog):
    hierarchy.refuses[PATH] = "no such controller"
    await cgroups.create(POD, CgroupResources(memory_limit=1))
    assert cgroups.exists(POD)
    assert [record.error for record in caplog.records] == ["no such controller"]


async def test_what_is_missing_is_named(cgroups):
    with pytest.raises(CgroupMissing, match=r'cgroup \["kubepods" "burstable" "pod1"\] has some missing paths'):
        cgroups.validate(POD)


async def test_update_leaves_alone_what_is_not_given(cgroups):
    await cgroups.create(POD, CgroupResources(cpu_shares=102, memory_limit=4096))
    await cgroups.update(POD, CgroupResources(cpu_shares=2))
    values = await cgroups.read(POD)
    assert (values.cpu_shares, values.memory_limit) == (2, 4096)


async def test_children_are_those_with_a_name_of_ours(cgroups, hierarchy):
    await cgroups.create(POD, CgroupResources())
    hierarchy.create("/kubepods/burstable/not_ours", CgroupResources())
    assert await cgroups.children(POD.parent) == {POD}
    assert await cgroups.children(ROOT) == {CgroupName(("kubepods",))}


async def test_a_busy_cgroup_is_tried_again_with_doubling_waits(cgroups, hierarchy, clock):
    await cgroups.create(POD, CgroupResources())
    hierarchy.exiting[PATH] = 3
    await cgroups.destroy(POD)
    assert not cgroups.exists(POD)
    assert clock.slept == [timedelta(milliseconds=wait) for wait in (1, 2, 4)]


async def test_a_cgroup_that_stays_busy_is_given_up(cgroups, hierarchy, clock):
    await cgroups.create(POD, CgroupResources())
    hierarchy.processes[PATH] = {1234567}
    with pytest.raises(CgroupBusy, match=r"failed to delete cgroup paths for \[kubepods burstable pod1\] : "):
        await cgroups.destroy(POD)
    assert len(clock.slept) == 10


async def test_destroying_what_is_gone_is_fine(cgroups):
    await cgroups.destroy(POD)


async def test_the_root_is_neither_killed_nor_removed(cgroups):
    for name in (ROOT, CgroupName(("",))):
        with pytest.raises(CgroupNameError, match="root cgroup"):
            await cgroups.kill_all(name)
        with pytest.raises(CgroupNameError, match="root cgroup"):
            await cgroups.destroy(name)


async def test_the_kernel_kills_where_it_can(cgroups, hierarchy):
    hierarchy.processes[PATH + "/container"] = {1234567}
    await cgroups.kill_all(POD)
    assert await cgroups.pids(POD) == frozenset()


async def test_what_the_manager_says_of_itself(cgroups):
    assert cgroups.mode is CgroupMode.UNIFIED
    assert cgroups.driver is CgroupDriver.CGROUPFS
    assert cgroups.path(POD) == PATH
    assert cgroups.parse(PATH) == POD


async def test_changes_are_measured(cgroups, hierarchy, registry):
    await cgroups.create(POD, CgroupResources(memory_limit=4096))
    await cgroups.update(POD, CgroupResources(memory_limit=8192))
    hierarchy.exiting[PATH] = 1
    await cgroups.destroy(POD)
    name = "kubelet_cgroup_manager_duration_seconds"
    lines = registry.write().decode().splitlines()
    for operation, seconds in (("create", 0), ("update", 0), ("destroy", 1)):
        assert f'{name}_count{{operation_type="{operation}"}} 1' in lines
        assert f'{name}_sum{{operation_type="{operation}"}} {seconds}' in lines

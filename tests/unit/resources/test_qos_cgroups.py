"""The cgroups of the QoS classes."""

import asyncio

import pytest

from klet.aio.threads import Threads
from klet.host.cgroups.manager import CgroupManager, NoUnits
from klet.host.cgroups.metrics import register_cgroups
from klet.host.cgroups.names import CgroupName
from klet.host.cgroups.resources import CgroupResources
from klet.host.cgroups.usage import CgroupMemoryUsage, CgroupUsage
from klet.host.errors import CgroupError
from klet.metrics import MetricRegistry
from klet.model.allocation import desired_allocation
from klet.resources.cgroup_values import QosRules
from klet.resources.qos_cgroups import NoQosCgroups, QosCgroups
from klet.testing.builders import make_container, make_pod, with_resources
from klet.testing.cgroups import MemoryHierarchy
from klet.testing.clock import ManualClock

ROOT, BURSTABLE, BEST_EFFORT = "/kubepods", "/kubepods/burstable", "/kubepods/besteffort"
PAGES = {2 << 20: 1 << 62}
MIB = 1 << 20


def given(pod):
    return pod, desired_allocation(pod)


def burstable(cpu="500m", memory="100Mi", *, uid="u"):
    return given(make_pod(with_resources(make_container("c"), requests={"cpu": cpu, "memory": memory}), uid=uid))


def made(cgroups, **rules):
    return QosCgroups(
        cgroups=cgroups, kubepods=CgroupName(("kubepods",)), rules=QosRules(**rules), root_limits=lambda: None
    )


class CountingHierarchy:
    """Notes each write and hands it on."""

    def __init__(self, hierarchy):
        self.writes = []
        self._write = hierarchy.write
        hierarchy.write = self.write

    def write(self, path, resources):
        self.writes.append(path)
        self._write(path, resources)


async def test_the_start_makes_the_cgroups(cgroups, hierarchy):
    await made(cgroups, hugepage_sizes=(2 << 20,)).start()
    assert hierarchy.cgroups[ROOT] == CgroupResources(hugepages=PAGES)
    assert hierarchy.cgroups[BURSTABLE] == CgroupResources(hugepages=PAGES)
    assert hierarchy.cgroups[BEST_EFFORT] == CgroupResources(cpu_shares=2, hugepages=PAGES)


async def test_a_new_agent_keeps_the_shares_until_it_knows_the_pods(cgroups, hierarchy):
    first = made(cgroups)
    await first.start()
    await first.update([burstable()])
    hierarchy.cgroups[BEST_EFFORT] = CgroupResources(cpu_shares=7)
    await made(cgroups).start()
    assert hierarchy.cgroups[BURSTABLE].cpu_shares == 512
    assert hierarchy.cgroups[BEST_EFFORT].cpu_shares == 2


async def test_shares_follow_the_pods(cgroups, hierarchy):
    qos = made(cgroups)
    await qos.start()
    await qos.update([burstable(), burstable(uid="v"), given(make_pod(uid="w"))])
    assert hierarchy.cgroups[BURSTABLE].cpu_shares == 1024
    await qos.update([burstable()])
    assert hierarchy.cgroups[BURSTABLE].cpu_shares == 512
    await qos.update([])
    assert hierarchy.cgroups[BURSTABLE].cpu_shares == 2


async def test_a_pod_that_changed_is_summed_again(cgroups, hierarchy):
    qos = made(cgroups)
    await qos.start()
    same = burstable("500m", uid="same")
    await qos.update([same, burstable("500m", uid="other")])
    await qos.update([same, burstable("1500m", uid="other")])
    assert hierarchy.cgroups[BURSTABLE].cpu_shares == 2048


async def test_only_what_changed_is_written(cgroups, hierarchy):
    qos = made(cgroups)
    await qos.start()
    counter = CountingHierarchy(hierarchy)
    await qos.update([burstable()])
    await qos.update([burstable()])
    assert counter.writes == [ROOT, BURSTABLE, BEST_EFFORT]
    await qos.update([burstable(), burstable(uid="v")])
    assert counter.writes == [ROOT, BURSTABLE, BEST_EFFORT, BURSTABLE]


async def test_the_newest_view_of_many_wins(cgroups, hierarchy):
    qos = made(cgroups)
    await qos.start()
    pods = [burstable("100m", uid=str(number)) for number in range(10)]
    await asyncio.gather(*(qos.update(pods[: number + 1]) for number in range(10)))
    assert hierarchy.cgroups[BURSTABLE].cpu_shares == 1024


async def test_what_was_removed_is_made_again(cgroups, hierarchy):
    qos = made(cgroups)
    await qos.start()
    await qos.update([burstable()])
    del hierarchy.cgroups[BURSTABLE]
    await qos.update([burstable()])
    assert hierarchy.cgroups[BURSTABLE].cpu_shares == 512


class TornHierarchy(MemoryHierarchy):
    """Some of whose cgroups have lost a part, so that they cannot be written until they are made again."""

    def __init__(self):
        super().__init__()
        self.torn = set()

    def check(self, path):
        return "has some missing paths" if path in self.torn else super().check(path)

    def create(self, path, resources):
        self.torn.discard(path)
        super().create(path, resources)

    def write(self, path, resources):
        if path in self.torn:
            raise CgroupError(f"cgroup {path} is not whole")
        super().write(path, resources)


async def test_what_has_lost_a_part_is_made_whole_before_it_is_written():
    hierarchy, threads = TornHierarchy(), Threads(limit=1)
    qos = made(
        CgroupManager(
            hierarchy=hierarchy,
            units=NoUnits(),
            threads=threads,
            clock=ManualClock(),
            durations=register_cgroups(MetricRegistry()),
        )
    )
    await qos.start()
    hierarchy.torn.add(BURSTABLE)
    await qos.update([burstable()])
    assert hierarchy.cgroups[BURSTABLE].cpu_shares == 512
    threads.close()


async def test_a_failed_write_is_reported_and_done_again(cgroups, hierarchy):
    qos = made(cgroups)
    await qos.start()
    hierarchy.refuses[BURSTABLE] = "no"
    with pytest.raises(CgroupError, match="no"):
        await qos.update([burstable()])
    hierarchy.refuses.clear()
    await qos.update([burstable()])
    assert hierarchy.cgroups[BURSTABLE].cpu_shares == 512


async def test_a_start_that_fails_says_which(cgroups, hierarchy):
    qos = made(cgroups)
    await qos.start()
    hierarchy.refuses[BEST_EFFORT] = "no"
    with pytest.raises(CgroupError) as caught:
        await qos.start()
    assert str(caught.value) == "failed to update top level [kubepods besteffort] QOS cgroup : no"


async def test_requested_memory_is_protected(cgroups, hierarchy):
    qos = made(cgroups, memory_qos=True)
    await qos.start()
    await qos.update([burstable()])
    assert hierarchy.cgroups[ROOT].memory_min == hierarchy.cgroups[BURSTABLE].memory_min == 100 * MIB


def memory_usage(usage):
    zero = dict.fromkeys(("working_set", "rss", "cache", "mapped_file", "swap", "page_faults", "major_page_faults"), 0)
    return CgroupUsage(memory=CgroupMemoryUsage(usage=usage, limit=None, **zero))


async def test_memory_is_kept_from_lower_classes(cgroups, hierarchy):
    qos = made(cgroups, reserved_percent=50, allocatable_memory=1000 * MIB)
    await qos.start()
    await qos.update([burstable()])
    assert hierarchy.cgroups[BURSTABLE].memory_limit == 1000 * MIB
    assert hierarchy.cgroups[BEST_EFFORT].memory_limit == 950 * MIB


async def test_a_class_that_uses_more_is_held_at_what_it_uses(cgroups, hierarchy):
    qos = made(cgroups, reserved_percent=50, allocatable_memory=1000 * MIB)
    await qos.start()
    hierarchy.usages[BEST_EFFORT] = memory_usage(980 * MIB)
    hierarchy.usages[BURSTABLE] = memory_usage(10 * MIB)
    write = hierarchy.write

    def refuse_below_usage(path, resources):
        if path == BEST_EFFORT and (resources.memory_limit or 0) < 980 * MIB:
            raise CgroupError("busy")
        write(path, resources)

    hierarchy.write = refuse_below_usage
    await qos.update([burstable()])
    assert hierarchy.cgroups[BURSTABLE].memory_limit == 1000 * MIB
    assert hierarchy.cgroups[BEST_EFFORT].memory_limit == 980 * MIB


async def test_a_node_without_classes():
    none = NoQosCgroups()
    await none.start()
    await none.update([burstable()])


async def test_a_pod_that_was_given_something_else_is_summed_again(cgroups, hierarchy):
    qos = made(cgroups)
    await qos.start()
    pod, _ = burstable("500m")
    _, more = burstable("1500m")
    await qos.update([(pod, more)])
    assert hierarchy.cgroups[BURSTABLE].cpu_shares == 1536
    await qos.update([given(pod)])
    assert hierarchy.cgroups[BURSTABLE].cpu_shares == 512

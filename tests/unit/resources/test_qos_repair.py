"""QoS cgroups that somebody else has changed: written again once a minute, and recorded."""

import asyncio
import contextlib

import pytest
from msgspec.structs import replace

from klet.host.cgroups.names import CgroupName
from klet.host.cgroups.resources import CgroupResources
from klet.host.errors import CgroupError
from klet.journal.memory import MemoryJournal
from klet.model.allocation import desired_allocation
from klet.resources.cgroup_values import QosRules
from klet.resources.qos_cgroups import NoQosCgroups, QosCgroups
from klet.resources.qos_repair import EVERY, QosRepair
from klet.testing.builders import make_container, make_pod, with_resources
from klet.testing.clock import ManualClock

ROOT, BURSTABLE, BEST_EFFORT = "/kubepods", "/kubepods/burstable", "/kubepods/besteffort"
PAGES = {2 << 20: 1 << 62}
LIMITS = CgroupResources(cpu_shares=2048, memory_limit=8 << 30, cpuset="0-1")
POD = make_pod(with_resources(make_container("c"), requests={"cpu": "500m"}), uid="u")


class Bench:
    """The cgroups of one node, with one burstable pod."""

    def __init__(self, cgroups, hierarchy):
        self.hierarchy, self.clock = hierarchy, ManualClock()
        self.journal = MemoryJournal(clock=self.clock)
        self.are_known = True
        self.limits = LIMITS
        self.qos = QosCgroups(
            cgroups=cgroups,
            kubepods=CgroupName(("kubepods",)),
            rules=QosRules(hugepage_sizes=tuple(PAGES)),
            root_limits=lambda: self.limits,
        )
        self.repair = QosRepair(
            cgroups=self.qos,
            pods_are_known=lambda: self.are_known,
            balance=self.balance,
            recorder=self.journal,
            clock=self.clock,
        )

    async def balance(self):
        with contextlib.suppress(CgroupError):  # what balances logs them
            await self.qos.update([(POD, desired_allocation(POD))])

    async def wait_for_one_pass(self):
        await self.clock.until_asleep()
        self.clock.advance(EVERY)
        await self.clock.until_asleep()

    def change(self, path, **values):
        self.hierarchy.cgroups[path] = replace(self.hierarchy.cgroups[path], **values)

    def recorded(self):
        assert {cause.finding.decision for cause in self.journal.all()} <= {"QosCgroupRepaired"}
        return [cause.finding.message for cause in self.journal.all()]


@pytest.fixture
async def bench(cgroups, hierarchy):
    made = Bench(cgroups, hierarchy)
    await made.qos.start()
    hierarchy.cgroups[ROOT] = replace(LIMITS, hugepages=PAGES)
    await made.balance()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(made.repair.run())
        yield made
        task.cancel()


async def test_nothing_is_written_while_nobody_changes_anything(bench, hierarchy):
    before = dict(hierarchy.cgroups)
    hierarchy.refuses = dict.fromkeys(hierarchy.cgroups, "a write")
    for _ in range(3):
        await bench.wait_for_one_pass()
    assert hierarchy.cgroups == before
    assert bench.recorded() == []


async def test_what_somebody_else_changed_is_written_again_and_recorded(bench, hierarchy):
    bench.change(BURSTABLE, cpu_shares=2)
    await bench.wait_for_one_pass()
    assert hierarchy.cgroups[BURSTABLE] == CgroupResources(cpu_shares=512, hugepages=PAGES)
    assert bench.recorded() == [
        "somebody else had changed the cgroup /kubepods/burstable: CPU shares 2 instead of 512; it was written again"
    ]
    await bench.wait_for_one_pass()
    assert len(bench.recorded()) == 1


async def test_the_limits_of_all_pods_are_kept_too(bench, hierarchy):
    bench.change(ROOT, memory_limit=1 << 20, cpuset="0", hugepages={2 << 20: 0})
    await bench.wait_for_one_pass()
    assert hierarchy.cgroups[ROOT] == replace(LIMITS, hugepages=PAGES)
    [message] = bench.recorded()
    assert message == (
        "somebody else had changed the cgroup /kubepods: memory limit 1048576 instead of 8589934592, "
        "CPUs 0 instead of 0-1, limit of 2MB pages 0 instead of 4611686018427387904; it was written again"
    )


async def test_limits_that_were_not_written_yet_are_not_missed(bench, hierarchy):
    bench.limits = None
    bench.change(ROOT, memory_limit=1 << 20)
    await bench.wait_for_one_pass()
    assert hierarchy.cgroups[ROOT].memory_limit == 1 << 20
    assert bench.recorded() == []


async def test_one_that_was_removed_is_made_again(bench, hierarchy):
    del hierarchy.cgroups[BEST_EFFORT]
    await bench.wait_for_one_pass()
    assert hierarchy.cgroups[BEST_EFFORT] == CgroupResources(cpu_shares=2, hugepages=PAGES)
    assert bench.recorded() == ["somebody else had removed the cgroup /kubepods/besteffort; it was made again"]


async def test_a_repair_that_fails_is_tried_again(bench, hierarchy, caplog):
    bench.change(BURSTABLE, cpu_shares=2)
    hierarchy.refuses[BURSTABLE] = "read-only"
    await bench.wait_for_one_pass()
    assert [record.error for record in caplog.records] == ["read-only"]
    assert bench.recorded() == []
    hierarchy.refuses.clear()
    await bench.wait_for_one_pass()
    assert hierarchy.cgroups[BURSTABLE].cpu_shares == 512


async def test_before_the_pods_are_known_nothing_is_touched(bench, hierarchy):
    bench.are_known = False
    bench.change(BURSTABLE, cpu_shares=2)
    await bench.wait_for_one_pass()
    assert hierarchy.cgroups[BURSTABLE].cpu_shares == 2
    bench.are_known = True
    await bench.wait_for_one_pass()
    assert hierarchy.cgroups[BURSTABLE].cpu_shares == 512


async def test_a_change_of_the_pods_meanwhile_is_no_change_by_somebody_else(bench):
    other = make_pod(with_resources(make_container("c"), requests={"cpu": "1"}), uid="v")
    pods = [(pod, desired_allocation(pod)) for pod in (POD, other)]
    repaired, _ = await asyncio.gather(bench.qos.repair(), bench.qos.update(pods))
    assert repaired == ()
    assert await bench.qos.repair() == ()


async def test_a_node_without_classes_has_nothing_to_repair():
    assert await NoQosCgroups().repair() == ()

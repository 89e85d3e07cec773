"""Node allocatable, enforced on cgroups in memory: Events, failures, retries; and a kill at any write."""

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.aio.threads import Threads
from klet.api.quantity import Quantity
from klet.host.cgroups.layout import CgroupMode
from klet.host.cgroups.manager import CgroupManager, NoUnits
from klet.host.cgroups.metrics import register_cgroups
from klet.host.cgroups.names import CgroupName
from klet.host.cgroups.resources import CgroupResources
from klet.host.cgroups.systemd import SystemdUnits
from klet.journal.memory import MemoryJournal
from klet.metrics import MetricRegistry
from klet.model.reasons import EventType
from klet.resources.cgroup_values import QosRules
from klet.resources.node_allocatable import RETRY, NodeAllocatable, NotEnforced
from klet.resources.node_values import Enforcement, NodeAllocatableRules
from klet.resources.qos_cgroups import QosCgroups
from klet.testing.cgroups import MemoryHierarchy
from klet.testing.clock import ManualClock

GIB = 1 << 30
KUBEPODS = CgroupName(("kubepods",))
RULES = NodeAllocatableRules(
    capacity={"cpu": Quantity.parse("4"), "memory": Quantity.parse("8Gi"), "pid": Quantity.parse("1000")},
    system_reserved={"cpu": Quantity.parse("1"), "memory": Quantity.parse("1Gi")},
    kube_reserved={"cpu": Quantity.parse("500m"), "memory": Quantity.parse("1Gi")},
    enforced=frozenset({Enforcement.PODS}),
    system_cgroup="/system",
    kube_cgroup="/kube",
)
LIMITS = CgroupResources(cpu_shares=2560, memory_limit=6 * GIB, pids_limit=1000)


def enforcing(*levels, **changes):
    return replace(RULES, enforced=frozenset(Enforcement(level) for level in levels), **changes)


class Bench:
    """What one node has."""

    def __init__(self, cgroups, hierarchy, clock):
        self.cgroups, self.hierarchy, self.clock = cgroups, hierarchy, clock
        self.journal = MemoryJournal(clock=clock)

    def build(self, rules=RULES, root=KUBEPODS):
        return NodeAllocatable(cgroups=self.cgroups, root=root, rules=rules, recorder=self.journal, clock=self.clock)

    def recorded(self):
        return [(cause.finding.decision.event_type, cause.finding.message) for cause in self.journal.all()]


@pytest.fixture
def bench(cgroups, hierarchy):
    return Bench(cgroups, hierarchy, ManualClock())


async def test_a_new_cgroup_is_limited_at_once(bench):
    await bench.build().make_root()
    assert bench.hierarchy.cgroups["/kubepods"] == LIMITS


async def test_one_that_is_there_is_limited_when_the_agent_runs(bench):
    bench.hierarchy.cgroups["/kubepods"] = CgroupResources(memory_limit=GIB)
    allocatable = bench.build()
    await allocatable.make_root()
    assert bench.hierarchy.cgroups["/kubepods"] == CgroupResources(memory_limit=GIB)
    assert allocatable.enforced is None
    await allocatable.run()
    assert bench.hierarchy.cgroups["/kubepods"] == allocatable.enforced == LIMITS
    assert bench.recorded() == [(EventType.NORMAL, "Updated Node Allocatable limit across pods")]


async def test_a_limit_below_what_pods_use_is_tried_again_each_minute(bench):
    allocatable = bench.build()
    await allocatable.make_root()
    bench.hierarchy.refuses["/kubepods"] = "unable to set memory limit to 6442450944 (current usage: 7, peak usage: 8)"
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(allocatable.run())
        for _ in range(2):
            await bench.clock.until_asleep()
            assert allocatable.enforced is None
            assert bench.clock.next_wake() == bench.clock.now() + timedelta(minutes=1) == bench.clock.now() + RETRY
            bench.clock.advance(RETRY)
        await bench.clock.until_asleep()
        bench.hierarchy.refuses.clear()
        bench.clock.advance(RETRY)
    failure = (
        'Failed to update Node Allocatable Limits ["kubepods"]: '
        "unable to set memory limit to 6442450944 (current usage: 7, peak usage: 8)"
    )
    assert bench.recorded() == [
        *[(EventType.WARNING, failure)] * 3,
        (EventType.NORMAL, "Updated Node Allocatable limit across pods"),
    ]
    assert allocatable.enforced == LIMITS


async def test_reserved_cgroups_are_limited(bench):
    bench.hierarchy.cgroups |= {"/system": CgroupResources(), "/kube": CgroupResources(memory_limit=7)}
    await bench.build(enforcing("kube-reserved-compressible", "system-reserved")).limit_reserved()
    assert bench.hierarchy.cgroups["/system"] == CgroupResources(cpu_shares=1024, memory_limit=GIB)
    assert bench.hierarchy.cgroups["/kube"] == CgroupResources(cpu_shares=512, memory_limit=7)
    assert bench.recorded() == [
        (EventType.NORMAL, "Updated limits on system reserved cgroup /system"),
        (EventType.NORMAL, "Updated limits on kube reserved cgroup /kube"),
    ]


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        pytest.param(
            enforcing("system-reserved"),
            'Failed to enforce System Reserved Cgroup Limits on "/system": '
            'cgroup ["system"] has some missing paths: /system',
            id="of the system",
        ),
        pytest.param(
            enforcing("kube-reserved"),
            'Failed to enforce Kube Reserved Cgroup Limits on "/kube": cgroup ["kube"] has some missing paths: /kube',
            id="of Kubernetes",
        ),
        pytest.param(
            enforcing("kube-reserved-compressible"),
            'Failed to enforce Kube Reserved Compressible Cgroup Limits on "/kube": '
            'cgroup ["kube"] has some missing paths: /kube',
            id="its CPU alone",
        ),
        pytest.param(
            enforcing("system-reserved-compressible", system_reserved={}),
            'Failed to enforce System Reserved Compressible Cgroup Limits on "/system": '
            '["system"] cgroup is not configured properly',
            id="nothing is reserved",
        ),
        pytest.param(
            enforcing("system-reserved", system_cgroup="/system_a"),
            'Failed to enforce System Reserved Cgroup Limits on "/system_a": '
            'invalid character in component ["system_a"] of CgroupName',
            id="a name that is none",
        ),
    ],
)
async def test_a_reserved_cgroup_that_cannot_be_limited_ends_the_agent(bench, rules, message):
    with pytest.raises(NotEnforced) as caught:
        await bench.build(rules).limit_reserved()
    assert str(caught.value) == message
    assert bench.recorded() == [(EventType.WARNING, message)]
    assert set(bench.hierarchy.cgroups) == {"/"}, "one that is missing is never made"


async def test_a_write_that_fails_ends_it_too(bench):
    bench.hierarchy.cgroups["/system"] = CgroupResources()
    bench.hierarchy.refuses["/system"] = "device busy"
    with pytest.raises(NotEnforced, match='Limits on "/system": device busy'):
        await bench.build(enforcing("system-reserved")).limit_reserved()


class NotedBus:
    """A systemd that keeps the properties of units, and must not be asked to start one."""

    def __init__(self):
        self.properties = {}

    async def version(self):
        return 252

    async def set_unit_properties(self, unit, properties):
        self.properties[unit] = {each.name: each.value for each in properties}


@pytest.mark.parametrize("path", ["/system.slice", "system.slice", "/above.slice/system.slice"])
async def test_systemd_sets_the_limits_of_the_slice_with_that_name(path):
    hierarchy, bus, threads, clock = MemoryHierarchy(), NotedBus(), Threads(limit=1), ManualClock()
    hierarchy.cgroups["/system.slice"] = CgroupResources()
    units = SystemdUnits(bus=bus, mode=CgroupMode.UNIFIED)
    cgroups = CgroupManager(
        hierarchy=hierarchy, units=units, threads=threads, clock=clock, durations=register_cgroups(MetricRegistry())
    )
    try:
        await (
            Bench(cgroups, hierarchy, clock)
            .build(enforcing("system-reserved", system_cgroup=path, cpus="0-3"))
            .limit_reserved()
        )
    finally:
        threads.close()
    assert hierarchy.cgroups["/system.slice"] == CgroupResources(cpu_shares=1024, memory_limit=GIB, cpuset="0-3")
    assert bus.properties == {"system.slice": {"MemoryMax": GIB, "CPUWeight": 39, "AllowedCPUs": b"\x0f"}}


class Killed(BaseException):
    """The agent is gone."""


class KilledHierarchy(MemoryHierarchy):
    """Ends the agent before its change of a number."""

    def __init__(self):
        super().__init__()
        self.cgroups |= {"/system": CgroupResources(), "/kube": CgroupResources()}
        self.left = -1

    def create(self, path, resources):
        self._count()
        super().create(path, resources)

    def write(self, path, resources):
        self._count()
        super().write(path, resources)

    def _count(self):
        self.left -= 1
        if self.left == 0:
            raise Killed


async def start(hierarchy):
    """What an agent does to the cgroups of its node when it starts."""
    threads, clock = Threads(limit=1), ManualClock()
    cgroups = CgroupManager(
        hierarchy=hierarchy, units=NoUnits(), threads=threads, clock=clock, durations=register_cgroups(MetricRegistry())
    )
    try:
        rules = enforcing("pods", "system-reserved", "kube-reserved", cpus="0-3")
        allocatable = Bench(cgroups, hierarchy, clock).build(rules)
        qos = QosCgroups(
            cgroups=cgroups,
            kubepods=KUBEPODS,
            rules=QosRules(hugepage_sizes=(2 << 20,)),
            root_limits=lambda: allocatable.enforced,
        )
        await allocatable.make_root()
        await qos.start()
        await allocatable.limit_reserved()
        await allocatable.run()
        await qos.update([])
        await qos.repair()
    finally:
        threads.close()


async def test_killed_at_any_write_the_next_start_ends_in_the_same_values():
    undisturbed = KilledHierarchy()
    await start(undisturbed)
    changes = -1 - undisturbed.left
    assert changes > 10
    for number in range(1, changes + 1):
        hierarchy = KilledHierarchy()
        hierarchy.left = number
        with pytest.raises(Killed):
            await start(hierarchy)
        await start(hierarchy)
        assert hierarchy.cgroups == undisturbed.cgroups, number

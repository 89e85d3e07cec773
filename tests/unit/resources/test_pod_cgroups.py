"""Making, finding and removing the cgroups of pods."""

import pytest

from klet.aio.threads import Threads
from klet.host.cgroups.layout import CgroupMode
from klet.host.cgroups.manager import CgroupManager
from klet.host.cgroups.metrics import register_cgroups
from klet.host.cgroups.names import CgroupName
from klet.host.cgroups.resources import CgroupResources
from klet.host.cgroups.systemd import SystemdUnits
from klet.host.errors import CgroupError
from klet.metrics import MetricRegistry
from klet.model.allocation import desired_allocation
from klet.model.pods import PodUID
from klet.resources.cgroup_values import PodCgroupRules
from klet.resources.pod_cgroups import NoPodCgroups, PodCgroups
from klet.testing.builders import make_container, make_pod, with_resources
from klet.testing.clock import ManualClock

KUBEPODS = CgroupName(("kubepods",))
LIMITS = {"cpu": "500m", "memory": "64Mi"}
PLAIN = make_pod(uid="a-1")
FULL = make_pod(with_resources(make_container("c"), requests=LIMITS, limits=LIMITS), uid="b-2")
SOME = make_pod(with_resources(make_container("c"), requests={"cpu": "1"}), uid="c-3")
PATHS = {"a-1": "/kubepods/besteffort/poda-1", "b-2": "/kubepods/podb-2", "c-3": "/kubepods/burstable/podc-3"}
EVERY = (PLAIN, FULL, SOME)


@pytest.fixture
def pods(cgroups):
    return PodCgroups(cgroups=cgroups, kubepods=KUBEPODS, rules=PodCgroupRules(pids_limit=100))


@pytest.mark.parametrize("pod", EVERY, ids=["best effort", "guaranteed", "burstable"])
async def test_a_pods_cgroup_from_beginning_to_end(pods, hierarchy, pod):
    path = PATHS[pod.metadata.uid]
    assert pods.parent_of(pod) == path
    assert not pods.exists(pod)
    await pods.ensure(pod, desired_allocation(pod))
    assert pods.exists(pod)
    assert hierarchy.cgroups[path].pids_limit == 100
    await pods.destroy(pod)
    assert not pods.exists(pod)
    await pods.destroy(pod)


async def test_limits_are_written_when_it_is_made(pods, hierarchy):
    await pods.ensure(FULL, desired_allocation(FULL))
    assert hierarchy.cgroups[PATHS["b-2"]] == CgroupResources(
        cpu_shares=512, cpu_quota=50000, cpu_period=100000, memory_limit=64 << 20, pids_limit=100
    )


async def test_one_that_is_there_keeps_its_values(pods, hierarchy):
    await pods.ensure(FULL, desired_allocation(FULL))
    hierarchy.cgroups[PATHS["b-2"]] = CgroupResources(cpu_shares=7)
    await pods.ensure(FULL, desired_allocation(FULL))
    assert hierarchy.cgroups[PATHS["b-2"]] == CgroupResources(cpu_shares=7)


async def test_one_that_was_made_without_its_values_gets_them(pods, hierarchy):
    allocation = desired_allocation(FULL)
    await pods.ensure(FULL, allocation)
    [path] = [path for path in hierarchy.cgroups if FULL.metadata.uid in path]
    whole, hierarchy.cgroups[path] = hierarchy.cgroups[path], CgroupResources()
    await pods.write(FULL, allocation)
    assert hierarchy.cgroups[path] == whole != CgroupResources()


async def test_values_that_are_refused_do_not_stop_the_pod(pods, hierarchy):
    hierarchy.refuses[PATHS["a-1"]] = "no"
    await pods.ensure(PLAIN, desired_allocation(PLAIN))
    assert pods.exists(PLAIN)


async def test_one_that_cannot_be_made(pods, hierarchy):
    def refuse(path, resources):
        raise CgroupError("no space")

    hierarchy.create = refuse
    with pytest.raises(CgroupError) as caught:
        await pods.ensure(PLAIN, desired_allocation(PLAIN))
    assert str(caught.value) == "failed to create container for [kubepods besteffort poda-1] : no space"


async def test_processes_are_killed_first(pods, hierarchy):
    await pods.ensure(PLAIN, desired_allocation(PLAIN))
    hierarchy.processes[f"{PATHS['a-1']}/container"] = {4_000_001}
    await pods.destroy(PLAIN)
    assert not hierarchy.processes
    assert not pods.exists(PLAIN)


async def test_orphans_are_pods_that_nobody_knows(pods):
    assert await pods.orphans(frozenset()) == ()
    for pod in EVERY:
        await pods.ensure(pod, desired_allocation(pod))
    assert set(await pods.orphans(frozenset({PodUID("b-2")}))) == {"a-1", "c-3"}


async def test_what_is_not_a_pods_is_left_alone(pods, hierarchy):
    hierarchy.create("/kubepods/burstable/mypodx", CgroupResources())
    hierarchy.create("/kubepods/system", CgroupResources())
    assert await pods.orphans(frozenset()) == ()


async def test_removing_by_uid(pods, hierarchy):
    for pod in EVERY:
        await pods.ensure(pod, desired_allocation(pod))
    await pods.destroy_uid(PodUID("c-3"))
    await pods.destroy_uid(PodUID("unknown"))
    assert {uid for uid, path in PATHS.items() if path in hierarchy.cgroups} == {"a-1", "b-2"}


async def test_a_pod_that_has_to_stay_gets_the_least_cpu(pods, hierarchy):
    await pods.ensure(SOME, desired_allocation(SOME))
    await pods.reduce_cpu(PodUID("c-3"))
    assert hierarchy.cgroups[PATHS["c-3"]].cpu_shares == 2
    assert hierarchy.cgroups[PATHS["c-3"]].pids_limit == 100


async def test_a_uid_that_no_cgroup_can_have(pods):
    pod = make_pod(uid="a_b")
    with pytest.raises(CgroupError):
        await pods.ensure(pod, desired_allocation(pod))
    await pods.destroy(pod)


class MemoryBus:
    """A systemd that does what it is asked."""

    def __init__(self):
        self.units = {}

    async def version(self):
        return 252

    async def start_transient_unit(self, unit, _properties, _deadline):
        self.units[unit] = {}
        return "done"

    async def set_unit_properties(self, unit, properties):
        self.units[unit] |= {each.name: each.value for each in properties}

    async def stop_unit(self, unit, _deadline):
        del self.units[unit]
        return "done"

    async def reset_failed_unit(self, unit):
        pass


async def test_slices(hierarchy):
    bus, threads = MemoryBus(), Threads(limit=1)
    units = SystemdUnits(bus=bus, mode=CgroupMode.UNIFIED)
    cgroups = CgroupManager(
        hierarchy=hierarchy,
        units=units,
        threads=threads,
        clock=ManualClock(),
        durations=register_cgroups(MetricRegistry()),
    )
    pods = PodCgroups(cgroups=cgroups, kubepods=KUBEPODS, rules=PodCgroupRules())
    await pods.ensure(FULL, desired_allocation(FULL))
    unit = "kubepods-podb_2.slice"
    assert pods.parent_of(FULL) == f"/kubepods.slice/{unit}"
    assert bus.units[unit]["CPUQuotaPerSecUSec"] == 500_000
    assert bus.units[unit]["MemoryMax"] == 64 << 20
    assert await pods.orphans(frozenset()) == ("b-2",)
    await pods.destroy_uid(PodUID("b-2"))
    assert unit not in bus.units
    assert not pods.exists(FULL)
    threads.close()


async def test_a_node_that_leaves_it_to_the_runtime():
    none = NoPodCgroups()
    assert none.parent_of(PLAIN) == ""
    assert none.exists(PLAIN)
    await none.ensure(PLAIN, desired_allocation(PLAIN))
    await none.destroy(PLAIN)
    await none.destroy_uid(PodUID("a-1"))
    await none.reduce_cpu(PodUID("a-1"))
    assert await none.orphans(frozenset()) == ()


async def test_whether_it_was_made_now(pods):
    allocation = desired_allocation(FULL)
    assert [await pods.ensure(FULL, allocation), await pods.ensure(FULL, allocation)] == [True, False]


async def test_the_allocation_is_written_and_not_the_spec(pods, hierarchy):
    await pods.ensure(SOME, desired_allocation(FULL))
    assert hierarchy.cgroups[PATHS["c-3"]].memory_limit == 64 << 20

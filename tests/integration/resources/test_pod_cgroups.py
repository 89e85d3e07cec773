"""Pods and QoS classes in real cgroups, version 1 or 2 as the machine has it."""

from pathlib import Path

import pytest

from klet.host.cgroups.discover import find_hugepage_sizes
from klet.host.cgroups.layout import CgroupMode
from klet.host.cgroups.names import CgroupName
from klet.host.cgroups.resources import CgroupResources
from klet.model.allocation import desired_allocation
from klet.model.pods import PodUID
from klet.resources.cgroup_values import PodCgroupRules, QosRules
from klet.resources.names import pod_cgroup
from klet.resources.pod_cgroups import PodCgroups
from klet.resources.qos_cgroups import QosCgroups
from klet.testing.builders import make_container, make_pod, with_resources

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("root"), pytest.mark.real_machine]

MIB = 1 << 20
PLAIN = CgroupResources()
SMALL = {"cpu": "100m", "memory": "32Mi"}
LARGE = {"cpu": "500m", "memory": "64Mi"}
BEST_EFFORT = make_pod(uid="be-1")
BURSTABLE = make_pod(with_resources(make_container("c"), requests=SMALL), uid="bu-1")
LIMITED = make_pod(with_resources(make_container("c"), requests=SMALL, limits=LARGE), uid="bu-2")
GUARANTEED = make_pod(with_resources(make_container("c"), requests=LARGE, limits=LARGE), uid="gu-1")
EVERY = (BEST_EFFORT, BURSTABLE, LIMITED, GUARANTEED)


def given(*pods):
    return [(pod, desired_allocation(pod)) for pod in pods]


def nothing():
    """All pods together are not limited."""


@pytest.fixture
async def qos(cgroups, kubepods):
    made = QosCgroups(
        cgroups=cgroups, kubepods=kubepods, rules=QosRules(hugepage_sizes=find_hugepage_sizes()), root_limits=nothing
    )
    await made.start()
    return made


@pytest.fixture
def pods(cgroups, kubepods, qos):
    return PodCgroups(cgroups=cgroups, kubepods=kubepods, rules=PodCgroupRules(pids_limit=50))


def kept_shares(cgroups, shares: int) -> int:
    """What is read back: weights of version 2 are coarser."""
    if cgroups.mode is not CgroupMode.UNIFIED:
        return shares
    weight = 1 + (shares - 2) * 9999 // 262142
    return (weight - 1) * 262142 // 9999 + 2


def unlimited(value: int | None) -> bool:
    return value in {-1, 9223372036854771712}


def hugepage_limits(hierarchy, cgroups, name: CgroupName) -> set[str]:
    """The limit of every page size; nothing without the controller."""
    path = cgroups.path(name).lstrip("/")
    if hierarchy.mode is CgroupMode.UNIFIED:
        return {file.read_text().strip() for file in (Path("/sys/fs/cgroup") / path).glob("hugetlb.*B.max")}
    directory = hierarchy.directory("hugetlb", path)
    return {file.read_text().strip() for file in directory.glob("hugetlb.*B.limit_in_bytes")} if directory else set()


async def test_classes_are_there_after_the_start(cgroups, kubepods, qos):
    for name in (kubepods, kubepods.child("burstable"), kubepods.child("besteffort")):
        cgroups.validate(name)
    assert (await cgroups.read(kubepods.child("besteffort"))).cpu_shares == 2
    await qos.start()


async def test_shares_follow_the_pods(cgroups, kubepods, qos):
    burstable = kubepods.child("burstable")
    await qos.update(given(*EVERY))
    assert (await cgroups.read(burstable)).cpu_shares == kept_shares(cgroups, 204)
    await qos.update(given(BURSTABLE))
    assert (await cgroups.read(burstable)).cpu_shares == kept_shares(cgroups, 102)
    await qos.update([])
    assert (await cgroups.read(burstable)).cpu_shares == 2


async def test_huge_pages_are_limited_in_pods_only(hierarchy, cgroups, kubepods, pods):
    await pods.ensure(BURSTABLE, desired_allocation(BURSTABLE))
    of_class = hugepage_limits(hierarchy, cgroups, kubepods.child("burstable"))
    of_pod = hugepage_limits(hierarchy, cgroups, pod_cgroup(kubepods, BURSTABLE))
    if not of_class:
        pytest.skip("no hugetlb controller, or no huge pages: the kernel of this machine has none")
    assert "0" not in of_class
    assert of_pod == {"0"}


@pytest.mark.parametrize(
    ("pod", "shares", "quota", "memory"),
    [
        pytest.param(BEST_EFFORT, 2, -1, None, id="best effort"),
        pytest.param(BURSTABLE, 102, -1, None, id="burstable without limits"),
        pytest.param(LIMITED, 102, 50000, 64 * MIB, id="burstable with limits"),
        pytest.param(GUARANTEED, 512, 50000, 64 * MIB, id="guaranteed"),
    ],
)
async def test_limits_of_a_pod(cgroups, kubepods, pods, pod, shares, quota, memory):
    await pods.ensure(pod, desired_allocation(pod))
    assert pods.exists(pod)
    values = await cgroups.read(pod_cgroup(kubepods, pod))
    assert values.cpu_shares == kept_shares(cgroups, shares)
    assert (values.cpu_quota, values.cpu_period) == (quota, 100000)
    assert unlimited(values.memory_limit) if memory is None else values.memory_limit == memory
    assert values.pids_limit == 50
    await pods.destroy(pod)
    assert not pods.exists(pod)


async def test_a_limit_that_does_not_hold_a_pod_back_yet_is_written_all_the_same(cgroups, kubepods, pods):
    tiny = with_resources(make_container("c"), requests={"cpu": "1m"}, limits={"cpu": "5m"})
    pod = make_pod(tiny, uid="tiny")
    await pods.ensure(pod, desired_allocation(pod))
    values = await cgroups.read(pod_cgroup(kubepods, pod))
    assert (values.cpu_shares, values.cpu_quota) == (2, 1000)


async def test_what_runs_in_a_pod_is_killed_with_it(hierarchy, cgroups, kubepods, pods, sleeper):
    await pods.ensure(BURSTABLE, desired_allocation(BURSTABLE))
    inner = pod_cgroup(kubepods, BURSTABLE).child("container")
    await cgroups.create(inner, PLAIN)
    mounts = [Path("/sys/fs/cgroup")] if hierarchy.mode is CgroupMode.UNIFIED else hierarchy._mounts
    for mount in mounts:
        (mount / cgroups.path(inner).lstrip("/") / "cgroup.procs").write_text(str(sleeper.pid))
    assert await cgroups.pids(pod_cgroup(kubepods, BURSTABLE)) == {sleeper.pid}
    await pods.destroy(BURSTABLE)
    assert sleeper.wait(10) == -9
    assert not pods.exists(BURSTABLE)


async def test_orphans_are_found_held_back_and_removed(cgroups, kubepods, pods):
    for pod in EVERY:
        await pods.ensure(pod, desired_allocation(pod))
    await cgroups.create(kubepods.child("burstable", "other"), PLAIN)
    assert set(await pods.orphans(frozenset({PodUID("gu-1")}))) == {"be-1", "bu-1", "bu-2"}
    await pods.reduce_cpu(PodUID("bu-2"))
    values = await cgroups.read(pod_cgroup(kubepods, LIMITED))
    assert (values.cpu_shares, values.memory_limit) == (2, 64 * MIB)
    for uid in ("be-1", "bu-1", "bu-2"):
        await pods.destroy_uid(PodUID(uid))
    assert await pods.orphans(frozenset()) == ("gu-1",)
    assert cgroups.exists(kubepods.child("burstable", "other"))


async def test_a_pod_that_is_half_there_is_not_there(hierarchy, cgroups, kubepods, pods):
    if hierarchy.mode is CgroupMode.UNIFIED:
        pytest.skip("only with cgroup version 1: version 2 has one tree, where a cgroup is there or not")
    await pods.ensure(BEST_EFFORT, desired_allocation(BEST_EFFORT))
    hierarchy.directory("memory", cgroups.path(pod_cgroup(kubepods, BEST_EFFORT))).rmdir()
    assert not pods.exists(BEST_EFFORT)
    await pods.ensure(BEST_EFFORT, desired_allocation(BEST_EFFORT))
    assert pods.exists(BEST_EFFORT)


async def test_requested_memory_is_protected(hierarchy, cgroups, kubepods):
    if hierarchy.mode is not CgroupMode.UNIFIED:
        pytest.skip("needs cgroup version 2: test_cgroups_v2.py runs it, after apt-get install qemu-system-x86")
    qos = QosCgroups(cgroups=cgroups, kubepods=kubepods, rules=QosRules(memory_qos=True), root_limits=nothing)
    pods = PodCgroups(cgroups=cgroups, kubepods=kubepods, rules=PodCgroupRules(memory_qos=True))
    await qos.start()
    await qos.update(given(*EVERY))
    await pods.ensure(BURSTABLE, desired_allocation(BURSTABLE))
    names = (kubepods, kubepods.child("burstable"), pod_cgroup(kubepods, BURSTABLE))
    files = [Path("/sys/fs/cgroup") / cgroups.path(name).lstrip("/") / "memory.min" for name in names]
    assert [int(file.read_text()) for file in files] == [128 * MIB, 64 * MIB, 32 * MIB]


async def test_memory_is_kept_from_lower_classes(cgroups, kubepods):
    rules = QosRules(reserved_percent=50, allocatable_memory=1024 * MIB)
    qos = QosCgroups(cgroups=cgroups, kubepods=kubepods, rules=rules, root_limits=nothing)
    await qos.start()
    await qos.update(given(*EVERY))
    assert (await cgroups.read(kubepods.child("burstable"))).memory_limit == 992 * MIB
    assert (await cgroups.read(kubepods.child("besteffort"))).memory_limit == 960 * MIB

"""Allocations are on disk before anybody relies on them; what nobody holds any more is free again."""

import pytest

from klet.allocation.book import AllocationBook
from klet.api.codec import convert
from klet.api.pod import Pod
from klet.checkpoint.errors import CheckpointError
from klet.checkpoint.upstream import CpuManagerFormat
from klet.host.cpulist import format_cpu_list
from klet.journal.memory import MemoryJournal
from klet.metrics import MetricRegistry
from klet.model.pods import PodUID
from klet.model.reasons import Reason
from klet.resources.cpu.board import CpuBoard
from klet.resources.cpu.manager import CpuManager
from klet.resources.cpu.metrics import CpuManagerMetrics, begin_alignment, register_cpu_pinning, register_cpus
from klet.resources.cpu.policy import CpuPolicyOptions, build_static_policy
from klet.resources.cpu.state import STATIC, CpuState, check_state, read_state
from klet.resources.cpu.topology import build_topology
from klet.resources.metrics import register_alignment
from klet.resources.topology.hints import AllocationFailure, Hint, mask_of
from klet.testing.clock import ManualClock
from klet.testing.machines import TWO_SOCKETS, list_cpus
from klet.testing.state_bytes import StateBytes

T2 = build_topology(list_cpus(TWO_SOCKETS))
ANYWHERE = Hint(None, preferred=False)
ALIGNED = 'kubelet_container_aligned_compute_resources_{}{{boundary="{}",scope="container"}}'
PLAIN, FULL = CpuPolicyOptions(), CpuPolicyOptions(full_cores=True)


class Holders:
    """Every pod may hold what it has, but for those that are gone."""

    def __init__(self):
        self.gone = set()

    def may_hold(self, uid, container):
        return uid not in self.gone and container != "gone"


class Bench:
    """A CPU manager with its board, its file and its metrics."""

    def __init__(self, options=PLAIN, *, lifts_quota=True):
        policy = build_static_policy(T2, options, reserved=1, specific=frozenset({0}))
        self.board = CpuBoard(policy=policy, state=check_state(policy, CpuState()), lifts_quota=lifts_quota)
        self.file = StateBytes(form=CpuManagerFormat())
        self.holders = Holders()
        self.journal = MemoryJournal(clock=ManualClock())
        self.registry = MetricRegistry()
        alignment = register_alignment(self.registry)
        begin_alignment(alignment)
        register_cpus(self.registry, self.board, T2.nodes)
        self.manager = CpuManager(
            policy=policy,
            board=self.board,
            store=self.file,
            allocations=AllocationBook(),
            holders=self.holders,
            metrics=CpuManagerMetrics(pinning=register_cpu_pinning(self.registry), alignment=alignment),
            recorder=self.journal,
        )

    async def give(self, pod, affinity=ANYWHERE):
        failures = []
        for container in (*pod.spec.init_containers, *pod.spec.containers):
            failures.append(await self.manager.allocate(pod, container, affinity))
        return failures

    def cpus(self, uid, container):
        return format_cpu_list(self.board.pins_of(PodUID(uid), container).cpus)

    def on_disk(self):
        return read_state(CpuManagerFormat().decode(self.file.data), policy=STATIC, containers={})

    def findings(self):
        return [(cause.finding.decision, cause.finding.message) for cause in self.journal.all()]

    def metrics(self):
        lines = self.registry.write().decode().splitlines()
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def make_pod(uid="uid-1", qos="Guaranteed", **containers):
    built = [{"name": name, "resources": {"requests": {"cpu": cpu}}} for name, cpu in containers.items()]
    metadata = {"name": f"pod-{uid}", "namespace": "default", "uid": uid}
    return convert(Pod, {"metadata": metadata, "spec": {"containers": built}, "status": {"qosClass": qos}})


async def test_an_allocation_is_on_disk_and_on_the_board():
    bench = Bench()
    assert await bench.give(make_pod(app="2", side="500m")) == [None, None]
    assert (bench.cpus("uid-1", "app"), bench.cpus("uid-1", "side")) == ("2,8", "0-1,3-7,9-11")
    assert bench.on_disk().exclusive == {"uid-1": {"app": frozenset({2, 8})}}
    assert bench.findings() == [
        (
            Reason.EXCLUSIVE_CPUS,
            "CPUs 2,8 for this container alone: its pod is Guaranteed and it requests 2 whole CPUs",
        ),
        (Reason.SHARED_CPUS, "no CPUs for this container alone: it requests no whole number of CPUs"),
    ]


async def test_near_the_affinity():
    bench = Bench()
    await bench.give(make_pod(app="1"), Hint(mask_of((1,)), preferred=True))
    assert bench.cpus("uid-1", "app") == "1"
    assert bench.findings()[0][1].endswith("1 whole CPU, as near as possible to NUMA node 1")


async def test_asked_again_nothing_changes():
    bench = Bench()
    await bench.give(make_pod(app="2"))
    before = bench.board.state, bench.file.data, bench.findings()
    assert await bench.give(make_pod(app="2")) == [None]
    assert (bench.board.state.exclusive, bench.file.data, bench.findings()) == (before[0].exclusive, *before[1:])


async def test_what_is_not_on_disk_is_given_to_nobody():
    bench = Bench()
    bench.file.refuses = "the disk is full"
    with pytest.raises(CheckpointError, match="the disk is full"):
        await bench.give(make_pod(app="2"))
    assert bench.board.state.exclusive == {}
    assert bench.findings() == []
    bench.file.refuses = ""
    assert await bench.give(make_pod("uid-2", app="2")) == [None]
    assert bench.cpus("uid-2", "app") == "2,8"


async def test_too_few_cpus():
    bench = Bench()
    message = "not enough cpus available to satisfy request: requested=12, available=11"
    assert await bench.give(make_pod(app="12")) == [AllocationFailure(message)]
    assert (bench.file.data, bench.board.state.exclusive) == (None, {})


async def test_cpus_of_pods_that_are_gone_are_given_again():
    bench = Bench()
    await bench.give(make_pod(app="8"))
    assert isinstance((await bench.give(make_pod("uid-2", app="4")))[0], AllocationFailure)
    bench.holders.gone.add("uid-1")
    # Hints count with them, and the next allocation gives them.
    later = make_pod("uid-2", app="4")
    assert [hint.preferred for hint in bench.manager.pod_hints(later)["cpu"] or ()] == [True, True, False]
    assert await bench.give(later) == [None]
    assert set(bench.on_disk().exclusive) == {"uid-2"}
    assert bench.findings()[1] == (
        Reason.EXCLUSIVE_CPUS_RELEASED,
        "CPUs 1-3,5,7-9,11 are free again: the container is in no pod that may run",
    )


async def test_cpus_are_released_without_an_allocation():
    bench = Bench()
    await bench.give(make_pod(app="2"))
    saves = bench.file.saves
    await bench.manager.release_stale()
    assert bench.file.saves == saves
    bench.holders.gone.add("uid-1")
    bench.file.refuses = "the disk is full"
    await bench.manager.release_stale()
    assert bench.board.state.assigned == {2, 8}
    bench.file.refuses = ""
    await bench.manager.release_stale()
    assert (bench.board.state.assigned, bench.on_disk().exclusive) == (frozenset(), {})


@pytest.mark.parametrize(
    ("lifts_quota", "expected"),
    [pytest.param(True, (True, False, True, False), id="on"), pytest.param(False, (False,) * 4, id="off")],
)
async def test_limits_that_are_not_enforced(lifts_quota, expected):
    bench = Bench(lifts_quota=lifts_quota)
    await bench.give(make_pod(app="2", side="500m"))
    app, side = (bench.board.pins_of(PodUID("uid-1"), name).lifts_quota for name in ("app", "side"))
    pods = (bench.board.lifts_pod_quota(PodUID(uid)) for uid in ("uid-1", "uid-2"))
    assert (app, side, *pods) == expected


async def test_whose_the_cpus_are():
    bench = Bench()
    await bench.give(make_pod(app="2"))
    use = bench.board.cpu_use()
    assert (format_cpu_list(use.shared), use.reserved, use.exclusive) == (
        "0-1,3-7,9-11",
        {0},
        {"uid-1": {"app": {2, 8}}},
    )


def test_without_a_policy_nobody_is_kept_anywhere():
    board = CpuBoard(policy=None, state=CpuState(), lifts_quota=True)
    assert board.pins_of(PodUID("uid-1"), "app").cpus == frozenset()
    assert board.cpu_use().shared == frozenset()
    assert board.free == frozenset()


@pytest.mark.parametrize(
    ("options", "requests", "expected"),
    [
        pytest.param(
            PLAIN,
            ["2", "20"],
            {
                "kubelet_cpu_manager_pinning_requests_total": 2,
                "kubelet_cpu_manager_pinning_errors_total": 1,
                "kubelet_cpu_manager_shared_pool_size_millicores": 9000,
                "kubelet_cpu_manager_exclusive_cpu_allocation_count": 2,
                'kubelet_cpu_manager_allocation_per_numa{numa_node="0"}': 2,
                ALIGNED.format("count", "uncore_cache"): 1,
                ALIGNED.format("count", "physical_cpu"): 0,
                ALIGNED.format("failure_count", "physical_cpu"): 0,
            },
            id="one is given, one is not",
        ),
        pytest.param(
            FULL,
            ["8", "3"],
            {
                "kubelet_cpu_manager_pinning_requests_total": 2,
                "kubelet_cpu_manager_pinning_errors_total": 1,
                "kubelet_cpu_manager_shared_pool_size_millicores": 3000,
                "kubelet_cpu_manager_exclusive_cpu_allocation_count": 8,
                'kubelet_cpu_manager_allocation_per_numa{numa_node="0"}': 2,
                'kubelet_cpu_manager_allocation_per_numa{numa_node="1"}': 6,
                ALIGNED.format("count", "uncore_cache"): 0,
                ALIGNED.format("count", "physical_cpu"): 1,
                ALIGNED.format("failure_count", "physical_cpu"): 1,
            },
            id="whole cores, and half a one",
        ),
    ],
)
async def test_metrics(options, requests, expected):
    bench = Bench(options)
    for number, cpu in enumerate(requests):
        await bench.give(make_pod(f"uid-{number}", app=cpu))
    assert bench.metrics() == expected

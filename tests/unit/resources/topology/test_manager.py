"""Who is asked, in which order, with which affinity, and what becomes of a pod when one says no."""

import asyncio

import pytest

from klet.aio.clock import LoopClock
from klet.checkpoint.errors import CheckpointError
from klet.journal.memory import MemoryJournal
from klet.metrics import MetricRegistry
from klet.model.reasons import Reason
from klet.model.verdicts import Admit, Reject, Wait
from klet.resources.metrics import register_alignment, register_topology
from klet.resources.topology.hints import AllocationFailure, Hint, mask_of
from klet.resources.topology.manager import TopologyManager
from klet.resources.topology.rules import TopologyPolicy, TopologyRules, TopologyScope
from klet.testing.builders import make_pod
from klet.testing.loop import EPOCH

POD = make_pod("app", "web", init=("setup",))
FIRST, SECOND = Hint(mask_of([0]), preferred=True), Hint(mask_of([1]), preferred=True)
BOTH = Hint(mask_of([0, 1]), preferred=False)


class Provider:
    """A manager of one resource that says what a test wants, and notes what it is asked."""

    def __init__(self, name, log, hints=None, failures=()):
        self.name, self.log, self.hints, self.failures = name, log, hints or {}, dict(failures)

    def pod_hints(self, pod):
        self.log.append((self.name, "pod hints", pod.metadata.uid))
        return self.hints

    def container_hints(self, pod, container):  # noqa: ARG002 - the role has it
        self.log.append((self.name, "hints", container.name))
        return self.hints

    async def allocate(self, pod, container, affinity):  # noqa: ARG002 - the role has it
        self.log.append((self.name, "allocate", container.name, affinity))
        failure = self.failures.get(container.name)
        if isinstance(failure, Exception):
            raise failure
        return failure


class Bench:
    def __init__(self, policy, *providers, scope=TopologyScope.CONTAINER):
        self.registry = MetricRegistry()
        self.clock = LoopClock(epoch=EPOCH)
        self.journal = MemoryJournal(clock=self.clock)
        self.manager = TopologyManager(
            providers=providers,
            rules=TopologyRules(policy=policy, scope=scope, nodes=(0, 1)),
            metrics=register_topology(self.registry),
            alignment=register_alignment(self.registry),
            recorder=self.journal,
            clock=self.clock,
        )

    def admit(self, pod=POD, others=()):
        async def ask():
            return await self.manager.admit(pod, others)

        return asyncio.run(ask())

    def metric(self, name):
        lines = self.registry.write().decode().splitlines()
        return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(name)), 0.0)

    @property
    def findings(self):
        return [cause.finding for cause in self.journal.all()]


def test_with_the_policy_none_all_allocate_and_nobody_is_asked_for_hints():
    log = []
    bench = Bench(TopologyPolicy.NONE, Provider("cpu", log), Provider("memory", log), scope=TopologyScope.POD)
    assert bench.admit() == Admit()
    nowhere = Hint(None, preferred=False)
    assert log == [
        (name, "allocate", container, nowhere) for container in ("setup", "app", "web") for name in ("cpu", "memory")
    ]


def test_by_container_each_is_aligned_and_then_given_its_resources():
    log = []
    cpu = Provider("cpu", log, {"cpu": (FIRST, SECOND)})
    memory = Provider("memory", log, {"memory": (SECOND, BOTH)})
    assert Bench(TopologyPolicy.RESTRICTED, cpu, memory).admit() == Admit()
    assert log == [
        step
        for container in ("setup", "app", "web")
        for step in (
            ("cpu", "hints", container),
            ("memory", "hints", container),
            ("cpu", "allocate", container, SECOND),
            ("memory", "allocate", container, SECOND),
        )
    ]


def test_by_pod_all_containers_have_one_affinity():
    log = []
    cpu, memory = Provider("cpu", log, {"cpu": (FIRST,)}), Provider("memory", log)
    bench = Bench(TopologyPolicy.SINGLE_NUMA_NODE, cpu, memory, scope=TopologyScope.POD)
    assert bench.admit() == Admit()
    assert log[:2] == [("cpu", "pod hints", "uid-1"), ("memory", "pod hints", "uid-1")]
    assert {step[3] for step in log[2:]} == {FIRST}
    assert len(log) == 2 + 6
    count = 'kubelet_container_aligned_compute_resources_count{boundary="numa_node",scope="pod"}'
    assert bench.metric(count) == 1


@pytest.mark.parametrize("scope", list(TopologyScope))
def test_a_pod_that_cannot_be_aligned(scope):
    log = []
    cpu, memory = Provider("cpu", log, {"cpu": (FIRST,)}), Provider("memory", log, {"memory": (SECOND,)})
    bench = Bench(TopologyPolicy.SINGLE_NUMA_NODE, cpu, memory, scope=scope)
    rejected = bench.admit()
    assert isinstance(rejected, Reject)
    assert (rejected.reason, rejected.message) == (
        Reason.TOPOLOGY_AFFINITY_ERROR, "Resources cannot be allocated with Topology locality",
    )  # fmt: skip
    assert rejected.measurements["why"] == (
        "the policy single-numa-node finds no NUMA nodes that suit all: cpu {0}; memory {1}"
    )
    assert rejected.measurements.get("container") == ("setup" if scope is TopologyScope.CONTAINER else None)
    assert not [step for step in log if step[1] == "allocate"]
    assert bench.metric("kubelet_topology_manager_admission_errors_total") == 1
    failed = "kubelet_container_aligned_compute_resources_failure_count"
    assert bench.metric(f'{failed}{{boundary="numa_node",scope="{scope}"}}') == 1


@pytest.mark.parametrize(
    ("failure", "reason", "message"),
    [
        pytest.param(
            AllocationFailure("nothing left"), Reason.UNEXPECTED_ADMISSION_ERROR,
            "Allocate failed due to nothing left, which is unexpected", id="an error without a reason",
        ),
        pytest.param(
            AllocationFailure("not aligned", Reason.POD_FEATURE_UNSUPPORTED), Reason.POD_FEATURE_UNSUPPORTED,
            "not aligned", id="an error with its own reason",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize(("policy", "errors"), [(TopologyPolicy.NONE, 0), (TopologyPolicy.BEST_EFFORT, 1)])
def test_a_resource_that_cannot_be_given(failure, reason, message, policy, errors):
    log = []
    bench = Bench(policy, Provider("cpu", log, failures={"app": failure}), Provider("memory", log))
    rejected = bench.admit()
    assert (rejected.reason, rejected.message) == (reason, message)
    assert rejected.measurements == {"why": failure.message, "container": "app"}
    assert [step[:3] for step in log if step[1] == "allocate"] == [
        ("cpu", "allocate", "setup"), ("memory", "allocate", "setup"), ("cpu", "allocate", "app"),
    ]  # fmt: skip
    assert bench.metric("kubelet_topology_manager_admission_errors_total") == errors
    assert bench.metric("kubelet_topology_manager_admission_requests_total") == 1


def test_what_cannot_be_recorded_waits():
    failing = Provider("cpu", [], failures={"app": CheckpointError("no space")})
    assert Bench(TopologyPolicy.NONE, failing).admit() == Wait("its resources cannot be recorded: no space")


def test_pods_of_a_previous_run_are_given_theirs_first_and_once():
    log = []
    bench = Bench(TopologyPolicy.NONE, Provider("cpu", log))
    old = make_pod("old", uid="uid-0")
    new = make_pod("new", uid="uid-2")
    assert bench.admit(make_pod("app"), [old]) == Admit()
    assert bench.admit(new, [old, make_pod("app")]) == Admit()
    assert [step[2] for step in log] == ["old", "app", "new"]


def test_a_pod_of_a_previous_run_goes_on_without_what_it_cannot_have():
    log = []
    failing = Provider("cpu", log, failures={"old": AllocationFailure("nothing left")})
    bench = Bench(TopologyPolicy.NONE, failing)
    assert bench.admit(make_pod("app"), [make_pod("old", uid="uid-0", name="old")]) == Admit()
    (found,) = bench.findings
    assert (found.decision, found.subject.name) == (Reason.RUNS_WITHOUT_OWN_RESOURCES, "old")
    assert found.message == "Allocate failed due to nothing left, which is unexpected"


def test_the_choice_is_recorded_with_the_hints():
    bench = Bench(TopologyPolicy.RESTRICTED, Provider("cpu", [], {"cpu": (FIRST, BOTH), "gpu": None}))
    bench.admit(make_pod("app"))
    (found,) = bench.findings
    assert (found.decision, found.subject.container) == (Reason.TOPOLOGY_ALIGNED, "app")
    assert found.message == "resources are allocated from NUMA node 0"
    assert found.measurements["hints"] == "cpu {0} ({0-1})"


def test_a_pod_without_hints_leaves_no_record():
    bench = Bench(TopologyPolicy.RESTRICTED, Provider("cpu", []))
    bench.admit()
    assert bench.findings == []

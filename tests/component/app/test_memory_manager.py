"""Memory of NUMA nodes in the wired agent: who gets it, what is rejected, and what is left of it after a kill."""

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.aio.clock import LoopClock
from klet.api.klet_v1_fit import FitPlacement
from klet.api.klet_v1_topology import ManagerPolicies, ResourceHolder
from klet.api.pod import PodOS
from klet.api.security import PodSecurityContext, Sysctl
from klet.checkpoint.upstream import MemoryManagerFormat
from klet.host.machine.info import NumaNode
from klet.resources.memory.state_file import MemoryStateRefused
from klet.resources.memory.tables import MemoryState, build_tables
from klet.resources.memory.validation import find_state_problem
from klet.resources.settings import MemoryManagerSettings
from klet.resources.topology.rules import TopologyPolicy, TopologyRules, TopologyScope
from klet.simulation import DrivenPodSource, SimulatedNode
from klet.testing.builders import IMAGE, make_container, make_pod, with_resources
from klet.testing.fake_runtime import FakeImage, FakeRuntime
from klet.testing.loop import EPOCH, run_virtual
from klet.testing.state_bytes import DyingStateBytes
from klet.wire import cri_v1_pb2 as pb

GIB = 1 << 30
NODES = (NumaNode(number=0, memory=8 * GIB), NumaNode(number=1, memory=8 * GIB))
EMPTY = build_tables(NODES, {0: {"memory": GIB}})
"""7 GiB on node 0, 8 on node 1."""
STATIC = MemoryManagerSettings(policy="Static", empty=EMPTY)
A_WHILE = timedelta(seconds=10)


def machine(policy=TopologyPolicy.NONE, scope=TopologyScope.CONTAINER, *, memory=STATIC, state=None):
    runtime = FakeRuntime(start=EPOCH, images=(FakeImage(name=IMAGE),))
    node = SimulatedNode(
        clock=LoopClock(epoch=EPOCH),
        runtime=runtime,
        topology=TopologyRules(policy=policy, scope=scope, nodes=(0, 1)),
        memory_manager=memory,
    )
    # What is given to whom is tested here, and not whether it fits.
    node.machine.cpus, node.machine.memory = 100, 100 << 30
    if state is not None:
        node.memory_state = state
    return node


def using(name, memory, *, sidecar=False):
    amounts = {"cpu": "1", "memory": memory}
    container = make_container(name, restart_policy="Always" if sidecar else None)
    return with_resources(container, requests=amounts, limits=amounts)


def pod_of(*memory, uid="uid-1", name="pod", init=()):
    containers = [using(f"c{number}", each) for number, each in enumerate(memory)]
    return make_pod(*containers, init=init, uid=uid, name=name, source="file")


def mems(node):
    """The NUMA nodes that the newest container of each name was created with."""
    return {each.config.metadata.name: each.config.linux.resources.cpuset_mems for each in node.runtime.containers()}


def state_of(node):
    value = MemoryManagerFormat().decode(node.memory_state.data)
    return MemoryState(nodes=value.machine_state, entries=value.entries)


def free(node):
    return {number: each.memory_map["memory"].free // GIB for number, each in state_of(node).nodes.items()}


def drive(node, *batches):
    """Run an agent and add pods, one batch after the other; return statuses and findings."""
    clock = LoopClock(epoch=EPOCH)

    async def story():
        wanted = DrivenPodSource()
        async with node.run_agent(wanted) as running:
            for batch in batches:
                batch(wanted) if callable(batch) else wanted.add(*batch)
                await clock.sleep(A_WHILE)
            return running.agent.statuses.all(), [cause.finding for cause in running.journal.all()]

    return run_virtual(story())


def test_containers_of_guaranteed_pods_are_bound_to_numa_nodes():
    node = machine()
    burstable = make_pod(using("plain", "1Gi"), uid="uid-2", name="plain", source="file")
    limits = replace(burstable.spec.containers[0].resources, limits={})
    plain = replace(burstable.spec.containers[0], resources=limits)
    burstable = replace(burstable, spec=replace(burstable.spec, containers=(plain,)))
    statuses, findings = drive(node, [pod_of("6Gi", "2Gi")], [burstable])
    assert {each.phase for each in statuses.values()} == {"Running"}
    assert mems(node) == {"c0": "0", "c1": "1", "plain": ""}
    assert free(node) == {0: 1, 1: 6}
    (first, _) = [finding for finding in findings if finding.decision == "MemoryAllocated"]
    assert (first.subject.container, first.message) == ("c0", "6Gi of memory from NUMA nodes 0")
    assert first.measurements == {"numaNodes": "0", "memory": 6 * GIB}


def test_more_than_one_node_has_is_taken_from_a_group():
    node = machine()
    drive(node, [pod_of("10Gi")])
    assert mems(node) == {"c0": "0,1"}
    assert [each.cells for each in state_of(node).nodes.values()] == [(0, 1), (0, 1)]
    assert free(node) == {0: 0, 1: 5}


def test_memory_that_nobody_has_left():
    node = machine()
    statuses, _ = drive(node, [pod_of("7Gi")], [pod_of("9Gi", uid="uid-2", name="second")])
    rejected = statuses["uid-2"]
    assert (rejected.phase, rejected.reason) == ("Failed", "UnexpectedAdmissionError")
    assert rejected.message == (
        "Pod was rejected: Allocate failed due to [memorymanager] failed to get the default NUMA affinity, no NUMA "
        "nodes with enough memory is available, which is unexpected"
    )


@pytest.mark.parametrize("policy", [TopologyPolicy.RESTRICTED, TopologyPolicy.SINGLE_NUMA_NODE])
def test_a_pod_whose_memory_would_be_torn_apart_is_rejected(policy):
    """Node 0 and node 1 could each hold the second pod, but now only both together have so much left."""
    node = machine(policy)
    first = [pod_of("10Gi")] if policy is TopologyPolicy.RESTRICTED else []
    wanted = pod_of("5Gi" if first else "9Gi", uid="uid-2", name="second")
    statuses, findings = drive(node, first, [wanted])
    rejected = statuses["uid-2"]
    assert (rejected.phase, rejected.reason) == ("Failed", "TopologyAffinityError")
    assert rejected.message == "Pod was rejected: Resources cannot be allocated with Topology locality"
    (recorded,) = [finding for finding in findings if finding.decision == "TopologyAffinityError"]
    hint = "({0-1})" if first else "{0-1}"
    assert recorded.measurements["why"] == f"the policy {policy} finds no NUMA nodes that suit all: memory {hint}"
    assert "uid-2" not in state_of(node).entries


def test_best_effort_takes_what_restricted_rejects():
    node = machine(TopologyPolicy.BEST_EFFORT)
    statuses, findings = drive(node, [pod_of("10Gi")], [pod_of("5Gi", uid="uid-2", name="second")])
    assert {each.phase for each in statuses.values()} == {"Running"}
    aligned = [finding for finding in findings if finding.decision == "TopologyAligned"]
    assert [each.message for each in aligned] == ["resources are allocated from NUMA nodes 0-1"] * 2
    assert aligned[0].measurements == {"policy": "best-effort", "scope": "container", "hints": "memory {0-1}"}


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        pytest.param(TopologyScope.CONTAINER, {"c0": "0", "c1": "1"}, id="each container by itself"),
        pytest.param(TopologyScope.POD, {"c0": "1", "c1": "1"}, id="all containers of the pod together"),
    ],
)
def test_the_scope(scope, expected):
    node = machine(TopologyPolicy.SINGLE_NUMA_NODE, scope)
    statuses, _ = drive(node, [pod_of("5Gi", "3Gi")])
    assert statuses["uid-1"].phase == "Running"
    assert mems(node) == expected


def test_the_memory_of_a_pod_that_is_gone_is_given_again():
    node = machine()
    again = pod_of("7Gi", "8Gi", uid="uid-2", name="again")
    drive(node, [pod_of("7Gi", "8Gi")], lambda wanted: wanted.remove("uid-1"), [])
    statuses, _ = drive(node, [again])
    assert statuses["uid-2"].phase == "Running"
    assert free(node) == {0: 0, 1: 0}
    assert set(state_of(node).entries) == {"uid-2"}


def test_init_containers_leave_their_memory():
    node = machine()
    pod = pod_of("5Gi", init=(using("first", "6Gi"), using("beside", "1Gi", sidecar=True)))
    clock = LoopClock(epoch=EPOCH)

    async def story():
        wanted = DrivenPodSource()
        async with node.run_agent(wanted):
            wanted.add(pod)
            await clock.sleep(A_WHILE)
            during = state_of(node).entries["uid-1"]
            (first,) = [each for each in node.runtime.containers() if each.state == pb.CONTAINER_RUNNING]
            node.runtime.end_container(first.id, 0)
            await clock.sleep(A_WHILE)
            return during, state_of(node).entries["uid-1"]

    during, after = run_virtual(story())
    assert {name: [block.size // GIB for block in blocks] for name, blocks in during.items()} == {
        "first": [0], "beside": [1], "c0": [5],
    }  # fmt: skip
    assert set(after) == {"beside", "c0"}
    assert mems(node) == {"first": "0", "beside": "0", "c0": "0"}
    assert free(node) == {0: 1, 1: 8}


def test_a_restart_changes_nothing():
    node = machine(TopologyPolicy.RESTRICTED)
    drive(node, [pod_of("6Gi", "2Gi")])
    before, started = node.memory_state.data, len(node.runtime.containers())
    statuses, _ = drive(node, [pod_of("6Gi", "2Gi")])
    assert statuses["uid-1"].phase == "Running"
    assert node.memory_state.data == before
    assert len(node.runtime.containers()) == started


@pytest.mark.parametrize("after", [False, True], ids=["before it is written", "after it is written"])
@pytest.mark.parametrize("at", range(2, 8))
def test_a_kill_at_every_write(at, after):
    """The first write is that of the start; two pods are admitted, and two init containers end."""
    store = DyingStateBytes(form=MemoryManagerFormat(), at=at, after=after)
    node = machine(TopologyPolicy.BEST_EFFORT, state=store)
    pods = [
        pod_of("3Gi", "2Gi", init=(using("init", "4Gi"),)),
        pod_of("2Gi", uid="uid-2", name="second", init=(using("setup", "2Gi"),)),
    ]
    clock = LoopClock(epoch=EPOCH)

    async def finish_init_containers():
        for _ in range(3):
            await clock.sleep(A_WHILE)
            for each in node.runtime.containers():
                if each.config.metadata.name in {"init", "setup"} and each.state == pb.CONTAINER_RUNNING:
                    node.runtime.end_container(each.id, 0)

    async def run_once(*, until_dead):
        wanted = DrivenPodSource()
        async with node.run_agent(wanted) as running:
            wanted.add(*pods)
            if until_dead:
                async with asyncio.TaskGroup() as group:
                    ends = group.create_task(finish_init_containers())
                    await store.died.wait()
                    ends.cancel()
            else:
                await finish_init_containers()
            return running.agent.statuses.all()

    async def story():
        await run_once(until_dead=True)
        return await run_once(until_dead=False)

    statuses = run_virtual(story())
    assert {each.phase for each in statuses.values()} == {"Running"}
    state = state_of(node)
    assert find_state_problem(state, EMPTY) is None
    given = {
        name: ",".join(sorted({str(number) for block in blocks for number in block.numa_affinity}))
        for containers in state.entries.values()
        for name, blocks in containers.items()
    }
    regular = {"c0", "c1"}
    created = {
        (each.labels["io.kubernetes.pod.uid"], each.config.metadata.name): each.config.linux.resources.cpuset_mems
        for each in node.runtime.containers()
        if each.state == pb.CONTAINER_RUNNING
    }
    assert set(created) == {("uid-1", "c0"), ("uid-1", "c1"), ("uid-2", "c0")}
    assert created == {
        (uid, name): ",".join(sorted({str(n) for block in blocks for n in block.numa_affinity}))
        for uid, containers in state.entries.items()
        for name, blocks in containers.items()
        if name in regular
    }
    assert regular >= given.keys()  # what the init containers had is free again


def test_what_cannot_be_written_is_not_acted_upon():
    node = machine()
    clock = LoopClock(epoch=EPOCH)

    async def story():
        wanted = DrivenPodSource()
        async with node.run_agent(wanted) as running:
            node.memory_state.refuses = "no space left"
            wanted.add(pod_of("6Gi"))
            await clock.sleep(A_WHILE)
            before = list(node.runtime.containers())
            node.memory_state.refuses = ""
            await clock.sleep(timedelta(minutes=10))
            findings = [cause.finding for cause in running.journal.all()]
            return before, running.agent.statuses.get("uid-1"), findings

    before, status, findings = run_virtual(story())
    assert before == []
    assert status.phase == "Running"
    waits = [finding.message for finding in findings if finding.decision == "AdmissionWaits"]
    assert waits[0] == "its resources cannot be recorded: no space left"
    assert "uid-1" in state_of(node).entries


def test_a_pod_of_an_agent_without_memory_manager_gets_its_memory_before_others():
    node = machine(memory=MemoryManagerSettings())
    drive(node, [pod_of("6Gi")])
    node.memory_state.data = None  # as upstream has one do who changes the policy
    node.memory_manager = STATIC
    statuses, _ = drive(node, [pod_of("6Gi")], [pod_of("8Gi", uid="uid-2", name="second")])
    assert {each.phase for each in statuses.values()} == {"Running"}
    assert {uid: blocks["c0"][0].numa_affinity for uid, blocks in state_of(node).entries.items()} == {
        "uid-1": (0,), "uid-2": (1,),
    }  # fmt: skip


def test_a_pod_that_runs_is_not_rejected_when_it_can_have_no_memory_of_its_own():
    node = machine(memory=MemoryManagerSettings())
    drive(node, [pod_of("20Gi")])
    node.memory_state.data = None
    node.memory_manager = STATIC
    statuses, findings = drive(node, [pod_of("20Gi")], [pod_of("1Gi", uid="uid-2", name="second")])
    assert {each.phase for each in statuses.values()} == {"Running"}
    (found,) = [finding for finding in findings if finding.decision == "RunsWithoutOwnResources"]
    assert found.subject.uid == "uid-1"


def test_another_policy_than_the_one_before_is_refused():
    node = machine()
    drive(node, [pod_of("6Gi")])
    before = node.memory_state.data
    node.memory_manager = MemoryManagerSettings()
    with pytest.raises(MemoryStateRefused) as caught:
        drive(node, [])
    assert str(caught.value) == (
        "start memory manager error: could not restore state from checkpoint: [memorymanager] configured policy "
        '"None" differs from state checkpoint policy "Static", please drain this node and delete the memory manager '
        'checkpoint file "/var/lib/kubelet/memory_manager_state" before restarting Kubelet'
    )
    assert node.memory_state.data == before


def test_with_the_policy_none_the_file_is_that_of_upstream():
    node = machine(memory=MemoryManagerSettings())
    drive(node, [pod_of("6Gi")])
    assert node.memory_state.data == b'{"policyName":"None","machineState":{},"checksum":4236770233}'
    assert mems(node) == {"c0": ""}


def test_where_a_pod_would_be_placed():
    """What is foretold is what happens, and it changes nothing."""
    node = machine(TopologyPolicy.RESTRICTED)
    clock = LoopClock(epoch=EPOCH)
    second = pod_of("5Gi", uid="uid-2", name="second")
    third = pod_of("7Gi", uid="uid-3", name="third")

    async def story():
        wanted = DrivenPodSource()
        async with node.run_agent(wanted) as running:
            wanted.add(pod_of("6Gi"))
            await clock.sleep(A_WHILE)
            before, records = node.memory_state.data, len(running.journal.all())
            foretold = await running.agent.fit.look(second)
            instead = await running.agent.fit.look(pod_of("7Gi", uid="uid-9"))
            assert (node.memory_state.data, len(running.journal.all())) == (before, records)
            wanted.add(second)
            await clock.sleep(A_WHILE)
            refused = await running.agent.fit.look(third)
            wanted.add(third)
            await clock.sleep(A_WHILE)
            return foretold, instead, refused, running.agent.statuses.get("uid-3")

    foretold, instead, refused, status = run_virtual(story())
    assert foretold.placement == (FitPlacement(container="c0", numa_nodes=(1,)),)
    assert state_of(node).entries["uid-2"]["c0"][0].numa_affinity == (1,)
    # It would take the place of the first pod, and have its memory.
    assert (instead.replaces.uid, instead.placement) == ("uid-1", (FitPlacement(container="c0", numa_nodes=(0,)),))
    assert not refused.fits
    assert (refused.reasons[0].reason, f"Pod was rejected: {refused.reasons[0].message}") == (
        status.reason, status.message,
    )  # fmt: skip


def test_what_the_machine_shows():
    node = machine(TopologyPolicy.RESTRICTED)
    clock = LoopClock(epoch=EPOCH)

    async def story():
        wanted = DrivenPodSource()
        async with node.run_agent(wanted) as running:
            wanted.add(pod_of("6Gi"))
            await clock.sleep(A_WHILE)
            return running.agent.topology.read()

    shown = run_virtual(story())
    assert shown.policies == ManagerPolicies(
        cpu="none", memory="Static", topology="restricted", topology_scope="container"
    )
    assert shown.holders == (
        ResourceHolder(
            namespace="default",
            pod="pod",
            uid="uid-1",
            container="c0",
            numa_nodes=(0,),
            memory={"memory": 6 * GIB},
        ),
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param({"security_context": PodSecurityContext(sysctls=(Sysctl(name="kernel.panic", value="1"),))},
                     "SysctlForbidden", id="kernel parameters come before"),
        pytest.param({"os": PodOS(name="windows")}, "UnexpectedAdmissionError", id="the operating system comes after"),
    ],
)  # fmt: skip
def test_when_resources_are_allocated(change, reason):
    pod = pod_of("20Gi")
    statuses, _ = drive(machine(), [replace(pod, spec=replace(pod.spec, **change))])
    assert statuses["uid-1"].reason == reason


def test_metrics():
    node = machine(TopologyPolicy.SINGLE_NUMA_NODE)
    clock = LoopClock(epoch=EPOCH)

    async def story():
        wanted = DrivenPodSource()
        async with node.run_agent(wanted) as running:
            wanted.add(pod_of("9Gi"), pod_of("6Gi", uid="uid-2", name="second"))
            await clock.sleep(A_WHILE)
            return running.agent.metrics.agent.write().decode()

    lines = run_virtual(story()).splitlines()
    for line in (
        "kubelet_topology_manager_admission_requests_total 2",
        "kubelet_topology_manager_admission_errors_total 1",
        "kubelet_topology_manager_admission_duration_ms_count 2",
        "kubelet_memory_manager_pinning_requests_total 1",
        "kubelet_memory_manager_pinning_errors_total 0",
        'kubelet_container_aligned_compute_resources_count{boundary="numa_node",scope="container"} 1',
        'kubelet_container_aligned_compute_resources_failure_count{boundary="numa_node",scope="container"} 1',
    ):
        assert line in lines

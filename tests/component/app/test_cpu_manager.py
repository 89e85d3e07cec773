"""CPUs of their own in the wired agent: who gets them, how others leave them, and what is left of it after a kill."""

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.aio.clock import LoopClock
from klet.api.klet_v1_topology import ManagerPolicies, ResourceHolder
from klet.checkpoint.upstream import CpuManagerFormat
from klet.host.cpulist import format_cpu_list
from klet.model.pods import PodUID
from klet.resources.cpu.policy import CpuPolicyOptions, build_static_policy
from klet.resources.cpu.restore import CpuStateRefused
from klet.resources.cpu.settings import CpuManagerSettings
from klet.resources.cpu.state import STATIC, check_state, read_state
from klet.resources.cpu.topology import build_topology
from klet.resources.topology.rules import TopologyPolicy, TopologyRules, TopologyScope
from klet.simulation import DrivenPodSource, SimulatedNode
from klet.simulation.killable import KillSwitch
from klet.testing.builders import IMAGE, make_container, make_pod, with_resources
from klet.testing.fake_runtime import Fail, FakeImage, FakeRuntime, Fault
from klet.testing.fake_runtime.machine import CallRecord
from klet.testing.loop import EPOCH, run_virtual
from klet.testing.machines import TWO_SOCKETS, list_cpus
from klet.testing.state_bytes import DyingStateBytes
from klet.wire import cri_v1_pb2 as pb

A_WHILE = timedelta(seconds=30)
TOPOLOGY = build_topology(list_cpus(TWO_SOCKETS))
POLICY = build_static_policy(TOPOLOGY, CpuPolicyOptions(), reserved=1, specific=frozenset({0}))
SETTINGS = CpuManagerSettings(static=POLICY)
UPDATE = "UpdateContainerResources"


def machine(topology=TopologyPolicy.NONE, *, scope=TopologyScope.CONTAINER, settings=SETTINGS, state=None):
    runtime = FakeRuntime(start=EPOCH, images=(FakeImage(name=IMAGE),))
    node = SimulatedNode(
        clock=LoopClock(epoch=EPOCH),
        runtime=runtime,
        topology=TopologyRules(policy=topology, scope=scope, nodes=(0, 1)),
        cpu_manager=settings,
    )
    # What is given to whom is tested here, and not whether it fits.
    node.machine.cpus, node.machine.memory = 100, 100 << 30
    if state is not None:
        node.cpu_state = state
    return node


def using(name, cpu, *, sidecar=False):
    amounts = {"cpu": cpu, "memory": "64Mi"}
    container = make_container(name, restart_policy="Always" if sidecar else None)
    return with_resources(container, requests=amounts, limits=amounts)


def pod_of(*cpu, uid="uid-1", name="pod", init=()):
    containers = [using(f"c{number}", each) for number, each in enumerate(cpu)]
    return make_pod(*containers, init=init, uid=uid, name=name, source="file")


def plain_pod(uid="plain"):
    return make_pod("shared", uid=uid, name=uid, source="file")


def state_of(node):
    return read_state(CpuManagerFormat().decode(node.cpu_state.data), policy=STATIC, containers={})


def given(node):
    return {
        (uid, name): format_cpu_list(cpus)
        for uid, each in state_of(node).exclusive.items()
        for name, cpus in each.items()
    }


def running(node):
    """Where the running containers are, by pod and name."""
    return {
        (each.labels["io.kubernetes.pod.uid"], each.config.metadata.name): each.resources.cpuset_cpus
        for each in node.runtime.containers()
        if each.state == pb.CONTAINER_RUNNING
    }


def updates(node):
    calls = (each for each in node.runtime.history if isinstance(each, CallRecord) and each.rpc == UPDATE)
    return [each.request for each in calls]


def drive(node, *batches, pause=A_WHILE):
    """Run an agent and add pods, one batch after the other; return statuses and findings."""
    clock = LoopClock(epoch=EPOCH)

    async def story():
        wanted = DrivenPodSource()
        async with node.run_agent(wanted) as agent:
            for batch in batches:
                batch(wanted) if callable(batch) else wanted.add(*batch)
                await clock.sleep(pause)
            return agent.agent.statuses.all(), [cause.finding for cause in agent.journal.all()]

    return run_virtual(story())


def test_a_container_gets_cpus_and_all_others_leave_them():
    node = machine()
    statuses, findings = drive(node, [plain_pod()], [pod_of("2", "500m")])
    assert {each.phase for each in statuses.values()} == {"Running"}
    assert running(node) == {
        ("plain", "shared"): "0-1,3-7,9-11",
        ("uid-1", "c0"): "2,8",
        ("uid-1", "c1"): "0-1,3-7,9-11",
    }
    assert given(node) == {("uid-1", "c0"): "2,8"}
    (recorded,) = [finding for finding in findings if finding.decision == "ExclusiveCpus"]
    assert (recorded.subject.name, recorded.subject.container) == ("pod", "c0")
    assert recorded.measurements == {
        "cpus": "2,8",
        "requested": 2,
        "numaNodes": "0",
        "sharedCpus": "0-1,3-7,9-11",
    }


def test_containers_are_created_where_they_belong():
    node = machine()
    drive(node, [pod_of("2")], [plain_pod()])
    created = {each.config.metadata.name: each.config.linux.resources for each in node.runtime.containers()}
    assert created["c0"].cpuset_cpus == "2,8"
    assert created["shared"].cpuset_cpus == "0-1,3-7,9-11"
    # The limit is not enforced where nobody else runs, neither on the container nor on its pod.
    assert (created["c0"].cpu_quota, created["c0"].cpu_period) == (-1, 100_000)
    sandboxes = {each.config.metadata.uid: each.config.linux.resources for each in node.runtime.sandboxes()}
    assert sandboxes["uid-1"].cpu_quota == -1
    assert node.cgroups.unlimited == {"uid-1"}


def test_limits_are_enforced_with_the_gate_off():
    node = machine(settings=replace(SETTINGS, lifts_quota=False))
    drive(node, [pod_of("2")])
    (container,) = node.runtime.containers()
    (sandbox,) = node.runtime.sandboxes()
    assert container.config.linux.resources.cpuset_cpus == "2,8"
    assert container.config.linux.resources.cpu_quota == 200_000
    assert sandbox.config.linux.resources.cpu_quota == 200_000
    assert node.cgroups.unlimited == set()


def test_a_container_is_moved_once():
    node = machine()
    _, findings = drive(node, [plain_pod()], [pod_of("2")], pause=timedelta(minutes=2))
    moved = [each.linux.cpuset_cpus for each in updates(node)]
    # It was created where it belonged at that time. Its own CPUs a container has from the start.
    assert moved == ["0-1,3-7,9-11"]
    (recorded,) = [finding for finding in findings if finding.decision == "CpusChanged"]
    assert (recorded.subject.name, recorded.subject.container) == ("plain", "shared")
    assert recorded.message == "moved from CPUs 0-11 to 0-1,3-7,9-11: these are shared now"


def test_what_a_pod_leaves_is_shared_again():
    node = machine()
    _, findings = drive(node, [plain_pod(), pod_of("2")], lambda wanted: wanted.remove("uid-1"), [])
    assert given(node) == {}
    assert running(node) == {("plain", "shared"): "0-11"}
    (released,) = [finding for finding in findings if finding.decision == "ExclusiveCpusReleased"]
    assert (released.subject.uid, released.subject.container) == ("uid-1", "c0")


def test_a_runtime_that_cannot_move_a_container_is_asked_again():
    node = machine()
    node.runtime.faults.add(Fault(rpc=UPDATE, effect=Fail(message="cgroup is busy"), count=3))
    _, findings = drive(node, [plain_pod()], [pod_of("2")], pause=timedelta(minutes=2))
    assert running(node)["plain", "shared"] == "0-1,3-7,9-11"
    assert len(updates(node)) == 4
    (recorded,) = [finding for finding in findings if finding.decision == "CpusNotSet"]
    assert (recorded.subject.name, recorded.subject.container) == ("plain", "shared")
    assert recorded.message == "the container cannot be moved to CPUs 0-1,3-7,9-11: cgroup is busy"


@pytest.mark.parametrize(
    ("options", "cpu", "reason", "message"),
    [
        pytest.param(
            CpuPolicyOptions(full_cores=True),
            "3",
            "SMTAlignmentError",
            "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2",
            id="half a core",
        ),
        pytest.param(
            CpuPolicyOptions(full_cores=True),
            "12",
            "SMTAlignmentError",
            "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 10, requested CPUs = 12, "
            "CPUs per core = 2",
            id="too few cores",
        ),
        pytest.param(
            CpuPolicyOptions(),
            "12",
            "UnexpectedAdmissionError",
            "Allocate failed due to not enough cpus available to satisfy request: requested=12, available=11, "
            "which is unexpected",
            id="too few CPUs",
        ),
    ],
)
def test_a_pod_that_cannot_have_its_cpus_is_rejected(options, cpu, reason, message):
    policy = build_static_policy(TOPOLOGY, options, reserved=1, specific=frozenset({0}))
    node = machine(settings=CpuManagerSettings(static=policy))
    statuses, _ = drive(node, [pod_of(cpu)])
    rejected = statuses["uid-1"]
    assert (rejected.phase, rejected.reason) == ("Failed", reason)
    assert rejected.message == f"Pod was rejected: {message}"
    assert node.runtime.containers() == ()


@pytest.mark.parametrize(
    ("scope", "phase"),
    [
        pytest.param(TopologyScope.CONTAINER, "Running", id="each container by itself"),
        pytest.param(TopologyScope.POD, "Failed", id="all containers of the pod together"),
    ],
)
def test_cpus_of_one_numa_node(scope, phase):
    node = machine(TopologyPolicy.SINGLE_NUMA_NODE, scope=scope)
    statuses, _ = drive(node, [pod_of("4", "4")])
    assert statuses["uid-1"].phase == phase
    own = state_of(node).exclusive.get(PodUID("uid-1"), {})
    nodes = {name: len(TOPOLOGY.nodes_of(cpus)) for name, cpus in own.items()}
    assert nodes == ({"c0": 1, "c1": 1} if phase == "Running" else {})


def test_the_cpus_of_an_init_container_go_to_the_next():
    node = machine()
    pod = pod_of("4", init=(using("first", "6"), using("beside", "2", sidecar=True)))
    clock = LoopClock(epoch=EPOCH)

    async def story():
        wanted = DrivenPodSource()
        async with node.run_agent(wanted):
            wanted.add(pod)
            await clock.sleep(A_WHILE)
            (first,) = [each for each in node.runtime.containers() if each.state == pb.CONTAINER_RUNNING]
            node.runtime.end_container(first.id, 0)
            await clock.sleep(A_WHILE)

    run_virtual(story())
    cpus = {name: frozenset(each) for name, each in state_of(node).exclusive["uid-1"].items()}
    assert {name: len(each) for name, each in cpus.items()} == {"first": 6, "beside": 2, "c0": 4}
    # Of 11 CPUs 5 are left: not enough for both without those of the init container.
    assert (cpus["beside"] | cpus["c0"]) & cpus["first"]
    assert not cpus["beside"] & cpus["c0"]
    assert running(node) == {
        ("uid-1", "beside"): format_cpu_list(cpus["beside"]),
        ("uid-1", "c0"): format_cpu_list(cpus["c0"]),
    }


def test_a_restart_changes_nothing():
    node = machine(TopologyPolicy.RESTRICTED)
    drive(node, [plain_pod(), pod_of("2", "4")])
    before, where, started = node.cpu_state.data, running(node), len(node.runtime.containers())
    statuses, findings = drive(node, [plain_pod(), pod_of("2", "4")])
    assert {each.phase for each in statuses.values()} == {"Running"}
    assert (node.cpu_state.data, running(node), len(node.runtime.containers())) == (before, where, started)
    # What they were given by another run is not known.
    assert sorted(each.linux.cpuset_cpus for each in updates(node)) == sorted(where.values())
    assert len([finding for finding in findings if finding.decision == "ExclusiveCpus"]) == 2  # of the first run


def test_pods_of_upstreams_kubelet_keep_what_it_gave_them():
    """The pods run, the file is upstream's, and klet knows nothing of them."""
    node = machine()
    drive(node, [plain_pod(), pod_of("2", "4")])
    before, where, started = node.cpu_state.data, running(node), len(node.runtime.containers())
    fresh = machine()
    node.checkpoint, node.journal = fresh.checkpoint, fresh.journal
    statuses, findings = drive(node, [plain_pod(), pod_of("2", "4")], [pod_of("4", uid="uid-2", name="second")])
    assert {each.phase for each in statuses.values()} == {"Running"}
    assert len(node.runtime.containers()) == started + 1
    kept = {key: cpus for key, cpus in given(node).items() if key[0] == "uid-1"}
    assert kept == {key: cpus for key, cpus in where.items() if key[0] == "uid-1"}
    assert before != node.cpu_state.data
    assert [finding.subject.name for finding in findings if finding.decision == "ExclusiveCpus"] == ["second"]


@pytest.mark.parametrize("after", [False, True], ids=["before it is written", "after it is written"])
@pytest.mark.parametrize("at", range(2, 8))
def test_a_kill_at_every_write(at, after):
    """The first write is that of the start; two pods with an init container are admitted, and one is removed."""
    store = DyingStateBytes(form=CpuManagerFormat(), at=at, after=after)
    node = machine(TopologyPolicy.BEST_EFFORT, state=store)
    first = pod_of("2", "1", init=(using("init", "3"),))
    second = pod_of("2", uid="uid-2", name="second", init=(using("init", "2"),))
    clock = LoopClock(epoch=EPOCH)

    async def live(wanted):
        for _ in range(3):
            await clock.sleep(A_WHILE)
            for each in node.runtime.containers():
                if each.config.metadata.name == "init" and each.state == pb.CONTAINER_RUNNING:
                    node.runtime.end_container(each.id, 0)
        wanted.remove("uid-2")
        await clock.sleep(timedelta(minutes=2))

    async def run_once(*, until_dead):
        wanted = DrivenPodSource()
        async with node.run_agent(wanted) as agent:
            wanted.add(plain_pod(), first, second)
            if until_dead:
                async with asyncio.TaskGroup() as group:
                    ends = group.create_task(live(wanted))
                    await store.died.wait()
                    ends.cancel()
            else:
                await live(wanted)
            return agent.agent.statuses.all()

    async def story():
        await run_once(until_dead=True)
        return await run_once(until_dead=False)

    statuses = run_virtual(story())
    assert {uid: each.phase for uid, each in statuses.items()} == {"plain": "Running", "uid-1": "Running"}
    state = state_of(node)
    assert check_state(POLICY, state) == state
    assert set(state.exclusive) == {"uid-1"}
    own = state.exclusive["uid-1"]
    assert {name: len(cpus) for name, cpus in own.items()} == {"init": 3, "c0": 2, "c1": 1}
    assert not own["c0"] & own["c1"]
    assert running(node) == {
        ("plain", "shared"): format_cpu_list(state.shared),
        ("uid-1", "c0"): format_cpu_list(own["c0"]),
        ("uid-1", "c1"): format_cpu_list(own["c1"]),
    }


@pytest.mark.parametrize("after", [False, True], ids=["before its effect", "after its effect"])
@pytest.mark.parametrize("calls", range(1, 16))
def test_a_kill_at_every_call_of_the_runtime(calls, after):
    """From the admission of a pod on: its sandbox, its containers, and the move of the container that was there."""
    node = machine()
    clock = LoopClock(epoch=EPOCH)
    pods = (plain_pod(), pod_of("2", "1"))

    async def story():
        wanted = DrivenPodSource()
        switch = KillSwitch()
        async with node.run_agent(wanted, kill_switch=switch):
            wanted.add(pods[0])
            await clock.sleep(A_WHILE)
            switch.kill_at_call(calls=calls, after_effect=after)
            wanted.add(pods[1])
            await switch.killed.wait()
        wanted = DrivenPodSource()
        async with node.run_agent(wanted) as agent:
            wanted.add(*pods)
            await clock.sleep(timedelta(minutes=2))
            return agent.agent.statuses.all()

    statuses = run_virtual(story())
    assert {uid: each.phase for uid, each in statuses.items()} == {"plain": "Running", "uid-1": "Running"}
    state = state_of(node)
    assert check_state(POLICY, state) == state
    own = state.exclusive["uid-1"]
    assert {name: len(cpus) for name, cpus in own.items()} == {"c0": 2, "c1": 1}
    assert running(node) == {
        ("plain", "shared"): format_cpu_list(state.shared),
        ("uid-1", "c0"): format_cpu_list(own["c0"]),
        ("uid-1", "c1"): format_cpu_list(own["c1"]),
    }


def test_what_cannot_be_written_is_not_acted_upon():
    node = machine()
    clock = LoopClock(epoch=EPOCH)

    async def story():
        wanted = DrivenPodSource()
        async with node.run_agent(wanted) as agent:
            node.cpu_state.refuses = "no space left"
            wanted.add(pod_of("2"))
            await clock.sleep(A_WHILE)
            before = list(node.runtime.containers())
            node.cpu_state.refuses = ""
            await clock.sleep(timedelta(minutes=10))
            return before, agent.agent.statuses.get("uid-1"), [cause.finding for cause in agent.journal.all()]

    before, status, findings = run_virtual(story())
    assert before == []
    assert status.phase == "Running"
    waits = [finding.message for finding in findings if finding.decision == "AdmissionWaits"]
    assert waits[0] == "its resources cannot be recorded: no space left"
    assert given(node) == {("uid-1", "c0"): "2,8"}


def test_a_pod_of_an_agent_without_cpu_manager_gets_its_cpus_before_others():
    node = machine(settings=CpuManagerSettings())
    drive(node, [pod_of("2")])
    assert running(node) == {("uid-1", "c0"): ""}
    node.cpu_state.data = None  # as upstream has one do who changes the policy
    node.cpu_manager = SETTINGS
    statuses, _ = drive(node, [pod_of("2")], [pod_of("10", uid="uid-2", name="second")])
    assert statuses["uid-1"].phase == "Running"
    assert statuses["uid-2"].reason == "UnexpectedAdmissionError"
    assert running(node) == {("uid-1", "c0"): "2,8"}


def test_another_policy_than_the_one_before_is_refused():
    node = machine()
    drive(node, [pod_of("2")])
    before = node.cpu_state.data
    node.cpu_manager = CpuManagerSettings()
    with pytest.raises(CpuStateRefused) as caught:
        drive(node, [])
    assert str(caught.value) == (
        "start cpu manager error: could not restore state from checkpoint: configured policy "
        '"none" differs from state checkpoint policy "static", please drain this node and delete the CPU manager '
        'checkpoint file "/var/lib/kubelet/cpu_manager_state" before restarting Kubelet'
    )
    assert node.cpu_state.data == before


def test_with_the_policy_none_the_file_is_that_of_upstream_and_nobody_is_moved():
    node = machine(settings=CpuManagerSettings())
    drive(node, [pod_of("2")], pause=timedelta(minutes=2))
    assert node.cpu_state.data == b'{"policyName":"none","defaultCpuSet":"","checksum":1353318690}'
    assert running(node) == {("uid-1", "c0"): ""}
    assert updates(node) == []


def test_what_the_machine_shows():
    node = machine(TopologyPolicy.RESTRICTED)
    clock = LoopClock(epoch=EPOCH)

    async def story():
        wanted = DrivenPodSource()
        async with node.run_agent(wanted) as agent:
            wanted.add(pod_of("2"))
            await clock.sleep(A_WHILE)
            return agent.agent.topology.read()

    shown = run_virtual(story())
    assert shown.policies == ManagerPolicies(
        cpu="static", memory="None", topology="restricted", topology_scope="container"
    )
    assert shown.holders == (ResourceHolder(namespace="default", pod="pod", uid="uid-1", container="c0", cpus=(2, 8)),)

"""What of the configuration becomes the node's cgroups."""

import pytest
from msgspec.structs import replace

from klet.api.quantity import Quantity
from klet.app.cgroup_settings import NodeCgroupSettings, cut_node_cgroups
from klet.config.command_line import Settings, parse_command_line
from klet.host.machine.info import Cpu, MachineInfo
from klet.resources.node_values import Enforcement, NodeAllocatableRules, compute_root_values

GIB = 1 << 30
CPUS = tuple(Cpu(number, core=number, socket=0, node=0) for number in (0, 1, 2, 5))
MACHINE = MachineInfo(
    cpus=4, memory=8 * GIB, topology=CPUS, hugepages={2 << 20: 512}, max_processes=4096, cgroup_version=2
)


def settings(*arguments: str, **changes) -> Settings:
    def missing(path: str):
        raise FileNotFoundError(path)

    parsed = parse_command_line(("--address=127.0.0.1", *arguments), read_file=missing, list_dir=missing)
    assert isinstance(parsed, Settings)
    return replace(parsed, config=replace(parsed.config, **changes))


def test_the_defaults():
    found = cut_node_cgroups(settings(), MACHINE)
    capacity = {
        "cpu": Quantity.parse("4"),
        "memory": Quantity.parse("8Gi"),
        "hugepages-2Mi": Quantity.parse("1Gi"),
        "pid": Quantity.parse("4096"),
    }
    allocatable = NodeAllocatableRules(capacity=capacity, enforced=frozenset({Enforcement.PODS}), cpus="0-2,5")
    assert found == NodeCgroupSettings(allocatable=allocatable)


def test_everything():
    found = cut_node_cgroups(
        settings(
            "--system-reserved=memory=1Gi,pid=96",
            "--kube-reserved=cpu=500m",
            "--enforce-node-allocatable=pods,system-reserved,kube-reserved-compressible",
            "--system-reserved-cgroup=/system",
            "--kube-reserved-cgroup=/kube",
            "--kubelet-cgroups=/kube/agent",
            "--system-cgroups=/rest",
            "--cgroup-root=/",
            "--oom-score-adj=-500",
        ),
        MACHINE,
    )
    assert (found.agent, found.system, found.oom_score) == ("/kube/agent", "/rest", -500)
    rules = found.allocatable
    assert (rules.system_cgroup, rules.kube_cgroup) == ("/system", "/kube")
    assert rules.enforced == {
        Enforcement.PODS,
        Enforcement.SYSTEM_RESERVED,
        Enforcement.KUBE_RESERVED_COMPRESSIBLE,
    }
    values = compute_root_values(rules)
    assert (values.cpu_shares, values.memory_limit, values.pids_limit) == (3584, 7 * GIB, 4000)


def test_evictions_do_not_lower_the_limit():
    given = settings("--eviction-hard=memory.available<2Gi")
    assert compute_root_values(cut_node_cgroups(given, MACHINE).allocatable).memory_limit == 8 * GIB


def test_reserved_cpus_are_those_of_the_system():
    given = settings("--reserved-cpus=0-1", "--kube-reserved=cpu=1,memory=1Gi", "--system-reserved=cpu=7")
    values = compute_root_values(cut_node_cgroups(given, MACHINE).allocatable)
    assert (values.cpu_shares, values.memory_limit) == (2048, 7 * GIB)


@pytest.mark.parametrize(
    ("policy", "cpus"), [("none", "0-2,5"), ("static", ""), ("", "0-2,5")], ids=["none", "a manager", "not given"]
)
def test_cpusets_are_left_to_a_cpu_manager(policy, cpus):
    given = settings(cpu_manager_policy=policy)
    assert cut_node_cgroups(given, MACHINE).allocatable.cpus == cpus


def test_nothing_is_enforced():
    given = settings("--enforce-node-allocatable=none", "--system-reserved=memory=1Gi")
    rules = cut_node_cgroups(given, MACHINE).allocatable
    assert rules.enforced == frozenset()
    assert compute_root_values(rules).memory_limit == 8 * GIB


def test_a_machine_that_says_little_of_itself():
    rules = cut_node_cgroups(settings(), MachineInfo(cpus=2, memory=GIB)).allocatable
    assert rules.cpus == ""
    values = compute_root_values(rules)
    assert (values.pids_limit, values.cpuset) == (None, None)

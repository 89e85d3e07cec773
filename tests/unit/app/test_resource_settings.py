"""What the configuration says about the limits of pods and containers."""

import pytest
from msgspec.structs import replace
from msgspec.structs import replace as change

from klet.app.resource_settings import cut_container_rules, cut_pod_cgroup_rules, cut_qos_rules
from klet.app.settings import cut_settings
from klet.config.command_line import Settings, parse_command_line
from klet.config.sections import MemorySwap
from klet.host.machine.info import MachineInfo
from klet.node.capacity import expect_allocatable
from klet.resources.cgroup_values import PodCgroupRules, QosRules
from klet.runtime.config.id_blocks import UserIdSettings
from klet.runtime.config.linux_resources import MemoryQosRules, ResourceRules, SwapRules

GIB = 1 << 30
V2 = MachineInfo(
    hostname="node", cpus=2, memory=8 * GIB, swap=2 * GIB, hugepages={2 << 20: 0}, has_swap_controller=True
)
V1 = MachineInfo(hostname="node", cpus=2, memory=8 * GIB, cgroup_version=1)


def left_for_pods(given: Settings, machine: MachineInfo) -> dict[str, str]:
    node = cut_settings(given, machine).node
    left = expect_allocatable(machine, storage=100 * GIB, settings=node)
    return {name: str(amount) for name, amount in left.items()}


def settings(*arguments: str, **changes) -> Settings:
    """Settings by flags, and by fields of the configuration that have no flag."""

    def missing(path: str):
        raise FileNotFoundError(path)

    parsed = parse_command_line(("--address=127.0.0.1", *arguments), read_file=missing, list_dir=missing)
    assert isinstance(parsed, Settings)
    return change(parsed, config=replace(parsed.config, **changes))


MEMORY_QOS = "--feature-gates=MemoryQoS=true"


def test_defaults_on_version_2():
    assert cut_container_rules(settings(), V2) == ResourceRules(
        is_unified=True,
        memory_capacity=8 * GIB,
        hugepage_sizes=(2 << 20,),
        kills_whole_container=True,
        swap=SwapRules(capacity=2 * GIB),
    )
    assert cut_pod_cgroup_rules(settings(), V2) == PodCgroupRules()
    assert cut_qos_rules(settings(), V2) == QosRules(hugepage_sizes=(2 << 20,), allocatable_memory=8 * GIB)


def test_defaults_on_version_1():
    assert cut_container_rules(settings(), V1) == ResourceRules(memory_capacity=8 * GIB)
    assert not cut_container_rules(settings(MEMORY_QOS), V1).memory_qos
    assert not cut_pod_cgroup_rules(settings(MEMORY_QOS), V1).memory_qos


def test_one_process_may_die_alone():
    assert not cut_container_rules(settings(single_process_oom_kill=True), V2).kills_whole_container
    assert cut_container_rules(settings(single_process_oom_kill=False), V2).kills_whole_container


@pytest.mark.parametrize(("behavior", "expected"), [("", False), ("NoSwap", False), ("LimitedSwap", True)])
def test_swap(behavior, expected):
    rules = cut_container_rules(settings(memory_swap=MemorySwap(swap_behavior=behavior)), V2)
    assert rules.swap == SwapRules(is_limited=expected, capacity=2 * GIB)


def test_memory_quality_of_service():
    given = settings(MEMORY_QOS, "--kube-reserved=memory=1Gi", "--system-reserved=memory=2Gi")
    rules = MemoryQosRules(throttling_factor=0.9, allocatable=5 * GIB)
    assert cut_container_rules(given, V2).memory_qos == rules
    assert cut_pod_cgroup_rules(given, V2).memory_qos
    assert cut_qos_rules(given, V2) == QosRules(hugepage_sizes=(2 << 20,), memory_qos=True, allocatable_memory=5 * GIB)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param((), None, id="nothing is reserved by default"),
        pytest.param(
            ("--feature-gates=QOSReserved=true", "--qos-reserved=memory=50%"), 50, id="a part of what is requested"
        ),
    ],
)
def test_reservations(arguments, expected):
    assert cut_qos_rules(settings(*arguments), V2).reserved_percent == expected


def test_limits_by_flag():
    rules = cut_pod_cgroup_rules(settings("--pod-max-pids=100", "--cpu-cfs-quota=false"), V2)
    assert (rules.pids_limit, rules.cpu_quota) == (100, False)
    assert not cut_container_rules(settings("--cpu-cfs-quota=false"), V2).cpu_quota


def test_a_period_of_its_own():
    given = settings("--feature-gates=CustomCPUCFSQuotaPeriod=true", "--cpu-cfs-quota-period=5ms")
    assert cut_pod_cgroup_rules(given, V2).cpu_period == cut_container_rules(given, V2).cpu_period == 5000


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(
            (),
            {"cpu": "2", "memory": "8Gi", "pods": "110", "ephemeral-storage": "100Gi"},
            id="the whole machine",
        ),
        pytest.param(
            ("--eviction-hard=memory.available<100Mi,nodefs.available<10%",),
            {"cpu": "2", "memory": "8092Mi", "pods": "110", "ephemeral-storage": "96636764000"},
            id="less what the hard thresholds keep free",
        ),
        pytest.param(
            ("--eviction-hard=memory.available<100Mi", "--experimental-allocatable-ignore-eviction"),
            {"cpu": "2", "memory": "8Gi", "pods": "110", "ephemeral-storage": "100Gi"},
            id="unless thresholds are to be ignored",
        ),
        pytest.param(
            ("--system-reserved=cpu=500m,memory=1Gi", "--kube-reserved=cpu=250m,ephemeral-storage=1Gi"),
            {"cpu": "1250m", "memory": "7Gi", "pods": "110", "ephemeral-storage": "99Gi"},
            id="less what is reserved",
        ),
        pytest.param(
            ("--kube-reserved=cpu=3", "--max-pods=7"),
            {"cpu": "0", "memory": "8Gi", "pods": "7", "ephemeral-storage": "100Gi"},
            id="never less than nothing",
        ),
        pytest.param(
            ("--pods-per-core=3", "--local-storage-capacity-isolation=false"),
            {"cpu": "2", "memory": "8Gi", "pods": "6"},
            id="so many pods for each CPU, and no storage",
        ),
    ],
)
def test_what_is_left_for_pods(arguments, expected):
    left = left_for_pods(settings(*arguments), V2)
    assert {name: text for name, text in left.items() if not name.startswith("hugepages")} == expected


def test_huge_pages_are_no_other_memory():
    left = left_for_pods(settings(), replace(V2, hugepages={2 << 20: 512}))
    assert (left["memory"], left["hugepages-2Mi"]) == ("7Gi", "1Gi")


def test_pods_get_all_cpus_of_the_machine_though_the_agent_runs_on_few():
    assert left_for_pods(settings(), replace(V2, cpus=4, agent_cpus=2))["cpu"] == "4"


def test_users_of_their_own():
    ids = cut_settings(settings("--max-pods=50", "--feature-gates=UserNamespacesSupport=false"), V2).user_ids
    assert ids == UserIdSettings(per_pod=65536, max_pods=50, is_enabled=False)


def test_reserved_cpus_stand_in_for_both_amounts():
    given = settings("--reserved-cpus=0", "--kube-reserved=cpu=500m,memory=1Gi", "--system-reserved=cpu=700m")
    left = left_for_pods(given, V2)
    assert (left["cpu"], left["memory"]) == ("1", "7Gi")

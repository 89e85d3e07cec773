"""Cuts the configuration into the settings of the node's cgroups. Pure."""

from datetime import timedelta

from msgspec import Struct, field

from klet.api.quantity import ZERO
from klet.config.command_line import Settings
from klet.config.reserved import effective_reservations, parse_qos_reserved
from klet.host.cgroups.resources import DEFAULT_PERIOD
from klet.host.cpulist import format_cpu_list
from klet.host.machine.info import MachineInfo
from klet.model.pod_resources import MEMORY
from klet.node.capacity import internal_capacity, machine_capacity
from klet.resources.cgroup_values import PodCgroupRules, QosRules
from klet.resources.node_values import Enforcement, NodeAllocatableRules

NONE = "none"
"""The CPU manager policy under which containers run on all CPUs; also the enforcement of nothing."""


class NodeCgroupSettings(Struct, frozen=True, kw_only=True):
    """Which cgroups the node has besides those of its pods, and what lives in them."""

    allocatable: NodeAllocatableRules = field(default_factory=NodeAllocatableRules)
    agent: str = ""
    """Where the agent lives (`kubeletCgroups`); empty: where it was started."""
    oom_score: int = -999
    system: str = ""
    """Where processes without a cgroup are moved (`systemCgroups`); empty: they stay."""


def cut_node_cgroups(given: Settings, machine: MachineInfo) -> NodeCgroupSettings:
    """Return what of the node's resources is enforced, and where processes live."""
    config = given.config
    system, kube = effective_reservations(config)
    # Upstream asks the policy whether it has CPUs to give away: only the policy none has none.
    chooses_cpus = config.cpu_manager_policy not in ("", NONE)
    return NodeCgroupSettings(
        allocatable=NodeAllocatableRules(
            capacity=internal_capacity(machine),
            system_reserved=system,
            kube_reserved=kube,
            enforced=frozenset(Enforcement(level) for level in config.enforce_node_allocatable if level != NONE),
            system_cgroup=config.system_reserved_cgroup,
            kube_cgroup=config.kube_reserved_cgroup,
            cpus="" if chooses_cpus else format_cpu_list(machine.online_cpus),
            has_classes=config.cgroups_per_qos,
            memory_qos=has_memory_qos(given, machine),
        ),
        agent=config.kubelet_cgroups,
        oom_score=config.oom_score_adj,
        system=config.system_cgroups,
    )


def cut_pod_cgroup_rules(given: Settings, machine: MachineInfo) -> PodCgroupRules:
    """Return what a pod as a whole is limited to."""
    config = given.config
    return PodCgroupRules(
        cpu_quota=config.cpu_cfs_quota,
        cpu_period=cpu_period(given),
        memory_qos=has_memory_qos(given, machine),
        pids_limit=config.pod_pids_limit if config.pod_pids_limit > 0 else None,
    )


def cut_qos_rules(given: Settings, machine: MachineInfo) -> QosRules:
    """Return what the QoS classes share."""
    reserved = parse_qos_reserved(given.config.qos_reserved) if given.gates.enabled("QOSReserved") else {}
    return QosRules(
        hugepage_sizes=machine.hugepage_sizes,
        memory_qos=has_memory_qos(given, machine),
        reserved_percent=reserved.get(MEMORY),
        allocatable_memory=allocatable_memory(given, machine),
        page_size=machine.page_size,
    )


def is_unified(machine: MachineInfo) -> bool:
    return machine.cgroup_version == 2


def has_memory_qos(given: Settings, machine: MachineInfo) -> bool:
    return is_unified(machine) and given.gates.enabled("MemoryQoS")


def cpu_period(given: Settings) -> int:
    if not given.gates.enabled("CustomCPUCFSQuotaPeriod"):
        return DEFAULT_PERIOD
    return given.config.cpu_cfs_quota_period // timedelta(microseconds=1)


def allocatable_memory(given: Settings, machine: MachineInfo) -> int:
    """Return what is left of the memory after both reservations (upstream: GetNodeAllocatableAbsolute)."""
    system, kubelet = effective_reservations(given.config)
    left = machine_capacity(machine)[MEMORY] - system.get(MEMORY, ZERO) - kubelet.get(MEMORY, ZERO)
    return max(left, ZERO).value()

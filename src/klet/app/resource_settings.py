"""Cuts the part of the configuration that limits pods and containers. Pure."""

from datetime import timedelta

from klet.api.quantity import ZERO
from klet.config.command_line import Settings
from klet.config.reserved import effective_reservations, parse_qos_reserved
from klet.config.sections import LIMITED_SWAP
from klet.host.cgroups.resources import DEFAULT_PERIOD
from klet.host.machine.info import MachineInfo
from klet.model.pod_resources import MEMORY
from klet.node.capacity import machine_capacity
from klet.resources.cgroup_values import PodCgroupRules, QosRules
from klet.runtime.config.linux_resources import MemoryQosRules, ResourceRules, SwapRules


def cut_container_rules(given: Settings, machine: MachineInfo) -> ResourceRules:
    """Return the settings that go into every container and sandbox configuration."""
    config = given.config
    is_unified = _is_unified(machine)
    swap = SwapRules(is_limited=config.memory_swap.swap_behavior == LIMITED_SWAP, capacity=machine.swap)
    memory_qos = MemoryQosRules(
        throttling_factor=config.memory_throttling_factor,
        allocatable=_allocatable_memory(given, machine),
        page_size=machine.page_size,
    )
    return ResourceRules(
        is_unified=is_unified,
        cpu_quota=config.cpu_cfs_quota,
        cpu_period=_cpu_period(given),
        memory_capacity=machine.memory,
        hugepage_sizes=machine.hugepage_sizes,
        kills_whole_container=is_unified and not config.single_process_oom_kill,
        swap=swap if machine.has_swap_controller else None,
        memory_qos=memory_qos if _has_memory_qos(given, machine) else None,
    )


def cut_pod_cgroup_rules(given: Settings, machine: MachineInfo) -> PodCgroupRules:
    """Return what a pod as a whole is limited to."""
    config = given.config
    return PodCgroupRules(
        cpu_quota=config.cpu_cfs_quota,
        cpu_period=_cpu_period(given),
        memory_qos=_has_memory_qos(given, machine),
        pids_limit=config.pod_pids_limit if config.pod_pids_limit > 0 else None,
    )


def cut_qos_rules(given: Settings, machine: MachineInfo) -> QosRules:
    """Return what the QoS classes share."""
    reserved = parse_qos_reserved(given.config.qos_reserved) if given.gates.enabled("QOSReserved") else {}
    return QosRules(
        hugepage_sizes=machine.hugepage_sizes,
        memory_qos=_has_memory_qos(given, machine),
        reserved_percent=reserved.get(MEMORY),
        allocatable_memory=_allocatable_memory(given, machine),
    )


def _is_unified(machine: MachineInfo) -> bool:
    return machine.cgroup_version == 2


def _has_memory_qos(given: Settings, machine: MachineInfo) -> bool:
    return _is_unified(machine) and given.gates.enabled("MemoryQoS")


def _cpu_period(given: Settings) -> int:
    if not given.gates.enabled("CustomCPUCFSQuotaPeriod"):
        return DEFAULT_PERIOD
    return given.config.cpu_cfs_quota_period // timedelta(microseconds=1)


def _allocatable_memory(given: Settings, machine: MachineInfo) -> int:
    """Return what is left of the memory after both reservations (upstream: GetNodeAllocatableAbsolute)."""
    system, kubelet = effective_reservations(given.config)
    left = machine_capacity(machine)[MEMORY] - system.get(MEMORY, ZERO) - kubelet.get(MEMORY, ZERO)
    return max(left, ZERO).value()

"""Decides which values the cgroups of pods and of the QoS classes get (ResourceConfigForPod, UpdateCgroups). Pure."""

from collections.abc import Iterable

from msgspec import Struct

from klet.api.pod import Pod
from klet.host.cgroups.resources import (
    DEFAULT_PERIOD,
    HUGEPAGES_UNBOUNDED,
    MIN_SHARES,
    UNLIMITED,
    CgroupResources,
    quota_from_millicpu,
    shares_from_millicpu,
)
from klet.model.allocation import PodAllocation
from klet.model.pod_resources import (
    CPU,
    MEMORY,
    compute_pod_limits,
    compute_pod_requests,
    hugepage_amounts,
    is_limited,
    memory_bytes,
    millicpu,
)
from klet.model.qos import QosClass, qos_of


class PodCgroupRules(Struct, frozen=True, kw_only=True):
    """How the node limits a pod as a whole."""

    cpu_quota: bool = True
    """Whether CPU limits are enforced at all."""
    cpu_period: int = DEFAULT_PERIOD
    """Microseconds."""
    memory_qos: bool = False
    """Whether requested memory is kept from being reclaimed; cgroup version 2 only."""
    pids_limit: int | None = None


class QosRules(Struct, frozen=True, kw_only=True):
    """How the node shares itself out between the QoS classes."""

    hugepage_sizes: tuple[int, ...] = ()
    memory_qos: bool = False
    reserved_percent: int | None = None
    """How much of the memory that higher classes requested is kept from lower ones; None: nothing is limited."""
    allocatable_memory: int = 0
    page_size: int = 4096
    """In bytes: the kernel keeps limits of memory in whole pages."""


class Demand(Struct, frozen=True, kw_only=True):
    """What a pod adds to the demand of its class."""

    qos: QosClass
    millicpu: int
    memory: int


class QosValues(Struct, frozen=True, kw_only=True):
    """The values of the pods' root, which is where guaranteed pods live, and of the two classes below it."""

    root: CgroupResources
    burstable: CgroupResources
    best_effort: CgroupResources


def compute_pod_values(
    pod: Pod, allocation: PodAllocation, rules: PodCgroupRules, *, lifts_quota: bool = False
) -> CgroupResources:
    """Return what is written to a pod's own cgroup."""
    requests, limits = compute_pod_requests(allocation), compute_pod_limits(allocation)
    quota = quota_from_millicpu(millicpu(limits), rules.cpu_period)
    if lifts_quota or not rules.cpu_quota:
        quota = UNLIMITED
    qos = qos_of(pod)
    is_guaranteed, is_best_effort = qos is QosClass.GUARANTEED, qos is QosClass.BEST_EFFORT
    limits_cpu = is_guaranteed or (not is_best_effort and is_limited(allocation, CPU))
    limits_memory = is_guaranteed or (not is_best_effort and is_limited(allocation, MEMORY))
    return CgroupResources(
        cpu_shares=MIN_SHARES if is_best_effort else shares_from_millicpu(millicpu(requests)),
        cpu_quota=quota if limits_cpu else None,
        cpu_period=rules.cpu_period if limits_cpu else None,
        memory_limit=memory_bytes(limits) if limits_memory else None,
        memory_min=_if_any(memory_bytes(requests)) if rules.memory_qos else None,
        pids_limit=rules.pids_limit,
        hugepages=hugepage_amounts(requests),
    )


def compute_demand(pod: Pod, allocation: PodAllocation) -> Demand:
    requests = compute_pod_requests(allocation)
    return Demand(qos=qos_of(pod), millicpu=millicpu(requests), memory=memory_bytes(requests))


def compute_qos_values(demands: Iterable[Demand], rules: QosRules) -> QosValues:
    """Return what is written to the cgroups of the classes while pods with these demands are active."""
    cpu = guaranteed = burstable = 0
    for demand in demands:
        match demand.qos:
            case QosClass.GUARANTEED:
                guaranteed += demand.memory
            case QosClass.BURSTABLE:
                burstable += demand.memory
                cpu += demand.millicpu
            case QosClass.BEST_EFFORT:
                pass
    burstable_limit, best_effort_limit = _memory_limits(guaranteed, burstable, rules)
    pages = dict.fromkeys(rules.hugepage_sizes, HUGEPAGES_UNBOUNDED)
    return QosValues(
        root=CgroupResources(memory_min=_if_any(guaranteed + burstable) if rules.memory_qos else None, hugepages=pages),
        burstable=CgroupResources(
            cpu_shares=shares_from_millicpu(cpu),
            memory_limit=burstable_limit,
            memory_min=_if_any(burstable) if rules.memory_qos else None,
            hugepages=pages,
        ),
        best_effort=CgroupResources(cpu_shares=MIN_SHARES, memory_limit=best_effort_limit, hugepages=pages),
    )


def _memory_limits(guaranteed: int, burstable: int, rules: QosRules) -> tuple[int | None, int | None]:
    percent = rules.reserved_percent
    if percent is None or not rules.allocatable_memory:
        return None, None
    burstable_limit = rules.allocatable_memory - guaranteed * percent // 100
    return burstable_limit, burstable_limit - burstable * percent // 100


def _if_any(amount: int) -> int | None:
    return amount if amount > 0 else None

"""What the runtime is to enforce on containers and sandboxes: CPU, memory, swap, huge pages (calculateLinuxResources).

Pure: the node's part comes in as rules.
"""

from msgspec import Struct

from klet.api.container import ResourceRequirements
from klet.api.pod import Pod
from klet.api.quantity import ZERO, Quantity
from klet.host.cgroups.resources import (
    DEFAULT_PERIOD,
    UNLIMITED,
    hugepage_unit,
    quota_from_millicpu,
    shares_from_millicpu,
)
from klet.host.cpulist import format_cpu_list
from klet.model.allocation import NO_PINS, Pins, PodAllocation
from klet.model.pod_resources import (
    CPU,
    MEMORY,
    compute_pod_limits,
    compute_pod_requests,
    hugepage_amounts,
    memory_bytes,
)
from klet.model.pods import is_critical
from klet.model.qos import QosClass, oom_score, qos_of
from klet.wire import cri_v1_pb2 as cri


class SwapRules(Struct, frozen=True, kw_only=True):
    """How containers may swap; only for a node whose kernel can account for it."""

    is_limited: bool = False
    """Whether burstable containers may swap in proportion to their requests, instead of none at all."""
    capacity: int = 0


class MemoryQosRules(Struct, frozen=True, kw_only=True):
    """How requested memory is protected, and containers are slowed down before their limit."""

    throttling_factor: float
    allocatable: int
    page_size: int = 4096


class ResourceRules(Struct, frozen=True, kw_only=True):
    """The node's part in what a container gets."""

    is_unified: bool = False
    """Whether the machine has cgroup version 2."""
    cpu_quota: bool = True
    cpu_period: int = DEFAULT_PERIOD
    """Microseconds."""
    memory_capacity: int = 0
    hugepage_sizes: tuple[int, ...] = ()
    kills_whole_container: bool = False
    """Whether running out of memory kills all processes of a container, not one; cgroup version 2 only."""
    swap: SwapRules | None = None
    memory_qos: MemoryQosRules | None = None


def build_container_resources(
    pod: Pod,
    container: str,
    allocation: PodAllocation,
    rules: ResourceRules,
    *,
    pins: Pins = NO_PINS,
) -> cri.LinuxContainerResources:
    """Return the resources of one container."""
    given = allocation.of(container)
    resources = _build(
        cpu_request=given.requests.get(CPU),
        cpu_limit=_limit(given, allocation, CPU),
        memory_limit=_limit(given, allocation, MEMORY),
        rules=rules,
        lifts_quota=pins.lifts_quota,
    )
    if rules.memory_capacity:
        resources.oom_score_adj = oom_score(
            pod, container, allocation, qos_of(pod), memory_capacity=rules.memory_capacity
        )
    resources.hugepage_limits.extend(_hugepages(given, allocation, rules))
    resources.cpuset_cpus = format_cpu_list(pins.cpus)
    # As a list of single numbers, as upstream writes it.
    resources.cpuset_mems = ",".join(map(str, sorted(pins.memory_nodes)))
    if rules.swap is not None:
        _set_swap(resources, pod, given, rules, rules.swap)
    if rules.is_unified and rules.memory_qos is not None:
        resources.unified.update(_memory_qos(given, rules.memory_qos))
    return resources


def build_sandbox_resources(
    allocation: PodAllocation, rules: ResourceRules, *, lifts_quota: bool = False
) -> cri.LinuxContainerResources:
    """Return the resources of the pod as a whole, without its overhead."""
    requests = compute_pod_requests(allocation, with_overhead=False)
    limits = compute_pod_limits(allocation, with_overhead=False)
    return _build(
        cpu_request=requests.get(CPU),
        cpu_limit=limits.get(CPU, ZERO),
        memory_limit=limits.get(MEMORY, ZERO),
        rules=rules,
        lifts_quota=lifts_quota,
    )


def build_overhead(allocation: PodAllocation, rules: ResourceRules) -> cri.LinuxContainerResources:
    """Return what the sandbox itself uses, by the pod's runtime class; empty without one."""
    overhead = allocation.overhead
    if not overhead:
        return cri.LinuxContainerResources()
    cpu = overhead.get(CPU, ZERO)
    return _build(cpu_request=cpu, cpu_limit=cpu, memory_limit=overhead.get(MEMORY, ZERO), rules=rules)


def _build(
    *,
    cpu_request: Quantity | None,
    cpu_limit: Quantity,
    memory_limit: Quantity,
    rules: ResourceRules,
    lifts_quota: bool = False,
) -> cri.LinuxContainerResources:
    # A limit stands in for a request that is missing, not for one of zero.
    wanted = cpu_limit if cpu_request is None else cpu_request
    resources = cri.LinuxContainerResources(
        cpu_shares=shares_from_millicpu(wanted.milli_value()), memory_limit_in_bytes=memory_limit.value()
    )
    if rules.cpu_quota:
        resources.cpu_period = rules.cpu_period
        quota = quota_from_millicpu(cpu_limit.milli_value(), rules.cpu_period)
        resources.cpu_quota = UNLIMITED if lifts_quota else quota
    if rules.is_unified and rules.kills_whole_container:
        resources.unified["memory.oom.group"] = "1"
    return resources


def _limit(given: ResourceRequirements, allocation: PodAllocation, resource: str) -> Quantity:
    """Return the container's limit; without one, that of the whole pod."""
    own = given.limits.get(resource, ZERO)
    return own or allocation.pod_limits.get(resource, own)


def _hugepages(given: ResourceRequirements, allocation: PodAllocation, rules: ResourceRules) -> list[cri.HugepageLimit]:
    """Return one limit for every page size of the machine: 0 for those that are not requested."""
    limits = hugepage_amounts(allocation.pod_limits) | hugepage_amounts(given.limits)
    return [
        cri.HugepageLimit(page_size=hugepage_unit(size), limit=limits.get(size, 0)) for size in rules.hugepage_sizes
    ]


def _set_swap(
    resources: cri.LinuxContainerResources,
    pod: Pod,
    given: ResourceRequirements,
    rules: ResourceRules,
    swap: SwapRules,
) -> None:
    if rules.is_unified:
        amount = _swap_share(given, rules, swap) if swap.is_limited and _may_swap(pod, given) else 0
        resources.unified["memory.swap.max"] = str(amount)
    else:
        # Version 1 limits memory and swap together: the same limit as for memory leaves no swap.
        resources.memory_swap_limit_in_bytes = resources.memory_limit_in_bytes


def _may_swap(pod: Pod, given: ResourceRequirements) -> bool:
    request, limit = _memory(given)
    return qos_of(pod) is QosClass.BURSTABLE and not is_critical(pod) and request != limit


def _swap_share(given: ResourceRequirements, rules: ResourceRules, swap: SwapRules) -> int:
    """Return the part of the node's swap that the container's request is of the node's memory."""
    request, _ = _memory(given)
    if rules.memory_capacity <= 0 or request > rules.memory_capacity:
        return 0
    return int(request / rules.memory_capacity * swap.capacity)


def _memory_qos(given: ResourceRequirements, rules: MemoryQosRules) -> dict[str, str]:
    request, limit = _memory(given)
    values = {"memory.min": str(request)} if request else {}
    top = limit or rules.allocatable
    if request != limit and top > 0:
        high = int((request + (top - request) * rules.throttling_factor) // rules.page_size) * rules.page_size
        if high > request:
            values["memory.high"] = str(high)
    return values


def _memory(given: ResourceRequirements) -> tuple[int, int]:
    """Request and limit in bytes."""
    return memory_bytes(given.requests), memory_bytes(given.limits)

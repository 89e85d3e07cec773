"""What a pod has been given as a whole: requests and limits with init containers, sidecars, pod level and overhead.

Upstream's `PodRequests`, `PodLimits` and `GetResourceRequest`.
"""

from collections.abc import Iterator, Mapping

from klet.api.pod_resources import HUGEPAGES_PREFIX, aggregate, is_pod_level_resource
from klet.api.quantity import ZERO, Quantity
from klet.model.allocation import PodAllocation

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"
PID = "pid"
EPHEMERAL_STORAGE = "ephemeral-storage"


def sum_container_requests(allocation: PodAllocation) -> dict[str, Quantity]:
    """Return the most that the containers request at one time, without pod level and overhead."""
    return aggregate(
        (each.given.requests for each in allocation.containers),
        ((each.given.requests, each.is_sidecar) for each in allocation.init_containers),
    )


def sum_container_limits(allocation: PodAllocation) -> dict[str, Quantity]:
    return aggregate(
        (each.given.limits for each in allocation.containers),
        ((each.given.limits, each.is_sidecar) for each in allocation.init_containers),
    )


def compute_pod_requests(allocation: PodAllocation, *, with_overhead: bool = True) -> dict[str, Quantity]:
    """Return the most that the containers request at one time; a pod-level request replaces their sum."""
    requests = sum_container_requests(allocation)
    requests.update(_pod_level(allocation.pod_requests))
    if with_overhead:
        for name, amount in allocation.overhead.items():
            requests[name] = requests.get(name, ZERO) + amount
    return requests


def compute_pod_limits(allocation: PodAllocation, *, with_overhead: bool = True) -> dict[str, Quantity]:
    """Return the limits of all containers. Overhead raises a limit and never makes one."""
    limits = sum_container_limits(allocation)
    limits.update(_pod_level(allocation.pod_limits))
    if with_overhead:
        for name, amount in allocation.overhead.items():
            if limits.get(name):
                limits[name] += amount
    return limits


def has_pod_level_resources(allocation: PodAllocation) -> bool:
    """Return whether the pod itself has a request or limit that may stand there."""
    return bool(_pod_level(allocation.pod_requests) or _pod_level(allocation.pod_limits))


def is_limited(allocation: PodAllocation, resource: str) -> bool:
    """Return whether every container has a limit of a resource, or the pod as a whole has one.

    A plain init container counts together with the sidecars that run beside it, so their limit covers it.
    """
    return bool(allocation.pod_limits.get(resource)) or all(_limits_at_each_time(allocation, resource))


def compute_resource_request(allocation: PodAllocation, resource: str) -> int:
    """Return the amount of one resource by which pods are ranked: CPU in thousandths, others in units.

    In a pod with pod-level resources the containers do not count at all, for whatever resource.
    """
    if resource == PODS:
        return 1
    has_own = has_pod_level_resources(allocation)
    requests = allocation.pod_requests if has_own else sum_container_requests(allocation)
    amount = requests.get(resource, ZERO)
    if amount:
        amount += allocation.overhead.get(resource, ZERO)
    return amount.milli_value() if resource == CPU else amount.value()


def hugepage_amounts(resources: Mapping[str, Quantity]) -> dict[int, int]:
    """Return bytes of huge pages by page size in bytes; one size may be written in two ways."""
    amounts: dict[int, int] = {}
    for name, amount in resources.items():
        if name.startswith(HUGEPAGES_PREFIX):
            size = Quantity.parse(name.removeprefix(HUGEPAGES_PREFIX)).value()
            amounts[size] = amounts.get(size, 0) + amount.value()
    return amounts


def millicpu(resources: Mapping[str, Quantity]) -> int:
    return resources.get(CPU, ZERO).milli_value()


def memory_bytes(resources: Mapping[str, Quantity]) -> int:
    return resources.get(MEMORY, ZERO).value()


def _pod_level(resources: Mapping[str, Quantity]) -> dict[str, Quantity]:
    return {name: amount for name, amount in resources.items() if is_pod_level_resource(name)}


def _limits_at_each_time(allocation: PodAllocation, resource: str) -> Iterator[Quantity]:
    for container in allocation.containers:
        yield container.given.limits.get(resource, ZERO)
    sidecars = ZERO
    for container in allocation.init_containers:
        own = container.given.limits.get(resource, ZERO)
        yield sidecars + own
        if container.is_sidecar:
            sidecars += own

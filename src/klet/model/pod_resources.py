"""What a pod asks for as a whole: requests and limits with init containers, sidecars, pod-level resources, overhead.

Upstream's `PodRequests`, `PodLimits` and `GetResourceRequest`.
"""

from collections.abc import Iterator, Mapping

from klet.api.pod import Pod, PodSpec
from klet.api.pod_resources import (
    HUGEPAGES_PREFIX,
    aggregate_container_limits,
    aggregate_container_requests,
    is_pod_level_resource,
    is_sidecar,
)
from klet.api.quantity import ZERO, Quantity

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"
EPHEMERAL_STORAGE = "ephemeral-storage"


def compute_pod_requests(pod: Pod, *, with_overhead: bool = True) -> dict[str, Quantity]:
    """The most that the containers ask for at one time; a pod-level request replaces their sum."""
    requests = aggregate_container_requests(pod.spec)
    if pod.spec.resources is not None:
        requests.update(_pod_level(pod.spec.resources.requests))
    if with_overhead:
        for name, amount in pod.spec.overhead.items():
            requests[name] = requests.get(name, ZERO) + amount
    return requests


def compute_pod_limits(pod: Pod, *, with_overhead: bool = True) -> dict[str, Quantity]:
    """The limits of all containers. Overhead raises a limit and never makes one."""
    limits = aggregate_container_limits(pod.spec)
    if pod.spec.resources is not None:
        limits.update(_pod_level(pod.spec.resources.limits))
    if with_overhead:
        for name, amount in pod.spec.overhead.items():
            if limits.get(name):
                limits[name] += amount
    return limits


def has_pod_level_resources(pod: Pod) -> bool:
    """Whether the pod itself names a request or limit that may stand there."""
    resources = pod.spec.resources
    return resources is not None and bool(_pod_level(resources.requests) or _pod_level(resources.limits))


def is_limited(pod: Pod, resource: str) -> bool:
    """Whether every container has a limit of a resource, or the pod as a whole has one.

    A plain init container counts together with the sidecars that run beside it, so their limit covers it.
    """
    if pod.spec.resources is not None and pod.spec.resources.limits.get(resource):
        return True
    return all(_limits_at_each_time(pod.spec, resource))


def compute_resource_request(pod: Pod, resource: str) -> int:
    """The amount of one resource by which pods are ranked: CPU in thousandths, others in units.

    In a pod with pod-level resources the containers do not count at all, for whatever resource.
    """
    if resource == PODS:
        return 1
    if has_pod_level_resources(pod):
        amount = pod.spec.resources.requests.get(resource, ZERO) if pod.spec.resources is not None else ZERO
    else:
        amount = aggregate_container_requests(pod.spec).get(resource, ZERO)
    if amount:
        amount += pod.spec.overhead.get(resource, ZERO)
    return amount.milli_value() if resource == CPU else amount.value()


def hugepage_amounts(resources: Mapping[str, Quantity]) -> dict[int, int]:
    """Bytes of huge pages by page size in bytes; one size may be written in two ways."""
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


def _limits_at_each_time(spec: PodSpec, resource: str) -> Iterator[Quantity]:
    for container in spec.containers:
        yield container.resources.limits.get(resource, ZERO)
    sidecars = ZERO
    for container in spec.init_containers:
        own = container.resources.limits.get(resource, ZERO)
        yield sidecars + own
        if is_sidecar(container):
            sidecars += own

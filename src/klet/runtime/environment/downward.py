"""The downward API: a pod's own fields and the resources of its containers as text."""

from collections.abc import Mapping

from klet.api.container import ResourceFieldSelector, ResourceRequirements
from klet.api.pod import Pod
from klet.api.pod_resources import HUGEPAGES_PREFIX
from klet.api.quantity import ZERO, Quantity
from klet.model.allocation import PodAllocation
from klet.model.downward import format_map, in_units, map_entry, split_subscript
from klet.model.pod_resources import CPU, EPHEMERAL_STORAGE, MEMORY
from klet.runtime.errors import CREATE_CONFIG_ERROR, StartError

_MAPS = frozenset({"metadata.labels", "metadata.annotations"})
_KNOWN_WITHOUT_VALUE = frozenset({"spec.restartPolicy", "spec.schedulerName", "status.phase"})

Limits = Mapping[str, Quantity]


def field_value(pod: Pod, path: str, *, pod_ips: tuple[str, ...], node_ips: tuple[str, ...]) -> str:
    """Return the text of one of the pod's own fields. The addresses are in the order of the pod's status."""
    meta = pod.metadata
    if (split := split_subscript(path)) is not None:
        return _map_entry(pod, path, *split)
    if pod.spec.host_network:
        pod_ips = pod_ips or node_ips  # its sandbox has none of its own
    simple = {
        "metadata.name": meta.name,
        "metadata.namespace": meta.namespace,
        "metadata.uid": meta.uid,
        "spec.nodeName": pod.spec.node_name,
        "spec.host": pod.spec.node_name,
        "spec.serviceAccountName": pod.spec.service_account_name,
        "status.hostIP": next(iter(node_ips), ""),
        "status.hostIPs": ",".join(node_ips),
        "status.podIP": next(iter(pod_ips), ""),
        "status.podIPs": ",".join(pod_ips),
    }
    if path in simple:
        return simple[path]
    if path in _MAPS:
        values = meta.labels if path == "metadata.labels" else meta.annotations
        return format_map(values)
    if path in _KNOWN_WITHOUT_VALUE:
        raise _error(f"unsupported fieldPath: {path}")
    raise _error(f"field label not supported: {path}")


def resource_value(
    allocation: PodAllocation, container: str, wanted: ResourceFieldSelector, *, allocatable: Limits | None
) -> str:
    """Return the request or limit of a container in multiples of a divisor, rounded up.

    Where a container has no limit it could use as much as its pod, or the node, lets it.
    """
    if allocatable is None:
        raise _error("failed to find node object, expected a node")
    given, is_defaulted = _target(allocation, container, wanted.container_name)
    kind, _, resource = wanted.resource.partition(".")
    is_known = resource in {CPU, MEMORY, EPHEMERAL_STORAGE} or resource.startswith(HUGEPAGES_PREFIX)
    if kind not in {"limits", "requests"} or not is_known:
        raise _error(f"unsupported container resource : {wanted.resource}")
    amounts = given.limits if kind == "limits" else given.requests
    amount = amounts.get(resource, ZERO)
    if not amount and kind == "limits" and is_defaulted and not resource.startswith(HUGEPAGES_PREFIX):
        amount = _most_possible(allocation, resource, allocatable)
    return in_units(amount, wanted.divisor, resource)


def _map_entry(pod: Pod, path: str, front: str, key: str) -> str:
    entry = map_entry(pod.metadata, front, key)
    if entry is None:
        raise _error(f"field label does not support subscript: {path}")
    if entry.problems:
        raise _error(f"invalid key subscript in {path}: {';'.join(entry.problems)}")
    return entry.text


def _target(allocation: PodAllocation, container: str, name: str) -> tuple[ResourceRequirements, bool]:
    """Return what the named container has, and whether missing limits are filled in: not for init containers."""
    if not name:
        return allocation.of(container), True
    for found in allocation.containers:
        if found.name == name:
            return found.given, True
    for found in allocation.init_containers:
        if found.name == name:
            return found.given, False
    raise _error(f"container {name} not found")


def _most_possible(allocation: PodAllocation, resource: str, allocatable: Limits) -> Quantity:
    whole = allocation.pod_limits
    if resource in {CPU, MEMORY} and whole.get(resource):
        return whole[resource]
    return allocatable.get(resource, ZERO)


def _error(message: str) -> StartError:
    return StartError(CREATE_CONFIG_ERROR, message)

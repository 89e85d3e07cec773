"""The pod's own fields and resources as the text of files (downwardAPI volumes). Pure.

Volumes know fewer fields than the environment does: none that change by themselves.
"""

from collections.abc import Mapping

from klet.api.container import ResourceFieldSelector
from klet.api.pod import Pod
from klet.api.pod_resources import HUGEPAGES_PREFIX
from klet.api.quantity import ZERO, Quantity
from klet.model.allocation import PodAllocation
from klet.model.downward import format_map, in_units, map_entry, split_subscript
from klet.model.pod_resources import CPU, EPHEMERAL_STORAGE, MEMORY
from klet.volumes.errors import VolumeSetupError

_FROM_NODE = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE})
"""A container without a limit of these could use what the node has."""


def field_text(pod: Pod, path: str) -> str:
    meta = pod.metadata
    if (split := split_subscript(path)) is not None:
        return _entry(pod, path, *split)
    match path:
        case "metadata.name":
            return meta.name
        case "metadata.namespace":
            return meta.namespace
        case "metadata.uid":
            return meta.uid
        case "metadata.labels":
            return format_map(meta.labels)
        case "metadata.annotations":
            return format_map(meta.annotations)
        case _:
            raise VolumeSetupError(f"unsupported fieldPath: {path}")


def resource_text(
    allocation: PodAllocation, wanted: ResourceFieldSelector, *, allocatable: Mapping[str, Quantity] | None
) -> str:
    """Return a request or limit of a container in multiples of a divisor, rounded up."""
    if allocatable is None:
        raise VolumeSetupError("failed retrieving node: it is not known yet what the node has for pods")
    every = (*allocation.containers, *allocation.init_containers)
    container = next((each for each in every if each.name == wanted.container_name), None)
    if container is None:
        raise VolumeSetupError(f"container {wanted.container_name} not found")
    kind, _, resource = wanted.resource.partition(".")
    is_known = resource in _FROM_NODE or resource.startswith(HUGEPAGES_PREFIX)
    if kind not in {"limits", "requests"} or not is_known:
        raise VolumeSetupError(f"unsupported container resource : {wanted.resource}")
    amounts = container.given.limits if kind == "limits" else container.given.requests
    amount = amounts.get(resource, ZERO)
    if not amount and kind == "limits" and resource in _FROM_NODE:
        amount = allocatable.get(resource, ZERO)
    return in_units(amount, wanted.divisor, resource)


def _entry(pod: Pod, path: str, front: str, key: str) -> str:
    entry = map_entry(pod.metadata, front, key)
    if entry is None:
        raise VolumeSetupError(f'fieldPath "{path}" does not support subscript')
    if entry.problems:
        raise VolumeSetupError(f"invalid key subscript in {path}: {';'.join(entry.problems)}")
    return entry.text

"""What containers and pods ask of NUMA nodes: memory and huge pages, in bytes (getRequestedResources). Pure."""

from collections.abc import Mapping
from typing import Final

from klet.api.container import ResourceRequirements
from klet.api.pod import Pod
from klet.api.pod_resources import HUGEPAGES_PREFIX, asks_for_pod_level_resources
from klet.api.quantity import Quantity
from klet.errors import KletError
from klet.model.allocation import PodAllocation
from klet.model.pod_resources import MEMORY
from klet.model.qos import QosClass, qos_of

Requests = Mapping[str, int]

_MOST: Final = (1 << 63) - 1


class OddRequest(KletError):
    """A request that is not a whole number of bytes, or more than any machine has."""


def has_own_memory(pod: Pod, *, pod_level: bool) -> bool:
    """Return whether the containers of a pod get memory of their own. `pod_level` is the gate PodLevelResources."""
    return qos_of(pod) is QosClass.GUARANTEED and not (pod_level and asks_for_pod_level_resources(pod.spec))


def container_requests(given: ResourceRequirements) -> Requests:
    """Return the bytes that a container requests of each kind of memory; raises OddRequest."""
    wanted: dict[str, int] = {}
    for name, amount in sorted(given.requests.items()):
        if name == MEMORY or name.startswith(HUGEPAGES_PREFIX):
            size = amount.value()
            if amount != Quantity.of(size) or size > _MOST:
                raise OddRequest("[memorymanager] failed to represent quantity as int64")
            wanted[name] = size
    return wanted


def pod_requests(allocation: PodAllocation) -> Requests:
    """Return the most that the containers of a pod request at one time, of what its regular containers request."""
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in allocation.init_containers:
        for name, size in container_requests(container.given).items():
            if container.is_sidecar:
                sidecars[name] = sidecars.get(name, 0) + size
            else:
                peak[name] = max(peak.get(name, 0), sidecars.get(name, 0) + size)
    regular: dict[str, int] = {}
    for container in allocation.containers:
        for name, size in container_requests(container.given).items():
            regular[name] = regular.get(name, 0) + size
    return {name: max(size + sidecars.get(name, 0), peak.get(name, 0)) for name, size in sorted(regular.items())}

"""What scratch space is made of: the options of memory and huge page mounts. Pure."""

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

from klet.api.pod import Pod
from klet.api.pod_resources import HUGEPAGES_PREFIX
from klet.api.quantity import ZERO, Quantity, QuantityError
from klet.model.allocation import PodAllocation
from klet.model.pod_resources import MEMORY, compute_pod_limits, is_limited, memory_bytes
from klet.model.qos import QosClass, qos_of
from klet.model.roles import NodeResources
from klet.volumes.errors import VolumeSetupError

DISK: Final = ""
IN_MEMORY: Final = "Memory"
HUGE_PAGES: Final = "HugePages"
_SIZED: Final = f"{HUGE_PAGES}-"


class ScratchRules(Struct, frozen=True, kw_only=True):
    """What scratch space in memory depends on besides its pod."""

    node: NodeResources
    noswap: bool
    """Whether the kernel can keep it from being swapped out."""

    def options(
        self, pod: Pod, allocation: PodAllocation, medium: str, *, size_limit: Quantity | None = None
    ) -> tuple[str, ...]:
        return mount_options(
            pod, allocation, medium, size_limit=size_limit, allocatable=self.node.allocatable(), noswap=self.noswap
        )


def is_huge_pages(medium: str) -> bool:
    return medium == HUGE_PAGES or medium.startswith(_SIZED)


def mount_options(
    pod: Pod,
    allocation: PodAllocation,
    medium: str,
    *,
    size_limit: Quantity | None = None,
    allocatable: Mapping[str, Quantity] | None,
    noswap: bool,
) -> tuple[str, ...]:
    """Return the options of the mount that a medium needs; none for one that needs no mount."""
    if medium == IN_MEMORY:
        size = tmpfs_size(pod, allocation, size_limit=size_limit, allocatable=allocatable)
        return (*((f"size={size}",) if size > 0 else ()), *(("noswap",) if noswap else ()))
    if is_huge_pages(medium):
        return (f"pagesize={page_size(allocation, medium)}",)
    if medium != DISK:
        raise VolumeSetupError(f'unknown storage medium "{medium}"')
    return ()


def tmpfs_size(
    pod: Pod,
    allocation: PodAllocation,
    *,
    size_limit: Quantity | None,
    allocatable: Mapping[str, Quantity] | None,
) -> int:
    """Return bytes: what the node has for pods, the pod may take or the volume may grow to, whichever is least."""
    size = memory_bytes(allocatable or {})
    for limit in (_pod_memory(pod, allocation), size_limit.value() if size_limit is not None else 0):
        if 0 < limit <= size:
            size = limit
    return size


def page_size(allocation: PodAllocation, medium: str) -> Quantity:
    """Return the size of the huge pages that a pod has been given and a medium stands for."""
    wanted = size_in_medium(medium) if medium != HUGE_PAGES else None
    found: Quantity | None = None
    for size in _requested_sizes(allocation):
        if wanted is not None:
            found = size if size == wanted else found
        elif found is not None and size != found:
            raise VolumeSetupError(f"medium: {medium} can't be used if container requests multiple huge page sizes")
        else:
            found = size
    if found is None:
        raise VolumeSetupError(
            f"medium {medium}: hugePages storage requested, but there is no resource request for huge pages"
        )
    return found


def size_in_medium(medium: str) -> Quantity:
    """Return the page size that a medium names."""
    try:
        return Quantity.parse(medium.removeprefix(_SIZED))
    except QuantityError as error:
        raise VolumeSetupError(f"medium {medium}: {error}") from error


def _requested_sizes(allocation: PodAllocation) -> Iterator[Quantity]:
    every = (each.given.requests for each in (*allocation.containers, *allocation.init_containers))
    for requests in (allocation.pod_requests, *every):
        for name in sorted(requests):
            if name.startswith(HUGEPAGES_PREFIX):
                yield Quantity.parse(name.removeprefix(HUGEPAGES_PREFIX))


def _pod_memory(pod: Pod, allocation: PodAllocation) -> int:
    """Return what the pod's cgroup is limited to; 0 if it is not."""
    qos = qos_of(pod)
    limits_memory = qos is QosClass.GUARANTEED or (qos is QosClass.BURSTABLE and is_limited(allocation, MEMORY))
    return compute_pod_limits(allocation).get(MEMORY, ZERO).value() if limits_memory else 0

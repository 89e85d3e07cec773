"""Whether what a pod requests fits beside what the others have (the scheduler's NodeResourcesFit). Pure.

Amounts are whole numbers by resource, as upstream compares them: CPU in thousandths, all others in units. They are
rounded up pod by pod.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from klet.api.container_status import ContainerStatus
from klet.api.pod import PodStatus
from klet.api.pod_resources import HUGEPAGES_PREFIX
from klet.api.quantity import ZERO, Format, Quantity
from klet.api.validation.resources import is_extended_resource
from klet.model.allocation import ContainerAllocation, PodAllocation
from klet.model.pod_resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, compute_pod_requests, sum_container_requests
from klet.model.reasons import OUT_OF, OutOfResource, Reason, RejectionReason

Amounts: TypeAlias = Mapping[str, int]

_ALWAYS_COUNTED: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)
_ATTACHABLE: Final = "attachable-volumes-"
_NATIVE: Final = "kubernetes.io/"
_RESIZE_PENDING: Final = "PodResizePending"
_INFEASIBLE: Final = "Infeasible"
_REASONS: Final[Mapping[str, Reason]] = MappingProxyType(
    {
        PODS: Reason.OUT_OF_PODS,
        CPU: Reason.OUT_OF_CPU,
        MEMORY: Reason.OUT_OF_MEMORY,
        EPHEMERAL_STORAGE: Reason.OUT_OF_EPHEMERAL_STORAGE,
    }
)


class ResourceDemand(Struct, frozen=True, kw_only=True):
    """What a pod requests of a resource, beside what others have and the node has in all.

    If the node has too little left, that is upstream's InsufficientResourceError.
    """

    resource: str
    requested: int
    used: int
    capacity: int

    @property
    def reason(self) -> RejectionReason:
        return _REASONS.get(self.resource) or OutOfResource(f"{OUT_OF}{self.resource}")

    @property
    def message(self) -> str:
        return (
            f"Node didn't have enough resource: {self.resource}, requested: {self.requested}, used: {self.used}, "
            f"capacity: {self.capacity}"
        )

    @property
    def missing(self) -> int:
        return self.requested - (self.capacity - self.used)

    @property
    def is_short(self) -> bool:
        return self.missing > 0

    @property
    def why(self) -> str:
        """The same for people."""
        if self.resource == PODS:
            return f"the node has room for {self.capacity} pods, and {self.used} are there"
        wanted, taken, whole = (
            show_amount(self.resource, amount) for amount in (self.requested, self.used, self.capacity)
        )
        return (
            f"the pod requests {wanted} of {self.resource}; the node has {whole} for pods, of which others have {taken}"
        )


def show_amount(resource: str, amount: int) -> str:
    """Return an amount as manifests write it."""
    if resource == CPU:
        return str(Quantity.of_milli(amount))
    in_bytes = resource in {MEMORY, EPHEMERAL_STORAGE} or resource.startswith(HUGEPAGES_PREFIX)
    return str(Quantity.of(amount, Format.BINARY_SI)) if in_bytes else str(amount)


def count_amounts(resources: Mapping[str, Quantity]) -> dict[str, int]:
    """Return the amounts of the resources that are compared; others, such as `storage`, are not."""
    counted: dict[str, int] = {}
    for name, amount in resources.items():
        if name == CPU:
            counted[name] = amount.milli_value()
        elif name in _ALWAYS_COUNTED or is_scalar(name):
            counted[name] = amount.value()
    return counted


@lru_cache(maxsize=1024)
def is_scalar(resource: str) -> bool:
    """Return whether a resource is counted in whole units: huge pages, devices, attachable volumes."""
    return resource.startswith((HUGEPAGES_PREFIX, _ATTACHABLE)) or _NATIVE in resource or _is_extended(resource)


def compute_requested(allocation: PodAllocation, allocatable: Mapping[str, Quantity]) -> dict[str, int]:
    """Return what a new pod needs.

    Extended resources that the node does not know are left out: those of the cluster, and those that DRA gives.
    """
    unknown = {name for name in sum_container_requests(allocation) if _is_extended(name) and name not in allocatable}
    return count_amounts(compute_pod_requests(_without(allocation, unknown) if unknown else allocation))


def compute_used(allocation: PodAllocation, status: PodStatus) -> dict[str, int]:
    """Return what an admitted pod takes; while it is resized, the most of what it had and what it gets."""
    reported = {
        each.name: each
        for each in (*status.container_statuses, *status.init_container_statuses)
        if _has_resources(each)
    }
    if not reported:
        return count_amounts(compute_pod_requests(allocation))
    is_infeasible = is_resize_infeasible(status)
    effective = replace(
        allocation,
        containers=tuple(
            _effective(each, reported.get(each.name), is_infeasible=is_infeasible) for each in allocation.containers
        ),
        init_containers=tuple(
            _effective(each, reported.get(each.name), is_infeasible=is_infeasible) if each.is_sidecar else each
            for each in allocation.init_containers
        ),
    )
    return count_amounts(compute_pod_requests(effective))


def is_resize_infeasible(status: PodStatus) -> bool:
    """Return whether a resize that was asked for will never happen on this node."""
    pending = next((each for each in status.conditions if each.type == _RESIZE_PENDING), None)
    return pending is not None and pending.reason == _INFEASIBLE


def compare_resources(
    requested: Amounts, used: Amounts, *, pods: int, allocatable: Mapping[str, Quantity]
) -> tuple[ResourceDemand, ...]:
    """Return what the pod demands, in upstream's order; of scalar resources by their names.

    A pod that requests nothing of a resource does not demand it, even where the node has promised more than it has.
    """
    most = allocatable.get(PODS, ZERO).value()
    place = ResourceDemand(resource=PODS, requested=1, used=pods, capacity=most)
    wanted = {name: amount for name, amount in requested.items() if amount > 0}
    if not wanted:
        return (place,)
    has = count_amounts(allocatable)
    return (
        place,
        *(
            ResourceDemand(resource=name, requested=wanted[name], used=used.get(name, 0), capacity=has.get(name, 0))
            for name in _in_order(wanted)
        ),
    )


def _in_order(names: Mapping[str, int]) -> Sequence[str]:
    scalars = sorted(name for name in names if name not in _ALWAYS_COUNTED)
    return (*(name for name in _ALWAYS_COUNTED if name in names), *scalars)


@lru_cache(maxsize=1024)
def _is_extended(resource: str) -> bool:
    return is_extended_resource(resource)


def _without(allocation: PodAllocation, names: set[str]) -> PodAllocation:
    def rest(container: ContainerAllocation) -> ContainerAllocation:
        kept = {name: amount for name, amount in container.given.requests.items() if name not in names}
        return replace(container, given=replace(container.given, requests=kept))

    return replace(
        allocation,
        containers=tuple(map(rest, allocation.containers)),
        init_containers=tuple(map(rest, allocation.init_containers)),
    )


def _effective(
    container: ContainerAllocation, status: ContainerStatus | None, *, is_infeasible: bool
) -> ContainerAllocation:
    if status is None or status.resources is None:
        return container
    parts = [status.resources.requests, status.allocated_resources]
    if not is_infeasible:
        parts.append(container.given.requests)
    most: dict[str, Quantity] = {}
    for part in parts:
        for name, amount in part.items():
            if name not in most or most[name] < amount:
                most[name] = amount
    return replace(container, given=replace(container.given, requests=most))


def _has_resources(status: ContainerStatus) -> bool:
    return status.resources is not None

"""Decides which resources a pod is admitted with, and finds what its spec asks for besides. Pure.

The API server may change CPU and memory of a pod that runs (in-place resize). klet does not resize yet: a pod keeps
what it was admitted with. A later run of the agent finds that in the status that this one has reported.
"""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from klet.api.container_status import ContainerStatus
from klet.api.pod import Pod
from klet.api.quantity import Quantity
from klet.model.allocation import ContainerAllocation, PodAllocation, desired_allocation
from klet.model.pods import is_static

_RESIZABLE: Final = frozenset({"cpu", "memory"})
_UNCHANGED: Final = 1
"""The generation of a pod whose spec never changed."""


def compute_admitted(pod: Pod) -> PodAllocation:
    """Return what a new pod is given: what it asks for, unless a previous run gave it something else."""
    desired = desired_allocation(pod)
    # A static pod is another pod when its manifest changes. Limits are reported as the kernel has them, which may be
    # rounded: as long as the spec is the first, it is exact.
    if is_static(pod) or pod.metadata.generation <= _UNCHANGED:
        return desired
    statuses = {each.name: each for each in (*pod.status.init_container_statuses, *pod.status.container_statuses)}
    return replace(
        desired,
        containers=tuple(_as_reported(each, statuses.get(each.name)) for each in desired.containers),
        init_containers=tuple(
            # A plain init container is never resized.
            _as_reported(each, statuses.get(each.name)) if each.is_sidecar else each
            for each in desired.init_containers
        ),
    )


def find_resized(pod: Pod, admitted: PodAllocation) -> tuple[str, ...]:
    """Return the names of the containers for which the spec wants something else than was admitted."""
    desired = desired_allocation(pod)
    given = {each.name: each.given for each in (*admitted.containers, *admitted.init_containers)}
    every = (*desired.containers, *desired.init_containers)
    return tuple(each.name for each in every if given.get(each.name, each.given) != each.given)


def _as_reported(desired: ContainerAllocation, status: ContainerStatus | None) -> ContainerAllocation:
    if status is None or status.resources is None:
        return desired
    wanted = desired.given
    given = replace(
        wanted,
        # Another kubelet may not have reported what it allocated, only what it runs with.
        requests=_amounts(wanted.requests, status.allocated_resources or status.resources.requests),
        limits=_amounts(wanted.limits, status.resources.limits),
    )
    return replace(desired, given=given)


def _amounts(wanted: Mapping[str, Quantity], reported: Mapping[str, Quantity]) -> Mapping[str, Quantity]:
    """Return what is wanted, with the reported amounts of what can change; what was not reported was not admitted."""
    return {
        name: reported[name] if name in _RESIZABLE else amount
        for name, amount in wanted.items()
        if name not in _RESIZABLE or name in reported
    }

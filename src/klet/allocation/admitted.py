"""The resources that a pod was admitted with (upstream's UpdatePodFromAllocation). Pure.

The API server may change CPU and memory of a pod that runs (in-place resize). klet does not resize yet: everything
below the sync loop, statuses too, works with what was admitted. A later run of the agent finds that in the status that
this one has reported.
"""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from klet.api.container import Container, ResourceRequirements
from klet.api.container_status import ContainerStatus
from klet.api.pod import Pod
from klet.api.quantity import Quantity
from klet.model.pods import is_static

_RESIZABLE: Final = frozenset({"cpu", "memory"})
_ALWAYS: Final = "Always"
_UNCHANGED: Final = 1
"""The generation of a pod whose spec never changed."""


def keep_admitted(pod: Pod, known: Pod | None) -> Pod:
    """Return a pod as its source has it now, but with the resources it was admitted with.

    `known` is what this returned for the pod before, if it was seen before.
    """
    if is_static(pod):
        return pod  # its manifest is changed as a whole: that is another pod
    admitted = _known_resources(known) if known is not None else _reported_resources(pod)
    spec = replace(
        pod.spec,
        containers=tuple(_with_admitted(each, admitted) for each in pod.spec.containers),
        init_containers=tuple(_with_admitted(each, admitted) for each in pod.spec.init_containers),
    )
    return replace(pod, spec=spec) if find_resized(pod, replace(pod, spec=spec)) else pod


def find_resized(pod: Pod, admitted: Pod) -> tuple[str, ...]:
    """The names of the containers for which something else is wanted than was admitted."""
    pairs = (
        *zip(pod.spec.containers, admitted.spec.containers, strict=True),
        *zip(pod.spec.init_containers, admitted.spec.init_containers, strict=True),
    )
    return tuple(wanted.name for wanted, given in pairs if wanted.resources != given.resources)


def _with_admitted(container: Container, admitted: Mapping[str, ResourceRequirements]) -> Container:
    given = admitted.get(container.name)
    return container if given is None or given == container.resources else replace(container, resources=given)


def _known_resources(known: Pod) -> dict[str, ResourceRequirements]:
    return {each.name: each.resources for each in _resizable(known)}


def _reported_resources(pod: Pod) -> dict[str, ResourceRequirements]:
    if pod.metadata.generation <= _UNCHANGED:
        return {}  # limits are reported as the kernel has them, which may be rounded: the spec is exact
    statuses = {each.name: each for each in (*pod.status.init_container_statuses, *pod.status.container_statuses)}
    return {each.name: _as_reported(each.resources, statuses.get(each.name)) for each in _resizable(pod)}


def _resizable(pod: Pod) -> tuple[Container, ...]:
    """Only these may change: those that run beside one another."""
    sidecars = (each for each in pod.spec.init_containers if each.restart_policy == _ALWAYS)
    return (*pod.spec.containers, *sidecars)


def _as_reported(wanted: ResourceRequirements, status: ContainerStatus | None) -> ResourceRequirements:
    if status is None or status.resources is None:
        return wanted
    return replace(
        wanted,
        # Another kubelet may not have reported what it allocated, only what it runs with.
        requests=_amounts(wanted.requests, status.allocated_resources or status.resources.requests),
        limits=_amounts(wanted.limits, status.resources.limits),
    )


def _amounts(wanted: Mapping[str, Quantity], reported: Mapping[str, Quantity]) -> Mapping[str, Quantity]:
    """What is wanted, with the reported amounts of what can change; what was not reported was not admitted."""
    return {
        name: reported[name] if name in _RESIZABLE else amount
        for name, amount in wanted.items()
        if name not in _RESIZABLE or name in reported
    }

"""Sums over the containers of a pod, and its quality-of-service class (upstream: `resourcehelper`, `qos`)."""

from collections.abc import Iterable, Mapping
from typing import Final

from klet.api.container import Container
from klet.api.pod import Pod, PodSpec
from klet.api.quantity import ZERO, Quantity

Resources = Mapping[str, Quantity]

HUGEPAGES_PREFIX: Final = "hugepages-"
_COMPUTE: Final = ("cpu", "memory")


def is_sidecar(container: Container) -> bool:
    """Return whether an init container keeps running next to the regular ones."""
    return container.restart_policy == "Always"


def is_pod_level_resource(name: str) -> bool:
    return name in _COMPUTE or name.startswith(HUGEPAGES_PREFIX)


def asks_for_pod_level_resources(spec: PodSpec) -> bool:
    """Return whether the pod itself asks for resources that a pod can have."""
    own = spec.resources
    return own is not None and any(is_pod_level_resource(name) for name in (*own.requests, *own.limits))


def aggregate_container_requests(spec: PodSpec) -> dict[str, Quantity]:
    """Return the requests of all containers, without pod-level resources and overhead."""
    return aggregate(
        (each.resources.requests for each in spec.containers),
        ((each.resources.requests, is_sidecar(each)) for each in spec.init_containers),
    )


def aggregate_container_limits(spec: PodSpec) -> dict[str, Quantity]:
    return aggregate(
        (each.resources.limits for each in spec.containers),
        ((each.resources.limits, is_sidecar(each)) for each in spec.init_containers),
    )


def aggregate(regular: Iterable[Resources], init: Iterable[tuple[Resources, bool]]) -> dict[str, Quantity]:
    """Return the most that containers have at one time; of an init container it is said whether it is a sidecar."""
    total: dict[str, Quantity] = {}
    for own in regular:
        _add(total, own)
    sidecars: dict[str, Quantity] = {}
    peak: dict[str, Quantity] = {}
    for own, stays in init:
        if stays:
            _add(total, own)
            _add(sidecars, own)
            _raise_to(peak, sidecars)
        else:
            moment = dict(sidecars)
            _add(moment, own)
            _raise_to(peak, moment)
    _raise_to(total, peak)
    return total


def compute_qos_class(pod: Pod) -> str:
    """Return the class by the spec alone; a class already in the status has precedence where both are known."""
    spec = pod.spec
    if spec.resources is not None:
        limits = _positive((spec.resources.limits,))
        requests = _positive((spec.resources.requests,))
        guaranteed = not spec.resources.limits or all(name in limits for name in _COMPUTE)
    else:
        containers = [container.resources for container in (*spec.containers, *spec.init_containers)]
        limits = _positive(resources.limits for resources in containers)
        requests = _positive(resources.requests for resources in containers)
        guaranteed = all(resources.limits.get(name, ZERO).sign > 0 for resources in containers for name in _COMPUTE)
    if not requests and not limits:
        return "BestEffort"
    return "Guaranteed" if guaranteed and requests == limits else "Burstable"


def _positive(parts: Iterable[Resources]) -> dict[str, Quantity]:
    total: dict[str, Quantity] = {}
    for part in parts:
        for name in _COMPUTE:
            if (amount := part.get(name, ZERO)).sign > 0:
                total[name] = total[name] + amount if name in total else amount
    return total


def _add(total: dict[str, Quantity], part: Resources) -> None:
    for name, amount in part.items():
        total[name] = total[name] + amount if name in total else amount


def _raise_to(total: dict[str, Quantity], other: Resources) -> None:
    for name, amount in other.items():
        if name not in total or total[name] < amount:
            total[name] = amount

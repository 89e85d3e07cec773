"""What makes this node refuse a pod, in upstream's order and words. Pure.

Its first form: what can be said without the node's own object (resources, affinity, taints come with that).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from klet.api.container import ContainerPort
from klet.api.pod import Pod
from klet.api.pod_resources import is_sidecar

_ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - compared with, not bound to
_OS_LABEL: Final = "kubernetes.io/os"
_LINUX: Final = "linux"


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a pod is not taken in."""

    reason: str
    message: str


Check: TypeAlias = Callable[[Pod, Sequence[Pod]], Rejection | None]


def check_os(pod: Pod, others: Sequence[Pod]) -> Rejection | None:  # noqa: ARG001 - checks are called alike
    """A pod for another operating system."""
    if pod.metadata.labels.get(_OS_LABEL, _LINUX) != _LINUX:
        message = f"Failed to admit pod as the `{_OS_LABEL}` label doesn't match node label"
        return Rejection("PodOSSelectorNodeLabelDoesNotMatch", message)
    if pod.spec.os is not None and pod.spec.os.name not in {"", _LINUX}:
        return Rejection("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS")
    return None


def check_host_ports(pod: Pod, others: Sequence[Pod]) -> Rejection | None:
    """A port of the host that another pod has."""
    taken = [port for other in others for port in _host_ports(other)]
    if any(_clash(wanted, port) for wanted in _host_ports(pod) for port in taken):
        message = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
        return Rejection("NodePorts", message)
    return None


CHECKS: Final[tuple[Check, ...]] = (check_os, check_host_ports)


def find_rejection(pod: Pod, others: Sequence[Pod]) -> Rejection | None:
    """Why a pod cannot join the others on this node; the first reason counts."""
    found = (check(pod, others) for check in CHECKS)
    return next((rejection for rejection in found if rejection is not None), None)


def _host_ports(pod: Pod) -> Iterator[ContainerPort]:
    sidecars = (each for each in pod.spec.init_containers if is_sidecar(each))
    for container in (*sidecars, *pod.spec.containers):
        yield from (port for port in container.ports if port.host_port > 0)


def _clash(one: ContainerPort, other: ContainerPort) -> bool:
    addresses = {one.host_ip or _ANY_ADDRESS, other.host_ip or _ANY_ADDRESS}
    same_address = len(addresses) == 1 or _ANY_ADDRESS in addresses
    return same_address and one.host_port == other.host_port and (one.protocol or "TCP") == (other.protocol or "TCP")

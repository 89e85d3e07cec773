"""Reasons to reject a pod, in upstream's order and words. Pure.

Its first form: resources and affinity are not checked yet.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from klet.admission.verdicts import Admit, Reject, Verdict
from klet.api.container import ContainerPort
from klet.api.node import LINUX, OS_LABEL
from klet.api.placement import Taint
from klet.api.pod import Pod
from klet.api.pod_resources import asks_for_pod_level_resources, is_sidecar
from klet.api.sysctls import IPC, NET, SAFE_SYSCTLS, matches_sysctl, namespace_of, normalize_sysctl
from klet.api.tolerations import find_untolerated
from klet.model.pods import is_static
from klet.model.reasons import Reason

_ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - compared with, not bound to
_TCP: Final = "TCP"
NO_EXECUTE: Final = "NoExecute"


def check_sysctls(pod: Pod, *, allowed: Sequence[str]) -> Reject | None:
    """Reject a sysctl that may harm other pods and is not allowed (`allowedUnsafeSysctls`)."""
    wanted = pod.spec.security_context.sysctls if pod.spec.security_context is not None else ()
    for sysctl in (normalize_sysctl(each.name) for each in wanted):
        namespace = namespace_of(sysctl)
        if namespace is None or not any(matches_sysctl(sysctl, pattern) for pattern in (*SAFE_SYSCTLS, *allowed)):
            return Reject(Reason.SYSCTL_FORBIDDEN, f'forbidden sysctl: "{sysctl}" not allowlisted')
        if (namespace == NET and pod.spec.host_network) or (namespace == IPC and pod.spec.host_ipc):
            message = f'forbidden sysctl: "{sysctl}" not allowed with host {namespace} enabled'
            return Reject(Reason.SYSCTL_FORBIDDEN, message)
    return None


def check_os(pod: Pod) -> Reject | None:
    """Reject a pod for another operating system."""
    if pod.metadata.labels.get(OS_LABEL, LINUX) != LINUX:
        message = f"Failed to admit pod as the `{OS_LABEL}` label doesn't match node label"
        return Reject(Reason.POD_OS_SELECTOR_DOES_NOT_MATCH, message)
    if pod.spec.os is not None and pod.spec.os.name not in {"", LINUX}:
        return Reject(Reason.POD_OS_NOT_SUPPORTED, "Failed to admit pod as the OS field doesn't match node OS")
    return None


def check_host_ports(pod: Pod, others: Sequence[Pod]) -> Reject | None:
    """Reject a pod with a host port that another pod has."""
    wanted = tuple(host_ports(pod))
    if not wanted:
        return None  # as most pods: then the other pods need not be compared
    taken = ((port, other) for other in others for port in host_ports(other))
    clash = next(((mine, other) for port, other in taken for mine in wanted if _clash(mine, port)), None)
    if clash is None:
        return None
    port, holder = clash
    held_by = f"{holder.metadata.namespace}/{holder.metadata.name}"
    protocol = port.protocol or _TCP
    return Reject(
        Reason.NODE_PORTS,
        "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
        {
            "why": f"host port {port.host_port}/{protocol} is held by pod {held_by}",
            "hostPort": port.host_port,
            "protocol": protocol,
            "heldBy": held_by,
        },
    )


def check_features(pod: Pod, *, pod_level_resources: bool) -> Reject | None:
    """Reject a pod with resources of its own while the gate PodLevelResources is off."""
    if pod_level_resources or not asks_for_pod_level_resources(pod.spec):
        return None
    return Reject(Reason.POD_LEVEL_RESOURCES_NOT_SUPPORTED, "PodLevelResources feature gate is disabled")


def check_taints(pod: Pod, taints: Sequence[Taint], *, comparisons: bool) -> Reject | None:
    """Reject a pod that does not tolerate a NoExecute taint of the node; a static pod runs all the same.

    `comparisons` is the gate TaintTolerationComparisonOperators.
    """
    if is_static(pod):
        return None
    taint = find_untolerated(taints, pod.spec.tolerations, effects=(NO_EXECUTE,), comparisons=comparisons)
    if taint is None:
        return None
    shown = f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
    return Reject(
        Reason.TAINT_TOLERATION,
        "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate",
        {"why": f"the node has the taint {shown}, which no toleration of the pod covers", "taint": shown},
    )


def find_rejection(
    pod: Pod,
    others: Sequence[Pod],
    *,
    allowed_sysctls: Sequence[str] = (),
    taints: Sequence[Taint] = (),
    comparisons: bool = False,
    pod_level_resources: bool = True,
) -> Reject | None:
    """Return why a pod cannot run beside the others on this node; the first reason counts."""
    return (
        check_sysctls(pod, allowed=allowed_sysctls)
        or check_os(pod)
        or check_host_ports(pod, others)
        or check_taints(pod, taints, comparisons=comparisons)
        or check_features(pod, pod_level_resources=pod_level_resources)
    )


class NodeChecks:
    """The checks as an admission handler."""

    def __init__(
        self,
        *,
        allowed_sysctls: Sequence[str],
        taints: Callable[[], Sequence[Taint]] = tuple,
        comparisons: bool = False,
        pod_level_resources: bool = True,
    ) -> None:
        self._allowed_sysctls = allowed_sysctls
        self._taints = taints
        self._comparisons = comparisons
        self._pod_level_resources = pod_level_resources

    async def admit(self, pod: Pod, others: Sequence[Pod]) -> Verdict:
        rejection = find_rejection(
            pod,
            others,
            allowed_sysctls=self._allowed_sysctls,
            taints=self._taints(),
            comparisons=self._comparisons,
            pod_level_resources=self._pod_level_resources,
        )
        return rejection or Admit()


def host_ports(pod: Pod) -> Iterator[ContainerPort]:
    sidecars = (each for each in pod.spec.init_containers if is_sidecar(each))
    for container in (*sidecars, *pod.spec.containers):
        yield from (port for port in container.ports if port.host_port > 0)


def _clash(one: ContainerPort, other: ContainerPort) -> bool:
    addresses = {one.host_ip or _ANY_ADDRESS, other.host_ip or _ANY_ADDRESS}
    same_address = len(addresses) == 1 or _ANY_ADDRESS in addresses
    return same_address and one.host_port == other.host_port and (one.protocol or _TCP) == (other.protocol or _TCP)

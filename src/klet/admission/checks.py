"""Reasons to reject a pod (predicates), in upstream's order and words. Pure.

Of resources only the number of pods is checked so far; affinity is not.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from klet.admission.preemption import MESSAGE, Need, NoVictims, as_preempted, choose_victims
from klet.api.container import ContainerPort
from klet.api.node import LINUX, OS_LABEL
from klet.api.placement import Taint
from klet.api.pod import Pod
from klet.api.pod_resources import asks_for_pod_level_resources, is_sidecar
from klet.api.sysctls import IPC, NET, SAFE_SYSCTLS, matches_sysctl, namespace_of, normalize_sysctl
from klet.api.tolerations import find_untolerated
from klet.model.app_armor import LOCALHOST, every_container, find_app_armor_profile, needs_app_armor
from klet.model.pod_resources import PODS, compute_resource_request
from klet.model.pods import is_critical, is_static
from klet.model.reasons import Reason
from klet.model.roles import Allocations
from klet.model.verdicts import Admit, Preempt, Reject, Verdict

_ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - compared with, not bound to
_TCP: Final = "TCP"
NO_EXECUTE: Final = "NoExecute"
_STRICT: Final = "Strict"
_AGENT: Final = "the node agent"
_NEW: Final = frozenset({"", "Pending"})
"""Phases of a pod that has not run yet."""


class NodeFacts(Struct, frozen=True, kw_only=True):
    """What a pod is checked against besides the other pods."""

    max_pods: int
    """As many as the node has room for."""
    has_app_armor: bool = False
    """Whether the kernel confines containers with AppArmor profiles."""
    has_groups_policy: bool = False
    """Whether the runtime knows supplementalGroupsPolicy."""
    has_pod_level_resources: bool = True
    """The gate PodLevelResources."""
    taints: tuple[Taint, ...] = ()
    compares_taints: bool = False
    """The gate TaintTolerationComparisonOperators."""
    own_ports: tuple[ContainerPort, ...] = ()
    """Where the agent itself listens, as host ports."""


class Shortage(Struct, frozen=True, kw_only=True):
    """A resource of which the node has too little left for a pod."""

    resource: str
    requested: int
    used: int
    capacity: int

    @property
    def message(self) -> str:
        return (
            f"Node didn't have enough resource: {self.resource}, requested: {self.requested}, used: {self.used}, "
            f"capacity: {self.capacity}"
        )

    @property
    def missing(self) -> int:
        return self.requested - (self.capacity - self.used)


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


def check_groups_policy(pod: Pod, *, is_supported: bool) -> Reject | None:
    """Reject a pod that must not get the groups of its image, where the runtime would add them."""
    context = pod.spec.security_context
    if is_supported or context is None or context.supplemental_groups_policy != _STRICT:
        return None
    message = f"SupplementalGroupsPolicy={_STRICT} is not supported in this node"
    return Reject(Reason.SUPPLEMENTAL_GROUPS_POLICY_NOT_SUPPORTED, message)


def find_shortage(others: Sequence[Pod], *, max_pods: int) -> Shortage | None:
    """Return whether the node has as many pods as it has room for."""
    if len(others) < max_pods:
        return None
    return Shortage(resource=PODS, requested=1, used=len(others), capacity=max_pods)


def check_app_armor(pod: Pod, *, is_enabled: bool) -> Reject | None:
    """Reject a pod with an AppArmor profile that would not be enforced. A pod that has run is not checked again."""
    if pod.status.phase not in _NEW or not needs_app_armor(pod):
        return None
    if not is_enabled:
        return Reject(Reason.APP_ARMOR, "Cannot enforce AppArmor: AppArmor is not enabled on the host")
    for container in every_container(pod):
        profile = find_app_armor_profile(pod, container)
        if profile is not None and profile.type == LOCALHOST and not (profile.localhost_profile or "").strip():
            name = "nil" if profile.localhost_profile is None else f"*{profile.localhost_profile}"
            text = f"&AppArmorProfile{{Type:{LOCALHOST},LocalhostProfile:{name},}}"
            message = f'Cannot enforce AppArmor: invalid empty AppArmor profile name: "{text}"'
            return Reject(Reason.APP_ARMOR, message)
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
    return _reject_port(port, held_by=f"pod {holder.metadata.namespace}/{holder.metadata.name}")


def check_own_ports(pod: Pod, own: Sequence[ContainerPort]) -> Reject | None:
    """Reject a pod whose port mapping would lead the agent's own clients to it. Upstream does not check this."""
    if pod.spec.host_network:
        return None  # nothing is mapped: the pod cannot listen there while the agent does
    port = next((port for port in host_ports(pod) for mine in own if _clash(port, mine)), None)
    if port is None:
        return None
    rejected = _reject_port(port, held_by=_AGENT)
    # Nothing that users can list has the port, so the message has to say who has it.
    return replace(rejected, message=f"{rejected.message}: {rejected.measurements['why']}")


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


def decide_admission(pod: Pod, others: Sequence[Pod], facts: NodeFacts, allocations: Allocations) -> Verdict:
    """Return whether a pod can run beside the others on this node; the first reason against it counts.

    Others make room for a critical pod, unless it would be rejected even then.
    """
    rejected = check_os(pod) or check_groups_policy(pod, is_supported=facts.has_groups_policy)
    if rejected is not None:
        return rejected
    shortage = find_shortage(others, max_pods=facts.max_pods)
    if shortage is not None and not is_critical(pod):
        return Reject(Reason.OUT_OF_PODS, shortage.message)
    rejected = (
        check_host_ports(pod, others)
        or check_own_ports(pod, facts.own_ports)
        or check_taints(pod, facts.taints, comparisons=facts.compares_taints)
        or check_app_armor(pod, is_enabled=facts.has_app_armor)
        or check_features(pod, pod_level_resources=facts.has_pod_level_resources)
    )
    if rejected is not None:
        return rejected
    return Admit() if shortage is None else _make_room(pod, others, shortage, allocations)


class SysctlCheck:
    """The check of kernel parameters, which comes before resources are allocated."""

    def __init__(self, *, allowed: Sequence[str]) -> None:
        self._allowed = tuple(allowed)

    async def admit(self, pod: Pod, others: Sequence[Pod]) -> Verdict:  # noqa: ARG002 - the role's
        return check_sysctls(pod, allowed=self._allowed) or Admit()


class NodeChecks:
    """The checks as an admission handler."""

    def __init__(self, *, facts: Callable[[], NodeFacts], allocations: Allocations) -> None:
        self._facts = facts
        self._allocations = allocations

    async def admit(self, pod: Pod, others: Sequence[Pod]) -> Verdict:
        return decide_admission(pod, others, self._facts(), self._allocations)


def _make_room(pod: Pod, others: Sequence[Pod], shortage: Shortage, allocations: Allocations) -> Verdict:
    """Return which pods have to stop for a critical pod."""

    def requests(other: Pod, resource: str) -> int:
        return compute_resource_request(allocations.of(other), resource)

    found = choose_victims(pod, others, [Need(shortage.resource, shortage.missing)], requests)
    if isinstance(found, NoVictims):
        message = f"Unexpected error while attempting to recover from admission failure: {found.message}"
        return Reject(Reason.UNEXPECTED_ADMISSION_ERROR, message, {"why": shortage.message})
    return Preempt(found, MESSAGE, as_preempted, shortage.resource)


def _reject_port(port: ContainerPort, *, held_by: str) -> Reject:
    protocol = port.protocol or _TCP
    return Reject(
        Reason.NODE_PORTS,
        "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
        {
            "why": f"host port {port.host_port}/{protocol} is held by {held_by}",
            "hostPort": port.host_port,
            "protocol": protocol,
            "heldBy": held_by.removeprefix("pod "),
        },
    )


def host_ports(pod: Pod) -> Iterator[ContainerPort]:
    sidecars = (each for each in pod.spec.init_containers if is_sidecar(each))
    for container in (*sidecars, *pod.spec.containers):
        yield from (port for port in container.ports if port.host_port > 0)


def _clash(one: ContainerPort, other: ContainerPort) -> bool:
    addresses = {one.host_ip or _ANY_ADDRESS, other.host_ip or _ANY_ADDRESS}
    same_address = len(addresses) == 1 or _ANY_ADDRESS in addresses
    return same_address and one.host_port == other.host_port and (one.protocol or _TCP) == (other.protocol or _TCP)

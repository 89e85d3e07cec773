"""What the node has to offer a pod, and whether that suffices (predicates), in upstream's words. Pure.

All reasons against a pod are found, in upstream's order; the first one decides.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from klet.admission.preemption import MESSAGE, Need, NoVictims, Requests, as_preempted, choose_victims
from klet.admission.resource_fit import ResourceDemand
from klet.api.affinity import suits_pod
from klet.api.container import ContainerPort
from klet.api.node import LINUX, OS_LABEL, Node
from klet.api.placement import Taint
from klet.api.pod import Pod
from klet.api.pod_resources import is_sidecar
from klet.api.tolerations import find_untolerated
from klet.model.pods import is_critical, is_static
from klet.model.reasons import Reason
from klet.model.verdicts import Admit, Preempt, Reject, Verdict

NO_EXECUTE: Final = "NoExecute"
_ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - compared with, not bound to
_TCP: Final = "TCP"
_STRICT: Final = "Strict"
_AGENT: Final = "the node agent"

Failure: TypeAlias = ResourceDemand | Reject
"""One reason against a pod. Other pods can make room for a critical pod, and help with nothing but a shortage."""

NO_NODE: Final = Reject(Reason.INVALID_NODE_INFO, "Kubelet cannot get node info.")


class PredicateRules(Struct, frozen=True, kw_only=True):
    """What pods are checked against besides the Node and the other pods."""

    has_groups_policy: bool = False
    """Whether the runtime knows supplementalGroupsPolicy."""
    compares_taints: bool = False
    """The gate TaintTolerationComparisonOperators."""
    own_ports: tuple[ContainerPort, ...] = ()
    """Where the agent itself listens, as host ports."""


def find_impossible(pod: Pod, *, has_groups_policy: bool) -> Reject | None:
    """Return why a pod can never run here, whatever other pods do."""
    return check_os(pod) or check_groups_policy(pod, is_supported=has_groups_policy)


def find_failures(
    pod: Pod, demands: Sequence[ResourceDemand], others: Sequence[Pod], node: Node, rules: PredicateRules
) -> tuple[Failure, ...]:
    """Return everything that speaks against a pod on this node (generalFilter)."""
    rejections = (
        check_affinity(pod, node),
        check_node_name(pod, node),
        check_host_ports(pod, others) or check_own_ports(pod, rules.own_ports),
        check_taints(pod, node.spec.taints, comparisons=rules.compares_taints),
    )
    shortages = (each for each in demands if each.is_short)
    return (*shortages, *(each for each in rejections if each is not None))


def needs_fresh_node(failures: Sequence[Failure]) -> bool:
    """Return whether labels alone keep a pod out: the API server may have newer ones."""
    return bool(failures) and all(isinstance(each, Reject) and each.reason is Reason.NODE_AFFINITY for each in failures)


def decide_fit(pod: Pod, failures: Sequence[Failure], others: Sequence[Pod], requests: Requests) -> Verdict:
    """Return what follows from the failures. Others make room for a critical pod, if room is all that it lacks."""
    if not failures:
        return Admit()
    if not is_critical(pod):
        return as_rejection(failures[0])
    refused = next((each for each in failures if isinstance(each, Reject)), None)
    if refused is not None:
        return refused
    shortages = [each for each in failures if isinstance(each, ResourceDemand)]
    found = choose_victims(pod, others, [Need(each.resource, each.missing) for each in shortages], requests)
    if isinstance(found, NoVictims):
        message = f"Unexpected error while attempting to recover from admission failure: {found.message}"
        why = f"{shortages[0].why}, and too few of these may be stopped for it"
        return Reject(Reason.UNEXPECTED_ADMISSION_ERROR, message, {**_measure(shortages[0]), "why": why})
    return Preempt(found, MESSAGE, as_preempted, shortages[0].resource)


def as_rejection(failure: Failure) -> Reject:
    """Return the rejection for one reason."""
    if isinstance(failure, Reject):
        return failure
    return Reject(failure.reason, failure.message, _measure(failure))


def with_own_system(node: Node) -> Node:
    """Return the Node with the label of the operating system as it must be, unless it has no labels at all."""
    labels = node.metadata.labels
    if not labels or labels.get(OS_LABEL) == LINUX:
        return node
    return replace(node, metadata=replace(node.metadata, labels={**labels, OS_LABEL: LINUX}))


def check_os(pod: Pod) -> Reject | None:
    """Reject a pod for another operating system."""
    if pod.metadata.labels.get(OS_LABEL, LINUX) != LINUX:
        message = f"Failed to admit pod as the `{OS_LABEL}` label doesn't match node label"
        return Reject(Reason.POD_OS_SELECTOR_DOES_NOT_MATCH, message)
    if pod.spec.os is not None and pod.spec.os.name != LINUX:
        return Reject(Reason.POD_OS_NOT_SUPPORTED, "Failed to admit pod as the OS field doesn't match node OS")
    return None


def check_groups_policy(pod: Pod, *, is_supported: bool) -> Reject | None:
    """Reject a pod that must not get the groups of its image, where the runtime would add them."""
    context = pod.spec.security_context
    if is_supported or context is None or context.supplemental_groups_policy != _STRICT:
        return None
    message = f"SupplementalGroupsPolicy={_STRICT} is not supported in this node"
    return Reject(Reason.SUPPLEMENTAL_GROUPS_POLICY_NOT_SUPPORTED, message)


def check_affinity(pod: Pod, node: Node) -> Reject | None:
    """Reject a pod whose nodeSelector or required node affinity does not match the labels of the node."""
    labels = node.metadata.labels
    if suits_pod(pod.spec, node_name=node.metadata.name, labels=labels):
        return None
    message = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
    return Reject(Reason.NODE_AFFINITY, message, {"why": _explain_affinity(pod, labels)})


def check_node_name(pod: Pod, node: Node) -> Reject | None:
    """Reject a pod that names another node."""
    if pod.spec.node_name in {"", node.metadata.name}:
        return None
    message = "Predicate NodeName failed: node(s) didn't match the requested node name"
    why = f"the pod names node {pod.spec.node_name}, and this is {node.metadata.name}"
    return Reject(Reason.NODE_NAME, message, {"why": why})


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


def host_ports(pod: Pod) -> Iterator[ContainerPort]:
    """Yield the host ports that a pod has as long as it runs."""
    sidecars = (each for each in pod.spec.init_containers if is_sidecar(each))
    for container in (*sidecars, *pod.spec.containers):
        yield from (port for port in container.ports if port.host_port > 0)


def _measure(shortage: ResourceDemand) -> dict[str, str | int]:
    return {
        "why": shortage.why,
        "resource": shortage.resource,
        "requested": shortage.requested,
        "used": shortage.used,
        "capacity": shortage.capacity,
    }


def _explain_affinity(pod: Pod, labels: Mapping[str, str]) -> str:
    for key, value in pod.spec.node_selector.items():
        if key not in labels:
            return f"nodeSelector asks for the label {key}={value}, and the node has no label {key}"
        if labels[key] != value:
            return f"nodeSelector asks for the label {key}={value}, and the node has {key}={labels[key]}"
    return "the node matches no term of the required node affinity"


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


def _clash(one: ContainerPort, other: ContainerPort) -> bool:
    addresses = {one.host_ip or _ANY_ADDRESS, other.host_ip or _ANY_ADDRESS}
    same_address = len(addresses) == 1 or _ANY_ADDRESS in addresses
    return same_address and one.host_port == other.host_port and (one.protocol or _TCP) == (other.protocol or _TCP)

"""Quality of service of a pod: its class, and the OOM score its containers get."""

from enum import StrEnum

from klet.api.container import Container, EphemeralContainer
from klet.api.pod import Pod
from klet.api.pod_resources import aggregate_container_requests, compute_qos_class
from klet.api.quantity import Quantity
from klet.model.pods import is_critical

GUARANTEED_OOM_SCORE = -997
BEST_EFFORT_OOM_SCORE = 1000
_LOWEST_BURSTABLE = 3


class QosClass(StrEnum):
    """How much a pod asked for, and so what it may lose first."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


def compute_qos(pod: Pod) -> QosClass:
    """The class by requests and limits; pod-level resources, where given, count alone."""
    return QosClass(compute_qos_class(pod))


def qos_of(pod: Pod) -> QosClass:
    """The class a pod was given at first, which never changes; one that has none yet gets it by its spec."""
    return QosClass(pod.status.qos_class) if pod.status.qos_class else compute_qos(pod)


def oom_score(pod: Pod, container: Container | EphemeralContainer, qos: QosClass, *, memory_capacity: int) -> int:
    """The kernel's `oom_score_adj`: the more of the memory it asked for, the later it is killed."""
    if is_critical(pod) and pod.spec.priority_class_name == "system-node-critical":
        return GUARANTEED_OOM_SCORE
    match qos:
        case QosClass.GUARANTEED:
            return GUARANTEED_OOM_SCORE
        case QosClass.BEST_EFFORT:
            return BEST_EFFORT_OOM_SCORE
        case QosClass.BURSTABLE:
            score = _burstable_score(pod, container, memory_capacity)
            return min(max(score, _LOWEST_BURSTABLE), BEST_EFFORT_OOM_SCORE - 1)


def _burstable_score(pod: Pod, container: Container | EphemeralContainer, capacity: int) -> int:
    share = _unassigned_share(pod)
    score = 1000 - 1000 * (_memory_request(container) + share) // capacity
    if container not in pod.spec.init_containers or container.restart_policy != "Always":
        return score
    # A sidecar must not be killed before the containers it serves.
    smallest = min(_memory_request(regular) for regular in pod.spec.containers)
    return min(score, 1000 - 1000 * (smallest + share) // capacity)


def _unassigned_share(pod: Pod) -> int:
    """Each container's part of the pod-level memory request that no container has claimed."""
    if pod.spec.resources is None or not (wanted := _value(pod.spec.resources.requests.get("memory"))):
        return 0
    claimed = _value(aggregate_container_requests(pod.spec).get("memory"))
    containers = len(pod.spec.containers) + len(pod.spec.init_containers)
    return max(wanted - claimed, 0) // containers


def _memory_request(container: Container | EphemeralContainer) -> int:
    return _value(container.resources.requests.get("memory"))


def _value(quantity: Quantity | None) -> int:
    return quantity.value() if quantity is not None else 0

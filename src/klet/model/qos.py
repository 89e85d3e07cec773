"""Quality of service of a pod: its class, and the OOM score its containers get."""

from enum import StrEnum
from typing import Final

from klet.api.pod import Pod
from klet.api.pod_resources import compute_qos_class
from klet.model.allocation import PodAllocation
from klet.model.pod_resources import memory_bytes, sum_container_requests
from klet.model.pods import is_critical

GUARANTEED_OOM_SCORE = -997
BEST_EFFORT_OOM_SCORE = 1000
_LOWEST_BURSTABLE = 3


class QosClass(StrEnum):
    """How much a pod asked for, and so what it may lose first."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


_CLASSES: Final = frozenset(QosClass)


def compute_qos(pod: Pod) -> QosClass:
    """Return the class by the requests and limits of the spec, which never change it; pod level counts alone."""
    return QosClass(compute_qos_class(pod))


def qos_of(pod: Pod) -> QosClass:
    """Return the class a pod was given at first, which never changes; one that has none yet gets it by its spec.

    So does one whose status names a class that does not exist, as a manifest may: it must not hold up other pods.
    """
    return QosClass(pod.status.qos_class) if pod.status.qos_class in _CLASSES else compute_qos(pod)


def oom_score(pod: Pod, container: str, allocation: PodAllocation, qos: QosClass, *, memory_capacity: int) -> int:
    """Return the kernel's `oom_score_adj`: the more of the memory it was given, the later it is killed."""
    if is_critical(pod) and pod.spec.priority_class_name == "system-node-critical":
        return GUARANTEED_OOM_SCORE
    match qos:
        case QosClass.GUARANTEED:
            return GUARANTEED_OOM_SCORE
        case QosClass.BEST_EFFORT:
            return BEST_EFFORT_OOM_SCORE
        case QosClass.BURSTABLE:
            score = _burstable_score(container, allocation, memory_capacity)
            return min(max(score, _LOWEST_BURSTABLE), BEST_EFFORT_OOM_SCORE - 1)


def _burstable_score(container: str, allocation: PodAllocation, capacity: int) -> int:
    share = _unassigned_share(allocation)
    score = 1000 - 1000 * (memory_bytes(allocation.of(container).requests) + share) // capacity
    if not any(each.is_sidecar and each.name == container for each in allocation.init_containers):
        return score
    # A sidecar must not be killed before the containers it serves.
    smallest = min(memory_bytes(regular.given.requests) for regular in allocation.containers)
    return min(score, 1000 - 1000 * (smallest + share) // capacity)


def _unassigned_share(allocation: PodAllocation) -> int:
    """Return each container's part of the pod-level memory request that no container has claimed."""
    if not (wanted := memory_bytes(allocation.pod_requests)):
        return 0
    claimed = memory_bytes(sum_container_requests(allocation))
    containers = len(allocation.containers) + len(allocation.init_containers)
    return max(wanted - claimed, 0) // containers

"""The pod conditions a kubelet owns, from container statuses and the phase (status.Generate…Condition)."""

from collections.abc import Sequence

from klet.api.container import Container
from klet.api.container_status import ContainerStatus
from klet.api.pod import Pod, PodCondition, PodStatus
from klet.api.pod_resources import is_sidecar
from klet.model.conditions import DISRUPTION_TARGET, FALSE, READY, TRUE
from klet.model.restart_rules import (
    ALL_RESTARTING,
    has_begun_again,
    is_cleaned_up,
    is_restarting_all,
    should_restart_all,
)
from klet.model.runtime import PodRuntimeStatus
from klet.status.phase import FAILED, SUCCEEDED

POD_SCHEDULED = "PodScheduled"
INITIALIZED = "Initialized"
CONTAINERS_READY = "ContainersReady"
READY_TO_START = "PodReadyToStartContainers"
RESIZE_PENDING = "PodResizePending"
RESIZE_IN_PROGRESS = "PodResizeInProgress"

OWNED = frozenset(
    {
        *(POD_SCHEDULED, READY, INITIALIZED, CONTAINERS_READY, READY_TO_START, RESIZE_PENDING, RESIZE_IN_PROGRESS),
        ALL_RESTARTING,
    }
)

SHARED = frozenset({DISRUPTION_TARGET})
"""Written by the kubelet and by other clients."""


def containers_ready(pod: Pod, statuses: Sequence[ContainerStatus], phase: str) -> PodCondition:
    """Return True when every sidecar and regular container is ready."""
    if not statuses:
        return PodCondition(type=CONTAINERS_READY, status=FALSE, reason="UnknownContainerStatuses")
    by_name = {status.name: status for status in statuses}
    watched = [c for c in pod.spec.init_containers if is_sidecar(c)] + list(pod.spec.containers)
    unknown = [c.name for c in watched if c.name not in by_name]
    unready = [c.name for c in watched if c.name in by_name and not by_name[c.name].ready]
    if phase == SUCCEEDED and not unknown:
        return PodCondition(type=CONTAINERS_READY, status=FALSE, reason="PodCompleted")
    if phase == FAILED:
        return PodCondition(type=CONTAINERS_READY, status=FALSE, reason="PodFailed")
    if message := _listing(unknown, unready, "unready"):
        return PodCondition(type=CONTAINERS_READY, status=FALSE, reason="ContainersNotReady", message=message)
    return PodCondition(type=CONTAINERS_READY, status=TRUE)


def ready(pod: Pod, containers: PodCondition, others: Sequence[PodCondition]) -> PodCondition:
    """Return True when the containers are ready and every readiness gate is open."""
    if containers.status != TRUE:
        return PodCondition(type=READY, status=containers.status, reason=containers.reason, message=containers.message)
    status_of = {condition.type: condition.status for condition in others}
    closed = []
    for gate in pod.spec.readiness_gates:
        kind = gate.condition_type
        if kind not in status_of:
            closed.append(f'corresponding condition of pod readiness gate "{kind}" does not exist.')
        elif status_of[kind] != TRUE:
            closed.append(f'the status of pod readiness gate "{kind}" is not "True", but {status_of[kind]}')
    if closed:
        return PodCondition(type=READY, status=FALSE, reason="ReadinessGatesNotReady", message=", ".join(closed))
    return PodCondition(type=READY, status=TRUE)


def is_readiness_stale(pod: Pod) -> bool:
    """Return whether a readiness gate changed the pod's Ready from what the API server shows."""
    if not pod.spec.readiness_gates:
        return False
    status = pod.status
    computed = ready(pod, containers_ready(pod, status.container_statuses, status.phase), status.conditions)
    shown = next((condition for condition in status.conditions if condition.type == READY), None)
    return shown is not None and (shown.status, shown.message) != (computed.status, computed.message)


def initialized(
    pod: Pod,
    statuses: Sequence[ContainerStatus],
    init_statuses: Sequence[ContainerStatus],
    phase: str,
    *,
    stays: bool = False,
) -> PodCondition:
    """Return True when every init container has completed.

    `stays` is true for a pod that was initialized once and remains so, although its init containers run again.
    """
    if not statuses and not init_statuses and pod.spec.init_containers:
        return PodCondition(type=INITIALIZED, status=FALSE, reason="UnknownContainerStatuses")
    by_name = {status.name: status for status in init_statuses}
    unknown = [c.name for c in pod.spec.init_containers if c.name not in by_name]
    incomplete = [
        c.name for c in pod.spec.init_containers if c.name in by_name and not _is_complete(c, by_name[c.name])
    ]
    if phase == SUCCEEDED and not unknown:
        return PodCondition(type=INITIALIZED, status=TRUE, reason="PodCompleted")
    if any(s.state.running is not None or s.state.terminated is not None for s in statuses):
        return PodCondition(type=INITIALIZED, status=TRUE)
    if not stays and (message := _listing(unknown, incomplete, "incomplete")):
        return PodCondition(type=INITIALIZED, status=FALSE, reason="ContainersNotInitialized", message=message)
    return PodCondition(type=INITIALIZED, status=TRUE)


def all_containers_restarting(pod: Pod, seen: PodRuntimeStatus, previous: PodStatus, phase: str) -> PodCondition:
    """True from the exit that asks for it until nothing is left of the containers; then they start again."""
    if phase == SUCCEEDED:
        return PodCondition(type=ALL_RESTARTING, status=FALSE, reason="PodCompleted")
    if phase == FAILED:
        return PodCondition(type=ALL_RESTARTING, status=FALSE, reason="PodFailed")
    is_over = is_cleaned_up(pod, seen) or (is_restarting_all(previous) and has_begun_again(pod, seen, previous))
    if is_over or not should_restart_all(pod, seen, previous):
        return PodCondition(type=ALL_RESTARTING, status=FALSE)
    message = "container exited with restart policy rule"
    return PodCondition(type=ALL_RESTARTING, status=TRUE, reason="RestartAllContainersStarted", message=message)


def _is_complete(container: Container, status: ContainerStatus) -> bool:
    return bool(status.started) if is_sidecar(container) else status.ready


def _listing(unknown: list[str], bad: list[str], word: str) -> str:
    parts = []
    if unknown:
        parts.append(f"containers with unknown status: [{' '.join(unknown)}]")
    if bad:
        parts.append(f"containers with {word} status: [{' '.join(bad)}]")
    return ", ".join(parts)

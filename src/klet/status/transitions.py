"""Which status may follow which, and whether two say the same (updateStatusInternal)."""

from collections.abc import Sequence

from msgspec.structs import replace

from klet.api.container import Container
from klet.api.container_status import ContainerStatus
from klet.api.pod import Pod, PodCondition, PodStatus
from klet.api.pod_resources import is_sidecar
from klet.api.times import Time
from klet.model.conditions import DISRUPTION_TARGET, READY
from klet.model.restart_rules import ALL_RESTARTING, may_restart_all
from klet.status.conditions import (
    CONTAINERS_READY,
    INITIALIZED,
    OWNED,
    POD_SCHEDULED,
    READY_TO_START,
    SHARED,
)
from klet.status.phase import RestartRule

DATED = frozenset(
    {CONTAINERS_READY, READY, INITIALIZED, READY_TO_START, POD_SCHEDULED, DISRUPTION_TARGET, ALL_RESTARTING}
)


def find_illegal_transition(
    pod: Pod, old: PodStatus, new: PodStatus, restarts: RestartRule, *, restart_all: bool = False
) -> str | None:
    """Return why a new status is illegal: a container that must not be restarted runs again."""
    if _may_all_return(pod, restart_all=restart_all):
        return None
    regular = {container.name: container for container in pod.spec.containers}
    for status in old.container_statuses:
        container = regular.get(status.name)
        if _is_final(pod, container, status, restarts) and _is_revived(status, new.container_statuses):
            return f"terminated container {status.name} attempted illegal transition to non-terminated state"
    init = {container.name: container for container in pod.spec.init_containers}
    for status in old.init_container_statuses:
        container = init.get(status.name)
        if container is None:
            return f"found mismatch between pod spec and status, container: {status.name}"
        if is_sidecar(container):
            continue
        if _is_final(pod, container, status, restarts) and _is_revived(status, new.init_container_statuses):
            return f"terminated init container {status.name} attempted illegal transition to non-terminated state"
    return None


def keeps_its_end(
    pod: Pod, container: Container, status: ContainerStatus, restarts: RestartRule, *, restart_all: bool = False
) -> bool:
    """Return whether a status shows an end that is final."""
    if _may_all_return(pod, restart_all=restart_all) or is_sidecar(container):
        return False
    return _is_final(pod, container, status, restarts)


def date_status(status: PodStatus, old: PodStatus | None, *, now: Time) -> PodStatus:
    """Give conditions the instant of their last change, and the pod the instant it was first reported."""
    before = {condition.type: condition for condition in old.conditions} if old else {}
    dated = tuple(_dated(condition, before.get(condition.type), now) for condition in status.conditions)
    return replace(
        status,
        conditions=dated,
        start_time=(old.start_time if old else None) or status.start_time or now,
        observed_generation=max(status.observed_generation, old.observed_generation if old else 0),
    )


def is_same(one: PodStatus, other: PodStatus) -> bool:
    """Return whether two statuses are equal, apart from the times of the node's own conditions."""
    return _comparable(one) == _comparable(other)


def _may_all_return(pod: Pod, *, restart_all: bool) -> bool:
    """Return whether no end is final: by the pod's policy, or as the exit of one container may restart all."""
    return pod.spec.restart_policy in {"", "Always"} or (restart_all and may_restart_all(pod.spec))


def _is_final(pod: Pod, container: Container | None, status: ContainerStatus, restarts: RestartRule) -> bool:
    ended = status.state.terminated
    if ended is None:
        return False
    if container is None:
        return not (pod.spec.restart_policy == "OnFailure" and ended.exit_code != 0)
    return not restarts(container, ended.exit_code)


def _is_revived(old: ContainerStatus, statuses: Sequence[ContainerStatus]) -> bool:
    return any(status.name == old.name and status.state.terminated is None for status in statuses)


def _dated(condition: PodCondition, old: PodCondition | None, now: Time) -> PodCondition:
    if condition.type not in DATED:
        return condition
    if old is not None and old.status == condition.status:
        return replace(condition, last_transition_time=old.last_transition_time)
    return replace(condition, last_transition_time=now)


def _comparable(status: PodStatus) -> PodStatus:
    return replace(status, conditions=tuple(map(_bare, status.conditions)))


def _bare(condition: PodCondition) -> PodCondition:
    if condition.type not in OWNED | SHARED:
        return condition
    return PodCondition(
        type=condition.type, status=condition.status, reason=condition.reason, message=condition.message
    )

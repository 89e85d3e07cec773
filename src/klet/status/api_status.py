"""The status to write to the API: this node's status, merged with what other clients wrote (mergePodStatus)."""

from collections.abc import Sequence

from msgspec.structs import replace

from klet.api.pod import Pod, PodCondition, PodStatus
from klet.api.times import Time
from klet.model.conditions import DISRUPTION_TARGET, FALSE, READY, TRUE
from klet.model.pods import is_mirror
from klet.status.conditions import CONTAINERS_READY, OWNED
from klet.status.phase import FAILED, is_terminal


def status_to_write(pod: Pod, reported: PodStatus, *, may_run: bool, now: Time) -> PodStatus:
    """Return the status for the API server. A terminal phase that it has is final: a node that differs has lost state.

    So it is with a node that lost its containers and its memory. A static pod, which a mirror shows, may run again.
    """
    there = pod.status
    if is_terminal(there.phase) and reported.phase != there.phase and not is_mirror(pod):
        return there
    return merge_status(there, reported, may_run=may_run, now=now)


def merge_status(old: PodStatus, new: PodStatus, *, may_run: bool, now: Time) -> PodStatus:
    """Return the merged status. A pod is not reported as ended while containers may run."""
    ends = not is_terminal(old.phase) and is_terminal(new.phase)
    conditions = _merge_conditions(old.conditions, new.conditions, ends=ends and not may_run, now=now)
    merged = replace(
        new,
        conditions=conditions,
        resource_claim_statuses=old.resource_claim_statuses,
        extended_resource_claim_status=old.extended_resource_claim_status,
    )
    if ends and may_run:
        merged = replace(merged, phase=old.phase, reason=old.reason, message=old.message)
    if is_terminal(merged.phase) and any(_is_true(each) for each in conditions):
        merged = replace(merged, conditions=_not_ready(conditions, merged.phase, now))
    return merged


def restore_status(pod: Pod, reported: PodStatus | None, *, now: Time) -> Pod:
    """Return a pod as the API server would show it with the last reported status: one that is over stays over."""
    if reported is None:
        return pod
    return replace(pod, status=merge_status(pod.status, reported, may_run=False, now=now))


def may_be_deleted(pod: Pod, *, is_finished: bool) -> bool:
    """Return whether the API object of a deleted pod can be removed: it has ended and released everything."""
    is_leaving = pod.metadata.deletion_timestamp is not None and not is_mirror(pod)
    return is_leaving and is_terminal(pod.status.phase) and is_finished


def _merge_conditions(
    old: Sequence[PodCondition], new: Sequence[PodCondition], *, ends: bool, now: Time
) -> tuple[PodCondition, ...]:
    merged = [each for each in old if each.type not in OWNED]
    merged += [each for each in new if each.type in OWNED]
    disrupted = next((each for each in new if each.type == DISRUPTION_TARGET), None)
    if not ends or disrupted is None:
        return tuple(merged)
    before = next((each for each in merged if each.type == DISRUPTION_TARGET), None)
    if before is None:
        return (*merged, replace(disrupted, last_transition_time=now))
    since = before.last_transition_time if before.status == disrupted.status else now
    return tuple(replace(disrupted, last_transition_time=since) if each is before else each for each in merged)


def _is_true(condition: PodCondition) -> bool:
    return condition.type in {READY, CONTAINERS_READY} and condition.status == TRUE


def _not_ready(conditions: Sequence[PodCondition], phase: str, now: Time) -> tuple[PodCondition, ...]:
    reason = "PodFailed" if phase == FAILED else "PodCompleted"
    there = {each.type: each for each in conditions}
    closed = {kind: _closed(there.get(kind), kind, reason, now) for kind in (READY, CONTAINERS_READY)}
    merged = [closed.pop(each.type, each) for each in conditions]
    return (*merged, *closed.values())


def _closed(condition: PodCondition | None, kind: str, reason: str, now: Time) -> PodCondition:
    if condition is None:
        return PodCondition(type=kind, status=FALSE, reason=reason, last_transition_time=now)
    since = condition.last_transition_time if condition.status == FALSE else now
    return replace(condition, status=FALSE, reason=reason, message="", last_transition_time=since)

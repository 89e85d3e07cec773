"""Finds why the node is ready or not, condition by condition: the first screen of `klet explain node`. Pure."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from msgspec import Struct

from klet.api.klet_v1 import ExplainedCondition
from klet.api.node import Node, NodeCondition
from klet.journal.evidence import Evidence, ReasonKind, StateReason
from klet.model.causes import Cause
from klet.model.conditions import FALSE, READY, TRUE
from klet.model.error_text import join_errors
from klet.model.reasons import Reason

ASK_AGAIN: Final = "ask the runtime again every second"
CERTIFICATES: Final = ("client", "server")


class NodeState(Struct, frozen=True, kw_only=True):
    """What the agent sees of its node at this moment."""

    errors: Sequence[str] = ()
    """What is wrong with the runtime."""
    network_error: str | None = None
    has_answered: bool = True
    """Whether the runtime has answered since the agent started."""
    well_at: datetime | None = None
    """When the runtime was last ready."""
    node: Node | None = None
    """As the API server has it; None without one."""


class NodeDiagnosis(Struct, frozen=True, kw_only=True):
    """The state of the node, and why."""

    is_ready: bool
    conditions: tuple[ExplainedCondition, ...]
    summary: str
    """One sentence when nothing is wrong; otherwise empty."""
    reasons: tuple[StateReason, ...]


def diagnose_node(state: NodeState, records: Evidence) -> NodeDiagnosis:
    """Return the conditions of the node and the reasons; `records` are those since the agent started."""
    troubles = list(_runtime_reasons(state, records))
    reported = {
        condition.type: condition for condition in (state.node.status.conditions if state.node is not None else ())
    }
    ready = _judge_ready(troubles, reported.get(READY), records)
    others = [_as_reported(condition) for condition in reported.values() if condition.type != READY]
    reasons = [*troubles, *_api_reasons(ready, reported, records), *_certificate_reasons(records)]
    if state.node is not None and state.node.spec.unschedulable:
        text = "the node is cordoned: nothing new is scheduled on it"
        reasons.append(StateReason(kind=ReasonKind.PROGRESS, word=str(Reason.NODE_NOT_SCHEDULABLE), message=text))
    is_well = not reasons
    reasons += _past_reasons(records)
    since = f" since {ready.since:%H:%M:%S} UTC" if ready.since is not None else ""
    return NodeDiagnosis(
        is_ready=ready.status == TRUE,
        conditions=(ready, *others),
        summary="" if not is_well else f"nothing is wrong: the runtime and its network are well{since}",
        reasons=tuple(sorted(reasons, key=lambda reason: list(ReasonKind).index(reason.kind))),
    )


def _runtime_reasons(state: NodeState, records: Evidence) -> Iterator[StateReason]:
    for error in state.errors:
        record = records.newest_of(Reason.RUNTIME_NOT_READY)
        yield StateReason(
            word=str(Reason.RUNTIME_NOT_READY),
            message=f"{error}; nothing new is begun",
            since=record.at if record is not None else state.well_at,
            next=ASK_AGAIN,
        )
    if state.network_error is None:
        return
    record = records.newest_of(Reason.NETWORK_NOT_READY)
    yield StateReason(
        kind=ReasonKind.TROUBLE if state.has_answered else ReasonKind.PROGRESS,
        word=str(Reason.NETWORK_NOT_READY),
        message=f"{state.network_error}; pods that want a network of their own wait"
        if state.has_answered
        else "the runtime has not reported its network yet",
        since=record.at if record is not None else None,
        next=ASK_AGAIN,
    )


def _judge_ready(
    troubles: Sequence[StateReason], reported: NodeCondition | None, records: Evidence
) -> ExplainedCondition:
    """Return the Ready condition as the agent computes it now; the one at the API server may be older."""
    status = FALSE if troubles else TRUE
    if reported is not None and reported.status == status and reported.last_transition_time is not None:
        since: datetime | None = reported.last_transition_time
    elif troubles:
        since = min((each.since for each in troubles if each.since is not None), default=None)
    else:
        well = records.newest_of(Reason.NETWORK_READY, Reason.RUNTIME_READY)
        since = well.at if well is not None else None
    return ExplainedCondition(
        type=READY,
        status=status,
        reason="KubeletNotReady" if troubles else "KubeletReady",
        message=join_errors(each.message for each in troubles) if troubles else "the runtime and its network are well",
        since=since,
    )


def _api_reasons(
    ready: ExplainedCondition, reported: dict[str, NodeCondition], records: Evidence
) -> Iterator[StateReason]:
    """Return the reasons that only the API server has."""
    away = records.newest_of(Reason.API_SERVER_AWAY, Reason.API_SERVER_BACK)
    if away is not None and away.finding.decision == Reason.API_SERVER_AWAY:
        yield StateReason(
            word=str(away.finding.decision),
            message=away.finding.message,
            since=away.finding.since or away.at,
            next=away.finding.next,
        )
    for condition in reported.values():
        if condition.type == READY and condition.status != ready.status:
            text = f"the API server has Ready {condition.status} ({condition.reason}: {condition.message})"
            yield _reason_of(condition, f"{text}, and the agent {ready.status}", "report the status of the node to it")
        elif condition.type != READY and condition.status != FALSE:
            text = f"{condition.type} is {condition.status}: {condition.message}"
            yield _reason_of(condition, text, "")


def _certificate_reasons(records: Evidence) -> Iterator[StateReason]:
    """Return certificates that are due and cannot be renewed: the node works until they expire."""
    for purpose in CERTIFICATES:
        about = Reason.CERTIFICATE_NOT_RENEWED, Reason.CERTIFICATE_IN_FORCE
        story = records.of(*about).where(partial(_is_about, purpose))
        if story.newest is None or story.newest.finding.decision != Reason.CERTIFICATE_NOT_RENEWED:
            continue
        began = story.after(story.newest_of(Reason.CERTIFICATE_IN_FORCE)).first or story.newest
        found = story.newest.finding
        yield StateReason(word=str(found.decision), message=found.message, since=began.at, next=found.next)


def _past_reasons(records: Evidence) -> Iterator[StateReason]:
    """Return what happened to the node before this run of the agent: a reboot, and state that it did not survive."""
    for cause in records.of(Reason.NODE_REBOOTED, Reason.STATE_FILE_DAMAGED).causes:
        found = cause.finding
        yield StateReason(
            kind=ReasonKind.PAST,
            word=str(found.decision),
            message=found.message,
            measurements=dict(found.measurements),
            since=found.since or cause.at,
        )


def _is_about(purpose: str, cause: Cause) -> bool:
    return cause.finding.measurements.get("certificate") == purpose


def _reason_of(condition: NodeCondition, message: str, next_step: str) -> StateReason:
    return StateReason(
        word=condition.reason or condition.type,
        message=message,
        measurements={"condition": condition.type, "status": condition.status},
        since=condition.last_transition_time,
        next=next_step,
    )


def _as_reported(condition: NodeCondition) -> ExplainedCondition:
    return ExplainedCondition(
        type=condition.type,
        status=condition.status,
        reason=condition.reason,
        message=condition.message,
        since=condition.last_transition_time,
    )

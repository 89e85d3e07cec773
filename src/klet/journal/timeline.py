"""Builds the timeline of a pod from its cause records: what was decided when and why, and what it waits for now.

Several pods may have had the same name, one after the other: each has a history of its own.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from klet.model.causes import Cause, CauseId, Finding, FindingSubject
from klet.model.reasons import Reason

ENDINGS: Final = frozenset({Reason.STOPPED, Reason.FINISHED, Reason.REMOVED})
"""Decisions about a pod after which it waits for nothing."""
SHOWN_ONCE: Final = frozenset({Reason.MISSING_CLUSTER_DNS})
"""Decisions that every sync takes again; the timeline shows the first."""


class TimelineEntry(Struct, frozen=True, kw_only=True):
    """One line of the timeline: a decision, or several equal ones."""

    cause: Cause
    """The first of them."""
    times: int
    depth: int
    """How many ancestors it has among the records."""
    offset: timedelta
    """Since the first record of the history."""
    lasted: timedelta | None
    """Until the next entry about the same subject; None when there is none."""


class Waiting(Struct, frozen=True, kw_only=True):
    """What the newest open decision waits for."""

    on: str
    subject: FindingSubject
    message: str
    since: datetime


class PodHistory(Struct, frozen=True, kw_only=True):
    """What happened to one pod, or to the node in one run of the agent, oldest entry first."""

    uid: str
    began: datetime
    steps: tuple[TimelineEntry, ...]
    causes: tuple[Cause, ...]
    """All records, also those that are shown as one entry."""


class Timeline(Struct, frozen=True, kw_only=True):
    """All histories under one name, oldest first."""

    histories: tuple[PodHistory, ...]
    waiting: Waiting | None
    reboots: tuple[Cause, ...] = ()
    """Of the node, since the first record."""

    @property
    def steps(self) -> tuple[TimelineEntry, ...]:
        return tuple(step for history in self.histories for step in history.steps)


def build_timeline(causes: Iterable[Cause], *, node: Iterable[Cause] = ()) -> Timeline:
    """Build a timeline. Records may come in any order; ancestors that are not among them do not indent.

    Of the records about the node, starts of the agent and reboots are added to the histories that went on through them.
    """
    histories = _histories(sorted({cause.id: cause for cause in causes}.values(), key=lambda cause: cause.id))
    if not histories:
        return Timeline(histories=(), waiting=None)
    _, newest = histories[-1]
    about_node = list(node)
    starts = [_as_restart(cause) for cause in about_node if cause.finding.decision == Reason.AGENT_STARTED]
    reboots = [_as_ended(cause) for cause in about_node if cause.finding.decision == Reason.NODE_REBOOTED]
    return Timeline(
        histories=tuple(_build_history(uid, history, [*starts, *reboots]) for uid, history in histories),
        waiting=_waiting(newest),
        reboots=tuple(reboots),
    )


def _histories(ordered: list[Cause]) -> list[tuple[str, list[Cause]]]:
    """Group records by pod, in the order in which the pods came. A record without uid belongs to the pod of its time.

    A static pod that is removed and comes again unchanged keeps its uid, and begins another history. For the node each
    start of the agent begins one.
    """
    histories: list[tuple[str, list[Cause]]] = []
    current: dict[str, list[Cause]] = {}
    newest = next((cause.finding.subject.uid for cause in ordered if cause.finding.subject.uid), "")
    for cause in ordered:
        uid = cause.finding.subject.uid or newest
        history = current.get(uid)
        if history is None or _begins(cause, history):
            newest = uid
            history = current[uid] = []
            histories.append((uid, history))
        history.append(cause)
    return histories


def _begins(cause: Cause, history: list[Cause]) -> bool:
    decision = cause.finding.decision
    if decision == Reason.AGENT_STARTED:
        # That the journal itself was damaged is the first record of the new one.
        return any(earlier.finding.decision != Reason.STATE_FILE_DAMAGED for earlier in history)
    return decision == Reason.POD_ADDED and any(_is_ending(earlier) for earlier in history)


def _as_restart(cause: Cause) -> Cause:
    finding = replace(cause.finding, decision=Reason.AGENT_RESTARTED, message="the agent was started again", next="")
    return replace(cause, finding=finding)


def _as_ended(cause: Cause) -> Cause:
    """Return the record of a reboot as pods show it: what the node does next is in the lines that follow."""
    return replace(cause, finding=replace(cause.finding, next=""))


def _build_history(uid: str, ordered: list[Cause], starts: list[Cause]) -> PodHistory:
    ended = next((cause for cause in ordered if _is_ending(cause)), None)
    within = [start for start in starts if start.id > ordered[0].id and (ended is None or start.id < ended.id)]
    shown = sorted((*ordered, *within), key=lambda cause: cause.id)
    depths = _depths(shown)
    began: dict[FindingSubject, datetime] = {}
    steps: list[TimelineEntry] = []
    for run in reversed(_runs(shown, depths)):
        first = run[0]
        following = began.get(first.finding.subject)
        began[first.finding.subject] = first.at
        steps.append(
            TimelineEntry(
                cause=first,
                times=len(run),
                depth=depths[first.id],
                offset=first.at - ordered[0].at,
                lasted=None if following is None else following - first.at,
            )
        )
    return PodHistory(uid=uid, began=ordered[0].at, steps=tuple(reversed(steps)), causes=tuple(ordered))


def _depths(ordered: list[Cause]) -> dict[CauseId, int]:
    depths: dict[CauseId, int] = {}
    for cause in ordered:
        depths[cause.id] = depths[cause.parent] + 1 if cause.parent is not None and cause.parent in depths else 0
    return depths


def _runs(ordered: list[Cause], depths: Mapping[CauseId, int]) -> list[list[Cause]]:
    runs: list[list[Cause]] = []
    once: dict[tuple[FindingSubject, str], list[Cause]] = {}
    for cause in ordered:
        decision = cause.finding.decision
        earlier = once.get((cause.finding.subject, decision))
        if earlier is not None:
            earlier.append(cause)
            continue
        if runs and _is_same(runs[-1][-1], cause) and depths[runs[-1][-1].id] == depths[cause.id]:
            runs[-1].append(cause)
            continue
        runs.append([cause])
        if decision in SHOWN_ONCE:
            once[cause.finding.subject, decision] = runs[-1]
    return runs


def _is_same(one: Cause, other: Cause) -> bool:
    return _content(one.finding) == _content(other.finding)


def _content(finding: Finding) -> tuple[FindingSubject, str, str, str, str]:
    return (finding.subject, finding.decider, finding.decision, finding.message, finding.next)


def _waiting(ordered: list[Cause]) -> Waiting | None:
    """Return what the newest record announces that has not come.

    It has come when there is a consequence, or a later record about the same thing, or when the pod is over.
    """
    parents = {cause.parent for cause in ordered}
    ended = max((index for index, cause in enumerate(ordered) if _is_ending(cause)), default=-1)
    newest = {cause.finding.subject: cause for cause in ordered[ended + 1 :]}
    still_open = [cause for cause in newest.values() if cause.finding.next and cause.id not in parents]
    if not still_open:
        return None
    cause = max(still_open, key=lambda cause: cause.id)
    finding = cause.finding
    return Waiting(
        on=finding.next, subject=finding.subject, message=finding.message, since=_waiting_since(ordered, cause)
    )


def _waiting_since(ordered: list[Cause], cause: Cause) -> datetime:
    """Return when the wait began: the time in the record itself, else that of the first equal record before it."""
    if cause.finding.since is not None:
        return cause.finding.since
    since = cause.at
    for earlier in reversed(ordered):
        if earlier.finding.subject != cause.finding.subject:
            continue
        if not _is_same(earlier, cause):
            break
        since = earlier.at
    return since


def _is_ending(cause: Cause) -> bool:
    return not cause.finding.subject.container and cause.finding.decision in ENDINGS

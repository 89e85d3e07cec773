"""The story of a pod, from its cause records: what was decided when, on account of what, and what it waits for now.

A name may have been given to several pods, one after the other: each is a life of its own, told by itself.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from klet.model.causes import Cause, CauseId, Finding, Subject
from klet.model.reasons import Reason

ENDINGS: Final = frozenset({Reason.STOPPED, Reason.FINISHED, Reason.REMOVED})
"""Decisions about a pod after which nothing of it is waited for."""
TOLD_ONCE: Final = frozenset({Reason.MISSING_CLUSTER_DNS})
"""Decisions that are taken again with every sync and are no news after the first."""


class Step(Struct, frozen=True, kw_only=True):
    """One line of the story: a decision, or several equal ones."""

    cause: Cause
    """The first of them."""
    times: int
    depth: int
    """How many known ancestors it has."""
    offset: timedelta
    """Since the first record of the life."""
    lasted: timedelta | None
    """Until the next step about the same thing; None when that has not come."""


class Waiting(Struct, frozen=True, kw_only=True):
    """What the newest open decision waits for."""

    on: str
    subject: Subject
    message: str
    since: datetime


class Life(Struct, frozen=True, kw_only=True):
    """What happened to one pod, oldest step first."""

    uid: str
    began: datetime
    steps: tuple[Step, ...]
    causes: tuple[Cause, ...]
    """The records themselves, each one, for who looks for something in them."""


class Timeline(Struct, frozen=True, kw_only=True):
    """A story, oldest life first."""

    lives: tuple[Life, ...]
    waiting: Waiting | None

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(step for life in self.lives for step in life.steps)


def build_timeline(causes: Iterable[Cause], *, node: Iterable[Cause] = ()) -> Timeline:
    """Order records into a story. Records may come in any order; ancestors that are not among them do not indent.

    Of the records about the node, those of starts of the agent are told in the lives that went on through them.
    """
    lives = _lives(sorted({cause.id: cause for cause in causes}.values(), key=lambda cause: cause.id))
    if not lives:
        return Timeline(lives=(), waiting=None)
    _, newest = lives[-1]
    starts = [_as_restart(cause) for cause in node if cause.finding.decision == Reason.AGENT_STARTED]
    return Timeline(lives=tuple(_tell(uid, life, starts) for uid, life in lives), waiting=_waiting(newest))


def _lives(ordered: list[Cause]) -> list[tuple[str, list[Cause]]]:
    """Records by pod, in the order in which the pods came; what names no uid belongs to the pod of its time.

    A static pod that is removed and comes again unchanged has the uid it had, and begins another life. In the story of
    the node each start of the agent begins one.
    """
    lives: list[tuple[str, list[Cause]]] = []
    current: dict[str, list[Cause]] = {}
    newest = next((cause.finding.subject.uid for cause in ordered if cause.finding.subject.uid), "")
    for cause in ordered:
        uid = cause.finding.subject.uid or newest
        life = current.get(uid)
        if life is None or _begins(cause, life):
            newest = uid
            life = current[uid] = []
            lives.append((uid, life))
        life.append(cause)
    return lives


def _begins(cause: Cause, life: list[Cause]) -> bool:
    decision = cause.finding.decision
    return decision == Reason.AGENT_STARTED or (
        decision == Reason.POD_ADDED and any(_is_ending(earlier) for earlier in life)
    )


def _as_restart(cause: Cause) -> Cause:
    told = replace(cause.finding, decision=Reason.AGENT_RESTARTED, message="the agent was started again", next="")
    return replace(cause, finding=told)


def _tell(uid: str, ordered: list[Cause], starts: list[Cause]) -> Life:
    ended = next((cause for cause in ordered if _is_ending(cause)), None)
    within = [start for start in starts if start.id > ordered[0].id and (ended is None or start.id < ended.id)]
    told = sorted((*ordered, *within), key=lambda cause: cause.id)
    depths = _depths(told)
    began: dict[Subject, datetime] = {}
    steps: list[Step] = []
    for run in reversed(_runs(told, depths)):
        first = run[0]
        following = began.get(first.finding.subject)
        began[first.finding.subject] = first.at
        steps.append(
            Step(
                cause=first,
                times=len(run),
                depth=depths[first.id],
                offset=first.at - ordered[0].at,
                lasted=None if following is None else following - first.at,
            )
        )
    return Life(uid=uid, began=ordered[0].at, steps=tuple(reversed(steps)), causes=tuple(ordered))


def _depths(ordered: list[Cause]) -> dict[CauseId, int]:
    depths: dict[CauseId, int] = {}
    for cause in ordered:
        depths[cause.id] = depths[cause.parent] + 1 if cause.parent is not None and cause.parent in depths else 0
    return depths


def _runs(ordered: list[Cause], depths: Mapping[CauseId, int]) -> list[list[Cause]]:
    runs: list[list[Cause]] = []
    once: dict[tuple[Subject, str], list[Cause]] = {}
    for cause in ordered:
        decision = cause.finding.decision
        earlier = once.get((cause.finding.subject, decision))
        if earlier is not None:
            earlier.append(cause)
            continue
        if runs and _tells_the_same(runs[-1][-1], cause) and depths[runs[-1][-1].id] == depths[cause.id]:
            runs[-1].append(cause)
            continue
        runs.append([cause])
        if decision in TOLD_ONCE:
            once[cause.finding.subject, decision] = runs[-1]
    return runs


def _tells_the_same(one: Cause, other: Cause) -> bool:
    return _told(one.finding) == _told(other.finding)


def _told(finding: Finding) -> tuple[Subject, str, str, str, str]:
    return (finding.subject, finding.decider, finding.decision, finding.message, finding.next)


def _waiting(ordered: list[Cause]) -> Waiting | None:
    """The newest record that announces something which has not come.

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
    """When the wait began: what the record itself says, else the first of the equal records before it."""
    if cause.finding.since is not None:
        return cause.finding.since
    since = cause.at
    for earlier in reversed(ordered):
        if earlier.finding.subject != cause.finding.subject:
            continue
        if not _tells_the_same(earlier, cause):
            break
        since = earlier.at
    return since


def _is_ending(cause: Cause) -> bool:
    return not cause.finding.subject.container and cause.finding.decision in ENDINGS

"""The story of a pod, from its cause records: what was decided when, on account of what, and what it waits for now."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from klet.model.causes import Cause, CauseId, Finding, Measurement, Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One line of the story: a decision, or several equal ones in a row."""

    cause: Cause
    """The first of them."""
    times: int
    depth: int
    """How many known ancestors it has."""
    offset: timedelta
    """Since the first record of the story."""
    lasted: timedelta | None
    """Until the next step about the same thing; None when that has not come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What the newest open decision waits for."""

    on: str
    subject: Subject
    message: str
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A story, oldest step first."""

    steps: tuple[Step, ...]
    waiting: Waiting | None


def build_timeline(causes: Iterable[Cause]) -> Timeline:
    """Order records into a story. Records may come in any order; ancestors that are not among them do not indent."""
    ordered = sorted({cause.id: cause for cause in causes}.values(), key=lambda cause: cause.id)
    if not ordered:
        return Timeline(steps=(), waiting=None)
    depths = _depths(ordered)
    runs = _runs(ordered, depths)
    starts: dict[Subject, datetime] = {}
    steps: list[Step] = []
    for run in reversed(runs):
        first = run[0]
        following = starts.get(first.finding.subject)
        starts[first.finding.subject] = first.at
        steps.append(
            Step(
                cause=first,
                times=len(run),
                depth=depths[first.id],
                offset=first.at - ordered[0].at,
                lasted=None if following is None else following - first.at,
            )
        )
    return Timeline(steps=tuple(reversed(steps)), waiting=_waiting(ordered))


def render_timeline(timeline: Timeline, *, now: datetime) -> list[str]:
    """The story as lines of text, the last one saying what is waited for."""
    lines = [_render_step(step) for step in timeline.steps]
    if timeline.waiting is not None:
        waiting = timeline.waiting
        about = f" ({waiting.subject.container})" if waiting.subject.container else ""
        lines.append(f"waiting for {render_duration(now - waiting.since)}{about}: {waiting.on}")
    return lines


def render_duration(duration: timedelta) -> str:
    """A length of time in the two largest units that matter: `12ms`, `3.4s`, `2m05s`, `3h10m`, `2d04h`."""
    milliseconds = max(0, round(duration / timedelta(milliseconds=1)))
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.1f}s"
    minutes, seconds = divmod(milliseconds // 1000, 60)
    if minutes < 60:
        return f"{minutes}m{seconds:02}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h{minutes:02}m"
    days, hours = divmod(hours, 24)
    return f"{days}d{hours:02}h"


def render_measurements(measurements: Mapping[str, Measurement]) -> str:
    return " ".join(
        f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in measurements.items()
    )


def _depths(ordered: list[Cause]) -> dict[CauseId, int]:
    depths: dict[CauseId, int] = {}
    for cause in ordered:
        depths[cause.id] = depths[cause.parent] + 1 if cause.parent is not None and cause.parent in depths else 0
    return depths


def _runs(ordered: list[Cause], depths: Mapping[CauseId, int]) -> list[list[Cause]]:
    runs: list[list[Cause]] = []
    for cause in ordered:
        if runs and _tells_the_same(runs[-1][-1], cause) and depths[runs[-1][-1].id] == depths[cause.id]:
            runs[-1].append(cause)
        else:
            runs.append([cause])
    return runs


def _tells_the_same(one: Cause, other: Cause) -> bool:
    return _told(one.finding) == _told(other.finding)


def _told(finding: Finding) -> tuple[Subject, str, str, str, str]:
    return (finding.subject, finding.decider, finding.decision, finding.message, finding.next)


def _waiting(ordered: list[Cause]) -> Waiting | None:
    """The newest record that announces something which has not come.

    It has come when there is a consequence, or a later record about the same thing.
    """
    parents = {cause.parent for cause in ordered}
    newest = {cause.finding.subject: cause for cause in ordered}
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


def _render_step(step: Step) -> str:
    finding = step.cause.finding
    about = f"{finding.subject.container}: " if finding.subject.container else ""
    parts = [f"+{render_duration(step.offset):>7}  {'  ' * step.depth}{about}{finding.decision}"]
    if step.times > 1:
        parts.append(f"({step.times} times)")
    if finding.message:
        parts.append(f"- {finding.message}")
    if finding.measurements:
        parts.append(f"[{render_measurements(finding.measurements)}]")
    if step.lasted is not None:
        parts.append(f"({render_duration(step.lasted)})")
    return " ".join(parts)

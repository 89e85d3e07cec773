"""The causal timeline of a pod as text: when, how long after the step before, who decided what, and why."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from klet.cli.client import CauseRecord, Explanation
from klet.cli.durations import exact_duration


def render_explanation(name: str, explanation: Explanation, *, now: datetime) -> str:
    lines = [name, *_timeline(explanation.timeline)]
    if explanation.waiting_for:
        last = explanation.timeline[-1] if explanation.timeline else None
        since = f" (for {exact_duration(now - (last.since or last.at))})" if last else ""
        lines.append(f"waiting for: {explanation.waiting_for}{since}")
    else:
        lines.append("waiting for nothing")
    return "\n".join(lines) + "\n"


def render_record(record: CauseRecord) -> str:
    """One decision on one line."""
    place = f"{record.subject.container}: " if record.subject.container else ""
    why = f": {record.message}" if record.message else ""
    return f"{place}{record.decision}{why}{_numbers(record)}"


def _timeline(records: Sequence[CauseRecord]) -> Iterator[str]:
    before: datetime | None = None
    for record in records:
        later = f"+{exact_duration(record.at - before)}" if before is not None else ""
        before = record.at
        yield f"  {record.at:%Y-%m-%d %H:%M:%S}.{record.at.microsecond // 1000:03} {later:>8}  {render_record(record)}"
        detail = [record.decider] if record.decider else []
        if record.since is not None:
            detail.append(f"since {record.since:%H:%M:%S}, {exact_duration(record.at - record.since)} before")
        if record.next:
            detail.append(f"next: {record.next}")
        if detail:
            yield " " * 36 + "; ".join(detail)


def _numbers(record: CauseRecord) -> str:
    if not record.measurements:
        return ""
    return " [" + ", ".join(f"{name}={value}" for name, value in record.measurements.items()) + "]"

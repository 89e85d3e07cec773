"""Decisions of the agent as text."""

from klet.cli.client import CauseRecord, Explanation
from klet.journal.timeline import render_decision


def render_explanation(name: str, explanation: Explanation) -> str:
    """The story of a pod, which the agent tells."""
    lines = [name, *(f"  {line}" for line in explanation.text)]
    if explanation.waiting_for is None:
        lines.append("  waiting for nothing")
    return "\n".join(lines) + "\n"


def render_record(record: CauseRecord) -> str:
    """One decision on one line."""
    return render_decision(
        record.decision,
        container=record.subject.container,
        message=record.message,
        measurements=record.measurements,
    )

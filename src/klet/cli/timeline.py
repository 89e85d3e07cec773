"""Decisions of the agent as text."""

from klet.cli.client import CauseRecord, Explanation


def render_explanation(name: str, explanation: Explanation) -> str:
    """The timeline of a pod; the agent tells the story, whose times count from the first record."""
    lines = [name]
    if explanation.timeline:
        lines[0] += f", since {explanation.timeline[0].at:%Y-%m-%d %H:%M:%S} UTC"
    lines += [f"  {line}" for line in explanation.text]
    if explanation.waiting_for is None:
        lines.append("  waiting for nothing")
    return "\n".join(lines) + "\n"


def render_record(record: CauseRecord) -> str:
    """One decision on one line."""
    place = f"{record.subject.container}: " if record.subject.container else ""
    why = f": {record.message}" if record.message else ""
    numbers = ", ".join(f"{name}={value}" for name, value in record.measurements.items())
    return f"{place}{record.decision}{why}" + (f" [{numbers}]" if numbers else "")

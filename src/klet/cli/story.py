"""Chooses what `klet up` tells of the agent's decisions: what a user waits for, not every step on the way."""

from klet.api.klet_v1 import CauseRecord
from klet.cli.timeline import render_record

TROUBLES = frozenset({"NetworkNotReady", "ManifestRejected", "Unhealthy"})
"""Decisions that tell why a pod does not get ready, beside all that begin with Failed."""
IN_STATUS = "Failed"
"""A container that cannot be started; its status says so too, in the words that `klet ps` has."""


def brief_line(record: CauseRecord) -> str | None:
    """The decision in a few words, or None if it only matters to those who look closely."""
    container, decision = record.subject.container, record.decision
    if decision == "Pulling":
        return f'container "{container}": {record.message[:1].lower()}{record.message[1:]}'
    if decision == "Started":
        return f'container "{container}" started'
    if decision in TROUBLES or (decision.startswith("Failed") and decision != IN_STATUS):
        return render_record(record)
    return None

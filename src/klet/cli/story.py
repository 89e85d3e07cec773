"""Chooses which of the agent's decisions `klet up` shows: what a user waits for, not every step on the way."""

from klet.api.klet_v1 import CauseRecord
from klet.cli.timeline import render_record
from klet.model.reasons import Reason

TROUBLES = frozenset(
    {
        Reason.NETWORK_NOT_READY,
        Reason.MANIFEST_REJECTED,
        Reason.UNHEALTHY,
        Reason.FAILED_CREATE_POD_CONTAINER,
        Reason.FAILED_CREATE_POD_SANDBOX,
        Reason.FAILED_KILL_CONTAINER,
        Reason.FAILED_KILL_POD,
        Reason.FAILED_MOUNT,
        Reason.FAILED_POD_SANDBOX_STATUS,
        Reason.FAILED_POST_START_HOOK,
        Reason.FAILED_PREPARE_DYNAMIC_RESOURCES,
        Reason.FAILED_PRE_STOP_HOOK,
        Reason.FAILED_SYNC,
        Reason.FAILED_TO_RETRIEVE_IMAGE_PULL_SECRET,
        Reason.FAILED_UNMOUNT,
        Reason.FAILED_VALIDATION,
    }
)
"""Decisions that say why a pod does not get ready.

Failed is not among them: a container that cannot be started is in the status too, in the words that `klet ps` has.
"""


def brief_line(record: CauseRecord) -> str | None:
    """Return the decision in a few words, or None if it only matters to those who look closely."""
    container, decision = record.subject.container, record.decision
    if decision == Reason.PULLING:
        return f'container "{container}": {record.message[:1].lower()}{record.message[1:]}'
    if decision == Reason.STARTED:
        return f'container "{container}" started'
    if decision in TROUBLES:
        return render_record(record)
    return None

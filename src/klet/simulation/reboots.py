"""What must be true of reboots in every story: each is recorded once, and named as the cause of what it did to pods."""

from collections.abc import Sequence
from itertools import pairwise

from klet.model.causes import Cause
from klet.model.pods import PodUID
from klet.model.reasons import Reason
from klet.simulation.chronicle import Chronicle

BEGINNINGS = frozenset({Reason.SANDBOX_CHANGED, Reason.CREATE_SANDBOX, Reason.RESTART_CONTAINER})
"""The first of these about a pod that a reboot hit is a consequence of the reboot."""
RENEWALS = frozenset({Reason.POD_REMOVED, Reason.TERMINATE})
"""After these a pod is stopped for another reason, and what has its UID later is another pod."""


def check_reboots(chronicle: Chronicle, causes: Sequence[Cause]) -> None:
    """Check the records of all reboots; the last one may have no agent after it."""
    recorded = [cause for cause in causes if cause.finding.decision == Reason.NODE_REBOOTED]
    if len(recorded) not in {len(chronicle.reboots), len(chronicle.reboots) - 1}:
        chronicle.violate(f"there were {len(chronicle.reboots)} reboots, and {len(recorded)} are recorded")
        return
    known = {cause.id: cause for cause in causes}
    for (record, following), reboot in zip(pairwise([*recorded, None]), chronicle.reboots, strict=False):
        if record is None:
            continue
        for uid in sorted(reboot.ended):
            consequence = _first_after(causes, uid, record, following)
            root = consequence
            while root is not None and root.parent is not None:
                root = known.get(root.parent)
            if consequence is not None and root is not record:
                what = f"{consequence.finding.decision} of {uid} after the reboot at {reboot.at:%H:%M:%S}"
                chronicle.violate(f"{what} comes from {root.finding.decision if root is not None else 'nothing'}")


def _first_after(causes: Sequence[Cause], uid: PodUID, record: Cause, following: Cause | None) -> Cause | None:
    """Return the first consequence for a pod; None if there is none, or the pod was stopped before."""
    for cause in causes:
        if cause.id <= record.id or cause.finding.subject.uid != uid:
            continue
        if following is not None and cause.id > following.id:
            return None
        if cause.finding.decision in RENEWALS:
            return None
        if cause.finding.decision in BEGINNINGS:
            return cause
    return None

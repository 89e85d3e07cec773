"""What must be true of requests: what runs never requests more than the node has, and no pod is rejected needlessly."""

from collections.abc import Iterator

from klet.api.pod import PodStatus
from klet.model.pods import PodUID
from klet.model.reasons import Reason
from klet.simulation.chronicle import Chronicle, History
from klet.simulation.pods import requested_cpu

ALLOCATABLE = 2000
"""Thousandths of a CPU that the simulated machine has for pods."""
ENDED = frozenset({"Succeeded", "Failed"})


def is_turned_away(status: PodStatus | None) -> bool:
    """Return whether a pod was rejected because it requests too much."""
    return status is not None and status.phase == "Failed" and status.reason == Reason.OUT_OF_CPU


def check_requests(chronicle: Chronicle) -> None:
    """Check that the pods that run fit on the node together. What is being removed does not count, as in upstream."""
    running = {
        instance.uid: instance.made_for
        for instance in chronicle.alive()
        if instance.made_for is chronicle.histories[instance.uid] and instance.made_for.is_wanted
    }
    total = sum(requested_cpu(history.pod) for history in running.values())
    if total > ALLOCATABLE:
        named = ", ".join(sorted(running))
        chronicle.violate(f"{named} run and request {total} thousandths of a CPU together, of {ALLOCATABLE}")


def check_rejection(chronicle: Chronicle, uid: PodUID, status: PodStatus | None) -> None:
    """Check that a pod is rejected only if all that may still hold something leave it too little."""
    history = chronicle.histories.get(uid)
    if history is None or not is_turned_away(status):
        return
    if history.instances:
        chronicle.violate(f"{uid} is rejected although it was admitted before")
    others = sum(requested_cpu(other.pod) for other in _may_hold(chronicle, uid))
    if others + requested_cpu(history.pod) <= ALLOCATABLE:
        chronicle.violate(f"{uid} is rejected for its CPU request, and all others request only {others}")


def _may_hold(chronicle: Chronicle, uid: PodUID) -> Iterator[History]:
    """Yield the other pods that the node may have admitted; an ended one holds nothing."""
    for other, history in chronicle.histories.items():
        if other != uid and (history.phase not in ENDED or history.instances):
            yield history

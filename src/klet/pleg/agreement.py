"""Compares events and lists with what was read of a pod. Pure."""

from collections.abc import Mapping

from klet.cri.events import EventKind
from klet.model.runtime import PodRuntimeStatus, RuntimeContainerState
from klet.pleg.cache import Reading


def agrees(status: PodRuntimeStatus, expected: Mapping[str, EventKind]) -> bool:
    """Say whether a reading shows what the events said."""
    states: dict[str, RuntimeContainerState] = {record.id: record.state for record in status.containers}
    sandboxes: dict[str, bool] = {sandbox.id: sandbox.ready for sandbox in status.sandboxes}
    return all(_agrees(member, kind, states, sandboxes) for member, kind in expected.items())


def is_news(listed: PodRuntimeStatus | None, before: PodRuntimeStatus | None, reading: Reading | None) -> bool:
    """Return whether the lists differ from those before, and show what has not been read since."""
    if reading is None or reading.error is not None:
        return True
    members = listed.members() if listed is not None else {}
    return members != (before.members() if before is not None else {}) and members != reading.status.members()


def _agrees(
    member: str, kind: EventKind, states: Mapping[str, RuntimeContainerState], sandboxes: Mapping[str, bool]
) -> bool:
    present = member in states or member in sandboxes
    match kind:
        case EventKind.STOPPED:
            # One that is said to be created has ended before its start was noted: it will show as running for a moment.
            is_over = states.get(member) not in {RuntimeContainerState.RUNNING, RuntimeContainerState.CREATED}
            return is_over and not sandboxes.get(member, False)
        case EventKind.STARTED:
            return present and states.get(member) not in {RuntimeContainerState.CREATED, RuntimeContainerState.UNKNOWN}
        case EventKind.DELETED:
            return not present
        case EventKind.CREATED | EventKind.OOM:
            return True

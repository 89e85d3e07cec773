"""Which restart count comes after what was reported of a container, for one that the runtime has forgotten."""

from klet.api.container_status import ContainerStateTerminated, ContainerStatus
from klet.api.pod import PodStatus
from klet.status.containers import STATUS_UNKNOWN


def next_restart_count(status: PodStatus, container: str) -> int:
    """The lowest count with which a new instance does not fall behind one that was told of."""
    every = (*status.init_container_statuses, *status.container_statuses, *status.ephemeral_container_statuses)
    return max((_count_after(each) for each in every if each.name == container), default=0)


def _count_after(status: ContainerStatus) -> int:
    """A container that ran has used its count up, one that was never started has not."""
    if status.state.running is not None:
        return status.restart_count + 1
    end = status.state.terminated or status.last_state.terminated
    return status.restart_count + (1 if end is not None and not _is_counted(end) else 0)


def _is_counted(end: ContainerStateTerminated) -> bool:
    """The loss of a container was counted as a restart when it was told."""
    return end.reason == STATUS_UNKNOWN and not end.container_id

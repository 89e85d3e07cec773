"""Computes the next restart count of a container that the runtime no longer has: from its logs or last status."""

from klet.api.container_status import ContainerStateTerminated, ContainerStatus
from klet.api.pod import Pod, PodStatus
from klet.model.pods import uid_of
from klet.model.restart_rules import RESTARTING_ALL
from klet.model.roles import RestartCounts
from klet.status.board import StatusBoard
from klet.status.containers import STATUS_UNKNOWN


class KnownRestarts:
    """Return the restart count by the logs or by what was reported: a log may be gone."""

    def __init__(self, *, logs: RestartCounts, statuses: StatusBoard) -> None:
        self._logs = logs
        self._statuses = statuses

    async def next_restart_count(self, pod: Pod, container: str) -> int:
        logged = await self._logs.next_restart_count(pod, container)
        reported = self._statuses.get(uid_of(pod)) or pod.status
        return max(logged, next_restart_count(reported, container))


def next_restart_count(status: PodStatus, container: str) -> int:
    """Return the lowest count that is not behind one that was reported."""
    every = (*status.init_container_statuses, *status.container_statuses, *status.ephemeral_container_statuses)
    return max((_count_after(each) for each in every if each.name == container), default=0)


def _count_after(status: ContainerStatus) -> int:
    """Return the count of the next instance: one that ran has used its count, one that never started has not."""
    if status.state.running is not None:
        return status.restart_count + 1
    end = status.state.terminated or status.last_state.terminated
    return status.restart_count + (1 if end is not None and not _is_counted(end) else 0)


def _is_counted(end: ContainerStateTerminated) -> bool:
    """Return whether the loss of a container was counted as a restart when it was reported."""
    return end.reason in {STATUS_UNKNOWN, RESTARTING_ALL} and not end.container_id

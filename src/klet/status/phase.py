"""The phase of a pod from its container statuses (getPhase)."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from klet.api.container import Container
from klet.api.container_status import ContainerStateTerminated, ContainerStatus
from klet.api.pod import Pod, PodStatus
from klet.api.pod_resources import is_sidecar
from klet.model.restart_rules import RESTARTING_ALL

PENDING = "Pending"
RUNNING = "Running"
SUCCEEDED = "Succeeded"
FAILED = "Failed"
UNKNOWN = "Unknown"
_ON_THE_WAY = frozenset({"ContainerCreating", "PodInitializing"})

RestartRule = Callable[[Container, int], bool]
"""Returns whether a container that ended with that exit code is started again."""
_EndRule = Callable[[Container, ContainerStateTerminated], bool]
"""Returns the same for an end as it is reported."""


class _Count(Struct):
    failed_init: int = 0
    pending_init: int = 0
    pending_sidecar: int = 0
    waiting: int = 0
    running: int = 0
    unknown: int = 0
    stopped: int = 0
    succeeded: int = 0
    restartable: int = 0


def is_terminal(phase: str) -> bool:
    return phase in {SUCCEEDED, FAILED}


def is_coming(status: PodStatus) -> bool:
    """Return whether the status only says that the pod starts, and nothing has failed."""
    if status.phase != PENDING or status.reason or status.message:
        return False
    containers = (*status.init_container_statuses, *status.container_statuses)
    return all(each.state.waiting is not None and each.state.waiting.reason in _ON_THE_WAY for each in containers)


def compute_phase(
    pod: Pod,
    statuses: Sequence[ContainerStatus],
    init_statuses: Sequence[ContainerStatus],
    *,
    is_initialized: bool,
    ends_here: bool,
    restarts: RestartRule,
    restart_all: bool = False,
) -> str:
    """Count the containers by state and take the first rule that fits.

    `ends_here` is true for a pod that will not be started again and is not static. With `restart_all` a container that
    was removed so that all restart comes back, whatever its policy.
    """

    def returns(container: Container, ended: ContainerStateTerminated) -> bool:
        return restarts(container, ended.exit_code) or (restart_all and ended.reason == RESTARTING_ALL)

    by_name = {status.name: status for status in (*init_statuses, *statuses)}
    count = _Count()
    for container in pod.spec.init_containers:
        if is_sidecar(container):
            _count_sidecar(count, by_name.get(container.name))
        else:
            _count_init(count, container, by_name.get(container.name), returns)
    for container in pod.spec.containers:
        _count_regular(count, container, by_name.get(container.name), returns)
    return _decide(count, is_initialized=is_initialized, ends_here=ends_here)


def _decide(count: _Count, *, is_initialized: bool, ends_here: bool) -> str:
    if count.failed_init:
        return FAILED
    if count.pending_init or (count.pending_sidecar and not is_initialized) or count.waiting:
        return PENDING
    if count.running and not count.unknown:
        return RUNNING
    if count.stopped and not count.running and not count.unknown:
        if count.restartable and not ends_here:
            return RUNNING
        return SUCCEEDED if count.stopped == count.succeeded else FAILED
    return PENDING


def _count_init(count: _Count, container: Container, status: ContainerStatus | None, returns: _EndRule) -> None:
    if status is None:
        count.pending_init += 1
        return
    ended = status.last_state.terminated if status.state.waiting is not None else status.state.terminated
    if ended is None:
        count.pending_init += 1
    elif ended.exit_code != 0 and not returns(container, ended):
        count.failed_init += 1


def _count_sidecar(count: _Count, status: ContainerStatus | None) -> None:
    if status is None:
        count.unknown += 1
    elif status.state.running is not None:
        if not status.started:
            count.pending_sidecar += 1
        count.running += 1
    elif status.state.terminated is not None:
        return
    elif status.state.waiting is None:
        count.pending_sidecar += 1
        count.unknown += 1
    elif status.last_state.terminated is None:
        count.pending_sidecar += 1
        count.waiting += 1


def _count_regular(count: _Count, container: Container, status: ContainerStatus | None, returns: _EndRule) -> None:
    if status is None:
        count.unknown += 1
    elif status.state.running is not None:
        count.running += 1
    elif (ended := status.state.terminated) is not None:
        count.stopped += 1
        count.succeeded += ended.exit_code == 0
        count.restartable += returns(container, ended)
    elif status.state.waiting is None:
        count.unknown += 1
    elif (last := status.last_state.terminated) is not None:
        count.stopped += 1
        count.restartable += returns(container, last)
    else:
        count.waiting += 1

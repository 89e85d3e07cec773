"""The restart count of a container that the runtime has forgotten, by what was reported of it."""

import pytest

from klet.api.container_status import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
)
from klet.api.pod import PodStatus
from klet.status.restarts import next_restart_count

NOTHING = ContainerState()
RUNNING = ContainerState(running=ContainerStateRunning())
WAITING = ContainerState(waiting=ContainerStateWaiting(reason="CrashLoopBackOff"))
ENDED = ContainerState(terminated=ContainerStateTerminated(exit_code=1, container_id="containerd://x"))
RESTARTING = ContainerState(terminated=ContainerStateTerminated(exit_code=137, reason="RestartingAllContainers"))
LOST = ContainerState(terminated=ContainerStateTerminated(exit_code=137, reason="ContainerStatusUnknown"))


def reported(state: ContainerState, last: ContainerState, *, restarts: int, name: str = "main") -> ContainerStatus:
    return ContainerStatus(name=name, state=state, last_state=last, restart_count=restarts)


@pytest.mark.parametrize(
    ("state", "last", "restarts", "expected"),
    [
        pytest.param(RUNNING, NOTHING, 0, 1, id="it ran"),
        pytest.param(RUNNING, LOST, 2, 3, id="it ran after one that was lost"),
        pytest.param(ENDED, NOTHING, 1, 2, id="it ended"),
        pytest.param(WAITING, ENDED, 1, 2, id="it ended, and its back-off is on"),
        pytest.param(WAITING, LOST, 1, 1, id="it was lost, which is counted already"),
        pytest.param(LOST, NOTHING, 1, 1, id="its state was unknown, which is counted already"),
        pytest.param(
            WAITING, RESTARTING, 4, 4, id="it was removed to restart with all others, which is counted already"
        ),
        pytest.param(WAITING, NOTHING, 0, 0, id="it was never started"),
        pytest.param(WAITING, NOTHING, 2, 2, id="a later instance was never started"),
    ],
)
def test_a_count_goes_on_from_what_was_reported(state, last, restarts, expected):
    assert next_restart_count(PodStatus(container_statuses=(reported(state, last, restarts=restarts),)), "main") == (
        expected
    )


def test_init_containers_count_too():
    status = PodStatus(init_container_statuses=(reported(ENDED, NOTHING, restarts=4, name="setup"),))
    assert next_restart_count(status, "setup") == 5


def test_another_container_says_nothing():
    status = PodStatus(container_statuses=(reported(ENDED, NOTHING, restarts=4, name="other"),))
    assert next_restart_count(status, "main") == 0

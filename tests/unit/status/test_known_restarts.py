"""What a new instance of a container counts on from, when the runtime knows of none before it."""

import pytest
from msgspec.structs import replace

from klet.api.container_status import ContainerState, ContainerStateTerminated, ContainerStatus
from klet.api.pod import PodStatus
from klet.model.pods import uid_of
from klet.status.board import StatusBoard
from klet.status.restarts import KnownRestarts
from klet.testing.builders import make_pod
from klet.testing.clock import ManualClock


class Logs:
    def __init__(self, count: int) -> None:
        self._count = count

    async def next_restart_count(self, _pod, _container: str) -> int:
        return self._count


def ended(restarts: int) -> PodStatus:
    end = ContainerState(terminated=ContainerStateTerminated(exit_code=1))
    return PodStatus(container_statuses=(ContainerStatus(name="main", state=end, restart_count=restarts),))


@pytest.mark.parametrize(
    ("logged", "reported", "from_api", "expected"),
    [
        pytest.param(0, None, None, 0, id="nothing is known"),
        pytest.param(3, None, None, 3, id="only its logs are left"),
        pytest.param(0, ended(1), None, 2, id="its logs are gone"),
        pytest.param(3, ended(1), None, 3, id="its logs know of later instances"),
        pytest.param(0, None, ended(1), 2, id="only the API server remembers"),
    ],
)
async def test_the_next_restart_count_falls_behind_nothing_that_is_known(logged, reported, from_api, expected):
    pod = replace(make_pod("main"), status=from_api or PodStatus())
    restored = {} if reported is None else {uid_of(pod): reported}
    board = StatusBoard(clock=ManualClock(), restored=restored)
    assert await KnownRestarts(logs=Logs(logged), statuses=board).next_restart_count(pod, "main") == expected

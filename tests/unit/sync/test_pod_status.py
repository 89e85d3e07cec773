from datetime import UTC, datetime

import pytest

from klet.api.container_status import ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStatus
from klet.api.pod import PodStatus
from klet.api.times import Time
from klet.sync.pod_status import describe_end, find_ends
from klet.testing.builders import make_pod

FINISHED = Time.of(datetime(2030, 1, 1, tzinfo=UTC))


def end(container: str, code: int = 1) -> ContainerState:
    return ContainerState(
        terminated=ContainerStateTerminated(
            exit_code=code, reason="Error", finished_at=FINISHED, container_id=container
        )
    )


RUNS = ContainerState(running=ContainerStateRunning())


def status(state: ContainerState, last: ContainerState = ContainerState()) -> PodStatus:  # noqa: B008 - immutable
    return PodStatus(container_statuses=(ContainerStatus(name="main", state=state, last_state=last),))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(PodStatus(), status(RUNS), [], id="a container that runs"),
        pytest.param(status(RUNS), status(end("a")), ["a"], id="one that has ended"),
        pytest.param(status(RUNS), status(RUNS, end("a")), ["a"], id="one that runs again already"),
        pytest.param(status(end("a")), status(RUNS, end("a")), [], id="an end that is known"),
        pytest.param(status(RUNS, end("a")), status(end("b"), end("a")), ["b"], id="the next end"),
        pytest.param(PodStatus(), status(end("")), [], id="an end that was never seen"),
    ],
)
def test_find_ends(old, new, expected):
    assert [ended.container_id for _, ended in find_ends(old, new)] == expected


def test_an_end_is_told_with_its_code_and_time():
    [found] = find_ends(PodStatus(), status(end("a", code=3)))
    told = describe_end(make_pod(), found)
    assert (told.decision, told.subject.container) == ("Exited", "main")
    assert told.message == "it ended with exit code 3 (Error)"
    assert (told.measurements, told.since) == ({"exitCode": 3}, FINISHED)

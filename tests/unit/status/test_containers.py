"""Last words in container statuses."""

import pytest

from klet.api.container_status import ContainerState, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus
from klet.status.containers import cut_messages
from klet.testing.builders import make_pod


def ended(message: str) -> ContainerState:
    return ContainerState(terminated=ContainerStateTerminated(exit_code=1, message=message))


@pytest.mark.parametrize(
    ("pod", "message", "expected"),
    [
        pytest.param(make_pod("a"), "x" * 13000, "x" * 12288, id="one container has it all"),
        pytest.param(make_pod("a", "b", init=("c",)), "x" * 13000, "x" * 4096, id="three share it"),
        pytest.param(make_pod("a", "b"), "x" * 6144, "x" * 6144, id="it just fits"),
        pytest.param(make_pod("a"), "x" * 12287 + "é", "x" * 12287, id="no half of a character is left"),
    ],
)
def test_last_words_are_cut_to_the_containers_share(pod, message, expected):
    status = ContainerStatus(name="a", state=ended(message), last_state=ended(message))
    assert cut_messages(pod, [status]) == (
        ContainerStatus(name="a", state=ended(expected), last_state=ended(expected)),
    )


def test_other_states_stay_as_they_are():
    status = ContainerStatus(name="a", state=ContainerState(waiting=ContainerStateWaiting(message="x" * 20000)))
    assert cut_messages(make_pod("a"), [status]) == (status,)

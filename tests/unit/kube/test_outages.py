import pytest

from klet.kube.outages import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    LOSSES_APART,
    LoggedOutage,
    ServerBack,
    ServerLost,
    ServerStillLost,
    decide_announcement,
)


def words(*attempts):
    """What is said of attempts, each an instant and why it failed, with when it is said."""
    reported, said = LoggedOutage(), []
    for now, why in attempts:
        reported, word = decide_announcement(reported, why, now=now)
        if word is not None:
            said.append((now, word))
    return said


def test_one_line_when_it_is_lost_and_one_when_it_is_back():
    attempts = [(0, ""), (1, "refused"), *((second, "cut") for second in range(2, 20)), (20, ""), (21, "")]
    assert words(*attempts) == [(1, ServerLost("refused", 1)), (20, ServerBack(19, 19))]


def test_lines_grow_further_apart():
    said = words(*((second, "refused") for second in range(4000)))
    instants = [now for now, _ in said]
    assert instants == [0, 30, 90, 210, 450, 930, 1530, 2130, 2730, 3330, 3930]
    assert said[1] == (30, ServerStillLost("refused", 31, 30))
    assert LONGEST_PAUSE == 600


@pytest.mark.parametrize(
    ("attempts", "expected"),
    [
        pytest.param([(0, "a"), (1, ""), (2, "b"), (3, ""), (4, "c"), (5, "")], [ServerLost("a", 1), ServerBack(1, 1)],
                     id="one that comes and goes is reported once"),
        pytest.param([(0, "a"), (1, ""), (2, "b"), (3, ""), (LOSSES_APART, "c")],
                     [ServerLost("a", 1), ServerBack(1, 1), ServerLost("c", 2)],
                     id="and again after a while, with all that failed"),
        pytest.param([(0, "a"), (1, ""), (2, "b"), (LOSSES_APART, "c")],
                     [ServerLost("a", 1), ServerBack(1, 1), ServerLost("c", 2)],
                     id="one that is soon lost again for long is reported"),
        pytest.param([(0, "a"), (FIRST_PAUSE, "b"), (40, ""), (50, "c"), (1000, ""), (2000, "d")],
                     [ServerLost("a", 1), ServerStillLost("b", 2, 30), ServerBack(2, 40), ServerLost("d", 1)],
                     id="what failed long ago is not counted"),
    ],
)  # fmt: skip
def test_a_connection_that_is_lost_again(attempts, expected):
    assert [word for _, word in words(*attempts)] == expected

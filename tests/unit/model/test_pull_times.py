import pytest

from klet.model.pull_times import PullTimes


@pytest.mark.parametrize(
    ("pulls", "seconds"),
    [
        pytest.param((), 0, id="nothing was pulled"),
        pytest.param(((1, 4), (10, 12)), 5, id="one after the other"),
        pytest.param(((1, 4), (2, 6)), 5, id="two at the same time count once"),
        pytest.param(((1, 9), (2, 3)), 8, id="one within another"),
    ],
)
def test_how_long_a_pod_waited_for_images(pulls, seconds):
    times = PullTimes()
    for began, ended in pulls:
        times.note("uid", began=began, ended=ended)
    assert times.seconds("uid") == seconds


def test_pods_that_are_gone_are_forgotten():
    times = PullTimes()
    times.note("a", began=1, ended=2)
    times.note("b", began=1, ended=2)
    times.keep_only(frozenset({"b"}))
    assert (times.seconds("a"), times.seconds("b")) == (0, 1)

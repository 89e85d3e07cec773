from datetime import timedelta

import pytest

from klet.kube.informer import HEALTHY_AFTER, STEADY_AFTER, RetryPace, decide_pace

MOMENT = timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("lasted", "expected"),
    [
        pytest.param(timedelta(0), RetryPace.AFTER_NEXT_DELAY, id="a server that is away is asked ever more rarely"),
        pytest.param(STEADY_AFTER - MOMENT, RetryPace.AFTER_NEXT_DELAY, id="a watch that hardly held proves nothing"),
        pytest.param(STEADY_AFTER, RetryPace.AFTER_FIRST_DELAY, id="a watch that held makes the delays begin again"),
        pytest.param(HEALTHY_AFTER, RetryPace.AT_ONCE, id="a watch that ended in the ordinary way goes on at once"),
    ],
)
def test_decide_pace(lasted, expected):
    assert decide_pace(lasted) is expected

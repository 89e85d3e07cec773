"""Whether the sync loop is stuck."""

from datetime import timedelta

import pytest

from klet.sync.loop import describe_loop
from klet.testing.loop import EPOCH

STUCK = "sync Loop took longer than expected"


@pytest.mark.parametrize(
    ("resync", "ago", "expected"),
    [
        pytest.param(60, None, None, id="it has not begun"),
        pytest.param(60, 300, None, id="five minutes are not too long"),
        pytest.param(60, 301, STUCK, id="more are"),
        pytest.param(600, 1200, None, id="a slow pace is given two rounds"),
        pytest.param(600, 1201, STUCK, id="and no more"),
    ],
)
def test_describe_loop(resync, ago, expected):
    entered_at = None if ago is None else EPOCH - timedelta(seconds=ago)
    assert describe_loop(entered_at, now=EPOCH, resync=timedelta(seconds=resync)) == expected

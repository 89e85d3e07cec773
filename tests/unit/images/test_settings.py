"""How many pulls run at a time, and how many records are kept in memory."""

import pytest

from klet.images.settings import RecordLimits, choose_limits, choose_pulls_at_once


@pytest.mark.parametrize(
    ("is_serial", "most", "expected"),
    [(True, None, 1), (True, 1, 1), (False, 1, 1), (False, 5, 5), (False, None, None)],
)
def test_pulls_at_a_time(is_serial, most, expected):
    assert choose_pulls_at_once(is_serial=is_serial, most=most) == expected


@pytest.mark.parametrize(
    ("max_pods", "most_pulls", "expected"),
    [
        pytest.param(110, None, RecordLimits(220, 550), id="by the number of pods"),
        pytest.param(10, 100, RecordLimits(200, 50), id="more pulls than pods"),
        pytest.param(5000, 5000, RecordLimits(1024, 2000), id="never more"),
        pytest.param(0, None, RecordLimits(1, 1), id="never none"),
    ],
)
def test_what_is_kept_in_memory(max_pods, most_pulls, expected):
    assert choose_limits(max_pods=max_pods, most_pulls=most_pulls) == expected

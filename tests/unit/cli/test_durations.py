from datetime import timedelta

import pytest

from klet.cli.durations import age, exact_duration, human_duration

DAY = 86400


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (-60, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (599, "9m59s"),
        (600, "10m"),
        (10799, "179m"),
        (10800, "3h"),
        (3 * 3600 + 61, "3h1m"),
        (8 * 3600, "8h"),
        (47 * 3600, "47h"),
        (48 * 3600, "2d"),
        (2 * DAY + 3600, "2d1h"),
        (8 * DAY + 3600, "8d"),
        (729 * DAY, "729d"),
        (730 * DAY, "2y"),
        (731 * DAY, "2y1d"),
        (3000 * DAY, "8y"),
    ],
)
def test_human_duration(seconds, expected):
    assert human_duration(timedelta(seconds=seconds)) == expected


@pytest.mark.parametrize(("seconds", "expected"), [(0.0124, "12ms"), (1.237, "1.24s"), (42.4, "42s"), (150, "2m30s")])
def test_exact_duration(seconds, expected):
    assert exact_duration(timedelta(seconds=seconds)) == expected


def test_age(now):
    assert age(None, now=now) == "<unknown>"
    assert age(now - timedelta(minutes=3), now=now) == "3m"

"""The words for how far a pull is."""

from datetime import UTC, datetime, timedelta

import pytest

from klet.model.pull_progress import PullProgress, PullStage, describe_bytes, describe_pull, describe_seconds

SINCE = datetime(2026, 1, 1, tzinfo=UTC)
MIB = 1 << 20


def pull(**more):
    more = {"elapsed": timedelta(seconds=75), **more}
    return PullProgress(image="app:1", namespace="default", pod="web", since=SINCE, **more)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(pull(), "for 1m15s", id="a runtime that says nothing"),
        pytest.param(
            pull(stage=PullStage.FETCHING, fetched=12 * MIB, total=50 * MIB),
            "12.0 MiB of 50.0 MiB (24 %)",
            id="no rate yet",
        ),
        pytest.param(
            pull(stage=PullStage.FETCHING, fetched=MIB, total=50 * MIB, rate=4.5 * MIB, left=timedelta(seconds=10.9)),
            "1.0 MiB of 50.0 MiB (2 %), 4.5 MiB/s, 10s left",
            id="all is known",
        ),
        pytest.param(
            pull(stage=PullStage.FETCHING, fetched=MIB, total=50 * MIB, rate=0.0),
            "1.0 MiB of 50.0 MiB (2 %), nothing arrives",
            id="a registry that has stopped",
        ),
        pytest.param(
            pull(stage=PullStage.UNPACKING, fetched=50 * MIB, total=50 * MIB, rate=9.0),
            "all 50.0 MiB fetched, being unpacked",
            id="everything is fetched",
        ),
    ],
)
def test_description(given, expected):
    assert describe_pull(given) == expected


@pytest.mark.parametrize(
    ("fetched", "total", "expected"),
    [
        pytest.param(None, None, None, id="nothing is known"),
        pytest.param(0, 10, 0, id="nothing is there"),
        pytest.param(999, 1000, 99, id="almost all is not all"),
        pytest.param(10, 10, 100, id="all of it"),
        pytest.param(0, 0, 100, id="an image of nothing is all there"),
    ],
)
def test_percent(fetched, total, expected):
    assert pull(fetched=fetched, total=total).percent == expected


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (MIB - 1, "1.0 MiB"),
        (50 * MIB, "50.0 MiB"),
        (3 << 30, "3.0 GiB"),
        (2 << 40, "2.0 TiB"),
        (2 << 50, "2048.0 TiB"),
    ],
)
def test_bytes(count, expected):
    assert describe_bytes(count) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0, "0s"), (59.9, "59s"), (60, "1m0s"), (3599, "59m59s"), (3840, "1h4m")]
)
def test_seconds(seconds, expected):
    assert describe_seconds(timedelta(seconds=seconds)) == expected

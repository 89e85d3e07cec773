"""How far a pull is, in a column of a table."""

from datetime import UTC, datetime

import pytest

from klet.api.klet_v1 import PullEntry
from klet.cli.pod_table import build_row
from klet.cli.pull_words import brief_pull, percent_of, pulls_by_pod

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def pull(**more):
    return PullEntry(**{"image": "app:1", "namespace": "default", "pod": "web", "since": NOW, **more})


FETCHING = {"stage": "fetching", "fetched_bytes": 249, "total_bytes": 1000}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(pull(elapsed_seconds=12.9), "pulling for 12s", id="only the time"),
        pytest.param(pull(**FETCHING), "pulling 24%", id="no rate yet"),
        pytest.param(pull(**FETCHING, seconds_left=9.7), "pulling 24%, 9s left", id="all is known"),
        pytest.param(pull(stage="unpacking", fetched_bytes=10, total_bytes=10), "unpacking", id="all is fetched"),
        pytest.param(pull(stage="thawing", elapsed_seconds=1), "pulling for 1s", id="a stage of a newer agent"),
    ],
)
def test_words(given, expected):
    assert brief_pull(given) == expected


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, None),
        ({"fetched_bytes": 1, "total_bytes": 0}, None),
        ({"fetched_bytes": 0, "total_bytes": 9}, 0),
        ({"fetched_bytes": 9, "total_bytes": 9}, 100),
    ],
)
def test_percent(more, expected):
    assert percent_of(pull(**more)) == expected


def test_a_pod_with_two_pulls_shows_the_first():
    first, second, other = pull(), pull(image="b"), pull(pod="other")
    assert pulls_by_pod([first, second, other]) == {("default", "web"): first, ("default", "other"): other}


CREATING = {"waiting": {"reason": "ContainerCreating"}}


@pytest.mark.parametrize(
    ("more", "given", "expected"),
    [
        pytest.param({}, pull(**FETCHING), "ContainerCreating (pulling 24%)", id="a pod that waits for an image"),
        pytest.param({}, None, "ContainerCreating", id="a pod that waits for something else"),
        pytest.param(
            {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
            pull(**FETCHING),
            "Terminating",
            id="a pod that stops does not wait any more",
        ),
    ],
)
def test_status_column(build_pod, more, given, expected):
    pod = build_pod(containers=[build_pod.status("a", CREATING)], phase="Pending", **more)
    assert build_row(pod, now=NOW, pull=given).status == expected

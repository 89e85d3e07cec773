"""The time that a pod may be active."""

from datetime import UTC, timedelta

import pytest
from msgspec.structs import replace

from klet.api.pod import PodStatus
from klet.api.times import Time
from klet.sync.deadline import deadline_of, is_past_deadline
from klet.testing.builders import make_pod
from klet.testing.loop import EPOCH

START = Time.of(EPOCH)
LAST = Time(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
EARLIER = Time.of(EPOCH - timedelta(seconds=100))


@pytest.mark.parametrize(
    ("seconds", "reported", "api", "after", "expected"),
    [
        pytest.param(30, START, None, 29.9, False, id="just before"),
        pytest.param(30, START, None, 30, True, id="to the second"),
        pytest.param(30, START, EARLIER, 0, False, id="what was reported counts first"),
        pytest.param(30, None, EARLIER, 0, True, id="else what the API server has"),
        pytest.param(30, None, None, 9999, False, id="a pod that has not started has time"),
        pytest.param(None, START, START, 9999, False, id="a pod without a deadline has time"),
        pytest.param(0, START, None, 0, True, id="no time at all"),
        pytest.param(30, None, LAST, 0, False, id="a start at the end of the calendar"),
        pytest.param(2**63 - 1, START, None, 9999, False, id="more time than there is"),
    ],
)
def test_deadline(seconds, reported, api, after, expected):
    pod = make_pod()
    pod = replace(
        pod, spec=replace(pod.spec, active_deadline_seconds=seconds), status=replace(pod.status, start_time=api)
    )
    status = PodStatus(start_time=reported)
    assert is_past_deadline(pod, status, now=EPOCH + timedelta(seconds=after)) is expected


def test_the_api_decides_about_a_pod_without_a_reported_status():
    pod = make_pod()
    pod = replace(pod, spec=replace(pod.spec, active_deadline_seconds=5), status=replace(pod.status, start_time=START))
    assert deadline_of(pod, None) == EPOCH + timedelta(seconds=5)

from datetime import timedelta

import pytest

from klet.model.probes import ProbeResult
from klet.model.readiness import ProbeFacts, is_older_than_agent, is_ready, is_started
from klet.testing.builders import NOW

SUCCESS, FAILURE, UNKNOWN = ProbeResult.SUCCESS, ProbeResult.FAILURE, ProbeResult.UNKNOWN


@pytest.mark.parametrize(
    ("facts", "want"),
    [
        pytest.param(ProbeFacts(), True, id="nothing probes it"),
        pytest.param(ProbeFacts(has_startup_worker=True), False, id="a probe has not answered"),
        pytest.param(ProbeFacts(has_startup_worker=True, startup=SUCCESS), True, id="the probe passed"),
        pytest.param(ProbeFacts(has_startup_worker=True, startup=FAILURE), False, id="the probe failed"),
        pytest.param(ProbeFacts(startup=UNKNOWN, was_started=True), False, id="any result is newer than the report"),
        pytest.param(ProbeFacts(has_startup_worker=True, was_started=True), True, id="it was reported as started"),
    ],
)
def test_is_started(facts, want):
    assert is_started(facts) is want


PROBED = {"has_readiness_probe": True, "has_readiness_worker": True}


@pytest.mark.parametrize(
    ("facts", "want"),
    [
        pytest.param(ProbeFacts(), True, id="no probe"),
        pytest.param(ProbeFacts(is_older=True), True, id="no probe, older than the agent"),
        pytest.param(ProbeFacts(**PROBED, readiness=SUCCESS), True, id="the probe passed"),
        pytest.param(ProbeFacts(**PROBED, readiness=SUCCESS, is_older=True), True, id="the probe passed, older"),
        pytest.param(ProbeFacts(**PROBED, was_pod_ready=True), False, id="new and not probed yet"),
        pytest.param(ProbeFacts(**PROBED, readiness=FAILURE, was_pod_ready=True), False, id="new and failed"),
        pytest.param(ProbeFacts(**PROBED, is_older=True, was_pod_ready=True), True, id="older, was ready"),
        pytest.param(ProbeFacts(**PROBED, is_older=True), False, id="older, was not ready"),
        pytest.param(
            ProbeFacts(**PROBED, is_older=True, readiness=FAILURE, was_pod_ready=True), False, id="older and failed"
        ),
        pytest.param(ProbeFacts(**PROBED, was_ready=True), True, id="young, and reported as ready"),
        pytest.param(
            ProbeFacts(**PROBED, was_ready=True, readiness=FAILURE), False, id="reported as ready, and failed"
        ),
        pytest.param(ProbeFacts(was_ready=False), True, id="reported as not ready, and nothing probes it now"),
        pytest.param(
            ProbeFacts(**PROBED, is_older=True, was_ready=True), True, id="older, ready in a pod that was not"
        ),
        pytest.param(
            ProbeFacts(**PROBED, is_older=True, was_ready=False, was_pod_ready=True),
            False,
            id="older, reported as not ready",
        ),
        pytest.param(
            ProbeFacts(has_readiness_probe=True, is_older=True, was_pod_ready=True), True, id="older, no worker yet"
        ),
        pytest.param(
            ProbeFacts(has_readiness_probe=True, is_older=True), False, id="older, was not ready, no worker yet"
        ),
    ],
)
def test_is_ready(facts, want):
    assert is_ready(facts) is want


@pytest.mark.parametrize(
    ("seconds", "want"),
    [pytest.param(10, False, id="ten seconds before is new"), pytest.param(11, True, id="more than that is older")],
)
def test_is_older_than_agent(seconds, want):
    assert is_older_than_agent(NOW - timedelta(seconds=seconds), NOW) is want


def test_what_is_not_known_is_not_older():
    assert not is_older_than_agent(None, NOW)
    assert not is_older_than_agent(NOW, None)

import pytest

from klet.model.probes import ProbeKind, ProbeResult
from klet.model.runtime import ContainerId
from klet.probes.decision import ProbeRules, ProbeState, end_round
from klet.probes.findings import describe_bad_periods, describe_outcome
from klet.probes.handler import ProbeAnswer, ProbeOutcome
from klet.testing.builders import NOW, make_pod

POD = make_pod("main")
STATE = ProbeState(id=ContainerId("main-0"))


def describe(kind, outcome, *, state=STATE):
    rules = ProbeRules(kind=kind, container="main", restarts=lambda _code, _reported: True, agent_started=NOW)
    return describe_outcome(POD, rules, state, end_round(rules, state, outcome), outcome)


@pytest.mark.parametrize(
    ("kind", "outcome", "decision", "message"),
    [
        pytest.param(
            ProbeKind.READINESS,
            ProbeOutcome(ProbeAnswer.FAILURE, "HTTP probe failed with statuscode: 500"),
            "Unhealthy",
            "Readiness probe failed: HTTP probe failed with statuscode: 500",
            id="a failure",
        ),
        pytest.param(
            ProbeKind.STARTUP,
            ProbeOutcome(ProbeAnswer.WARNING, "Probe terminated redirects, Response body: x"),
            "ProbeWarning",
            "Startup probe warning: Probe terminated redirects, Response body: x",
            id="a warning",
        ),
        pytest.param(
            ProbeKind.LIVENESS,
            ProbeOutcome(ProbeAnswer.UNKNOWN, error="invalid port number: 0"),
            "Unhealthy",
            "Liveness probe errored and resulted in unknown state: invalid port number: 0",
            id="an error",
        ),
        pytest.param(
            ProbeKind.LIVENESS,
            ProbeOutcome(ProbeAnswer.FAILURE, error="unexpected EOF"),
            "Unhealthy",
            "Liveness probe errored and resulted in failure state: unexpected EOF",
            id="a body that broke off",
        ),
    ],
)
def test_describe_outcome(kind, outcome, decision, message):
    finding = describe(kind, outcome)
    assert (finding.decision, finding.message, finding.subject.container) == (decision, message, "main")
    assert finding.measurements["probe"] == str(kind)


@pytest.mark.parametrize("answer", [ProbeAnswer.SUCCESS, ProbeAnswer.UNKNOWN])
def test_what_goes_without_saying(answer):
    assert describe(ProbeKind.LIVENESS, ProbeOutcome(answer)) is None


@pytest.mark.parametrize(
    ("kind", "before", "following"),
    [
        pytest.param(
            ProbeKind.LIVENESS,
            1,
            "the container is killed after 3 failures in a row, of which this is number 2",
            id="below the threshold",
        ),
        pytest.param(
            ProbeKind.LIVENESS,
            2,
            "the container is killed, and its restart policy decides whether it starts again",
            id="at the threshold",
        ),
        pytest.param(ProbeKind.READINESS, 1, "", id="readiness below the threshold"),
        pytest.param(ProbeKind.READINESS, 2, "the container is not ready until the probe succeeds", id="not ready"),
    ],
)
def test_what_comes_next(kind, before, following):
    state = ProbeState(id=ContainerId("main-0"), last=ProbeResult.FAILURE, count=before)
    finding = describe(kind, ProbeOutcome(ProbeAnswer.FAILURE, "no"), state=state)
    assert finding.next == following
    assert finding.measurements == {"probe": str(kind), "failuresInARow": before + 1, "failureThreshold": 3}


def test_bad_periods():
    finding = describe_bad_periods(POD, "why")
    assert (finding.decision, finding.message) == ("ProbePeriodsIgnored", "why")

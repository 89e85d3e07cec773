from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.api.handlers import Probe
from klet.model.probes import ProbeKind
from klet.probes.periods import ANNOTATION, ProbePeriodsError, parse_periods, probe_periods
from klet.testing.builders import make_container, make_pod

READINESS, LIVENESS = ProbeKind.READINESS, ProbeKind.LIVENESS


def annotated(text, pod):
    return replace(pod, metadata=replace(pod.metadata, annotations={ANNOTATION: text}))


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("", {}, id="empty"),
        pytest.param("main.readiness=200ms", {("main", READINESS): 200}, id="one"),
        pytest.param(
            " main.readiness = 1.5s , db.liveness=500ms ",
            {("main", READINESS): 1500, ("db", LIVENESS): 500},
            id="several, with blanks",
        ),
        pytest.param("main.startup=10ms", {("main", ProbeKind.STARTUP): 10}, id="the shortest"),
    ],
)
def test_parse_periods(text, want):
    assert parse_periods(text) == {key: timedelta(milliseconds=length) for key, length in want.items()}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("main.readiness", "must have the form <container>.<probe>=<duration>", id="no duration"),
        pytest.param("readiness=1s", "must have the form <container>.<probe>=<duration>", id="no container"),
        pytest.param("a.readiness=1s,", '"" must have the form', id="a trailing comma"),
        pytest.param("main.ready=1s", '"ready" must be one of startup, readiness, liveness', id="no such probe"),
        pytest.param("main.readiness=fast", 'time: invalid duration "fast"', id="no length of time"),
        pytest.param("main.readiness=200", "time: missing unit in duration", id="no unit"),
        pytest.param("main.readiness=9ms", "at least 10ms", id="too short"),
        pytest.param("main.readiness=-1s", "at least 10ms", id="negative"),
        pytest.param("a.readiness=1s,a.readiness=2s", "gives a.readiness a second period", id="twice"),
    ],
)
def test_periods_that_cannot_be_read(text, message):
    with pytest.raises(ProbePeriodsError) as caught:
        parse_periods(text)
    assert str(caught.value).startswith("metadata.annotations[klet.dev/probe-periods]: ")
    assert message in str(caught.value)


def test_a_period_must_name_a_probe_of_the_pod():
    sidecar = replace(make_container("proxy", restart_policy="Always"), liveness_probe=Probe())
    pod = make_pod(replace(make_container("main"), readiness_probe=Probe()), init=("setup", sidecar))
    assert probe_periods(pod) == {}
    assert set(probe_periods(annotated("main.readiness=1s,proxy.liveness=1s", pod))) == {
        ("main", READINESS),
        ("proxy", LIVENESS),
    }
    with pytest.raises(ProbePeriodsError, match=r'no container "setup" that is probed \(it has main, proxy\)'):
        probe_periods(annotated("setup.readiness=1s", pod))
    with pytest.raises(ProbePeriodsError, match='container "main" has no liveness probe'):
        probe_periods(annotated("main.liveness=1s", pod))

from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.api.container_status import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
)
from klet.api.pod import PodStatus
from klet.api.times import Time
from klet.model.probes import ProbeKind, ProbeResult
from klet.model.runtime import ContainerId
from klet.probes.decision import ProbeRules, ProbeState, ProbeWait, Run, Stop, Write, begin_round, end_round
from klet.probes.handler import ProbeAnswer, ProbeOutcome
from klet.testing.builders import NOW

STARTUP, READINESS, LIVENESS = ProbeKind.STARTUP, ProbeKind.READINESS, ProbeKind.LIVENESS
SUCCESS, FAILURE, UNKNOWN = ProbeResult.SUCCESS, ProbeResult.FAILURE, ProbeResult.UNKNOWN
SECOND = timedelta(seconds=1)
FIRST, SECOND_ID = ContainerId("main-0"), ContainerId("main-1")
GOOD, BAD = ProbeOutcome(ProbeAnswer.SUCCESS), ProbeOutcome(ProbeAnswer.FAILURE, "no")


def rules(kind=READINESS, **given):
    made = {
        "container": "main",
        "restarts": lambda code, _reported: code != 0,
        "agent_started": NOW - timedelta(hours=1),
    }
    return ProbeRules(kind=kind, **(made | given))


def running(*, ago=timedelta(minutes=1), started=True, instance="main-0"):
    state = ContainerState(running=ContainerStateRunning(started_at=Time.of(NOW - ago)))
    return ContainerStatus(name="main", container_id=f"containerd://{instance}", state=state, started=started)


def ended(code):
    state = ContainerState(terminated=ContainerStateTerminated(exit_code=code))
    return ContainerStatus(name="main", container_id="containerd://main-0", state=state, started=False)


WAITING = ContainerStatus(
    name="main", container_id="containerd://main-0", state=ContainerState(waiting=ContainerStateWaiting())
)


def reported(*containers, phase="Running", init=()):
    return PodStatus(phase=phase, container_statuses=containers, init_container_statuses=init)


KNOWN = ProbeState(id=FIRST)


@pytest.mark.parametrize(
    ("kind", "state", "status", "want", "writes"),
    [
        pytest.param(READINESS, KNOWN, None, ProbeWait(), (), id="no status yet"),
        pytest.param(READINESS, KNOWN, reported(running(), phase="Failed"), Stop(), (), id="the pod failed"),
        pytest.param(READINESS, KNOWN, reported(running(), phase="Succeeded"), Stop(), (), id="the pod succeeded"),
        pytest.param(READINESS, ProbeState(), reported(), ProbeWait(), (), id="the container is not reported"),
        pytest.param(
            READINESS,
            ProbeState(),
            reported(replace(running(), container_id="")),
            ProbeWait(),
            (),
            id="the container has no instance yet",
        ),
        pytest.param(
            READINESS, ProbeState(), reported(running()), Run(), (Write(FIRST, FAILURE),), id="readiness begins failed"
        ),
        pytest.param(
            LIVENESS, ProbeState(), reported(running()), Run(), (Write(FIRST, SUCCESS),), id="liveness begins well"
        ),
        pytest.param(
            STARTUP,
            ProbeState(),
            reported(running(started=False)),
            Run(),
            (Write(FIRST, UNKNOWN),),
            id="startup begins unknown and is probed in the same round",
        ),
        pytest.param(
            READINESS,
            KNOWN,
            reported(running(instance="main-1")),
            Run(),
            (Write(FIRST, None), Write(SECOND_ID, FAILURE)),
            id="a new instance replaces the old one",
        ),
        pytest.param(
            LIVENESS,
            replace(KNOWN, on_hold=True),
            reported(running(instance="main-1")),
            Run(),
            (Write(FIRST, None), Write(SECOND_ID, SUCCESS)),
            id="a new instance ends the hold",
        ),
        pytest.param(LIVENESS, replace(KNOWN, on_hold=True), reported(running()), ProbeWait(), (), id="on hold"),
        pytest.param(
            READINESS,
            KNOWN,
            reported(WAITING),
            ProbeWait(),
            (Write(FIRST, FAILURE),),
            id="waiting: failed, and goes on",
        ),
        pytest.param(
            READINESS, KNOWN, reported(ended(1)), ProbeWait(), (Write(FIRST, FAILURE),), id="ended, to be restarted"
        ),
        pytest.param(READINESS, KNOWN, reported(ended(0)), Stop(), (Write(FIRST, FAILURE),), id="ended for good"),
        pytest.param(STARTUP, KNOWN, reported(running()), ProbeWait(), (), id="startup does not run once started"),
        pytest.param(
            LIVENESS, KNOWN, reported(running(started=False)), ProbeWait(), (), id="liveness waits for started"
        ),
        pytest.param(
            READINESS, KNOWN, reported(running(started=None)), ProbeWait(), (), id="unset started is not started"
        ),
        pytest.param(READINESS, KNOWN, reported(init=(running(),)), Run(), (), id="a sidecar is found too"),
    ],
)
def test_begin_round(kind, state, status, want, writes):
    result = begin_round(rules(kind), state, status, is_deleted=False, now=NOW)
    assert (result.next, result.writes) == (want, writes)


@pytest.mark.parametrize(
    ("kind", "want", "writes"),
    [
        pytest.param(LIVENESS, Stop(), (Write(FIRST, SUCCESS),), id="liveness ends well"),
        pytest.param(STARTUP, Stop(), (Write(FIRST, SUCCESS),), id="startup ends well"),
        pytest.param(READINESS, Run(), (), id="readiness goes on"),
    ],
)
def test_a_deleted_pod(kind, want, writes):
    result = begin_round(rules(kind), KNOWN, reported(running()), is_deleted=True, now=NOW)
    assert (result.next, result.writes) == (want, writes)


@pytest.mark.parametrize(
    ("kind", "ago", "want"),
    [
        pytest.param(LIVENESS, 4 * SECOND, ProbeWait(), id="within the delay a probe that kills keeps its period"),
        pytest.param(READINESS, 4 * SECOND, ProbeWait(until=NOW + SECOND), id="readiness runs when the delay is over"),
        pytest.param(LIVENESS, 5 * SECOND, Run(), id="after the delay"),
    ],
)
def test_initial_delay(kind, ago, want):
    result = begin_round(
        rules(kind, initial_delay=5 * SECOND), KNOWN, reported(running(ago=ago)), is_deleted=False, now=NOW
    )
    assert result.next == want


def test_the_initial_delay_counts_whole_seconds():
    almost = NOW + timedelta(milliseconds=900)
    result = begin_round(
        rules(LIVENESS, initial_delay=5 * SECOND),
        KNOWN,
        reported(running(ago=4 * SECOND)),
        is_deleted=False,
        now=almost,
    )
    assert result.next == ProbeWait()


@pytest.mark.parametrize(
    ("kind", "is_sidecar", "ago", "writes"),
    [
        pytest.param(READINESS, False, 11, (), id="readiness of an older container is not known"),
        pytest.param(LIVENESS, False, 11, (), id="liveness of an older container is not known"),
        pytest.param(STARTUP, False, 11, (), id="startup of an older container is not known"),
        pytest.param(STARTUP, True, 11, (Write(FIRST, SUCCESS),), id="an older sidecar that had started stays started"),
        pytest.param(READINESS, True, 11, (), id="only the startup probe of a sidecar is special"),
        pytest.param(
            READINESS,
            False,
            10,
            (Write(FIRST, FAILURE),),
            id="readiness of a newer container starts from the beginning",
        ),
        pytest.param(
            LIVENESS, False, 10, (Write(FIRST, SUCCESS),), id="liveness of a newer container starts from the beginning"
        ),
        pytest.param(STARTUP, False, 10, (), id="a newer container that was reported as started stays started"),
        pytest.param(STARTUP, True, 10, (Write(FIRST, SUCCESS),), id="a newer sidecar that had started stays started"),
    ],
)
def test_after_a_restart_of_the_agent(kind, is_sidecar, ago, writes):
    status = reported(running(ago=timedelta(seconds=ago)))
    result = begin_round(
        rules(kind, is_sidecar=is_sidecar, agent_started=NOW), ProbeState(), status, is_deleted=False, now=NOW
    )
    assert (result.writes, result.state.id) == (writes, FIRST)


YOUNG = running(ago=timedelta(seconds=5))


@pytest.mark.parametrize(
    ("kind", "status", "writes"),
    [
        pytest.param(READINESS, replace(YOUNG, ready=True), (), id="reported as ready"),
        pytest.param(STARTUP, replace(YOUNG, started=False), (Write(FIRST, UNKNOWN),), id="had not started"),
        pytest.param(LIVENESS, replace(YOUNG, ready=True), (Write(FIRST, SUCCESS),), id="liveness begins well"),
    ],
)
def test_what_was_reported_of_a_young_container_stays(kind, status, writes):
    result = begin_round(rules(kind, agent_started=NOW), ProbeState(), reported(status), is_deleted=False, now=NOW)
    assert result.writes == writes


def outcomes(text):
    """s(uccess), f(ailure), w(arning), u(nknown), e(rror)."""
    made = {
        "s": GOOD,
        "f": BAD,
        "w": ProbeOutcome(ProbeAnswer.WARNING),
        "u": ProbeOutcome(ProbeAnswer.UNKNOWN),
        "e": ProbeOutcome(ProbeAnswer.UNKNOWN, error="could not ask"),
    }
    return [made[letter] for letter in text]


@pytest.mark.parametrize(
    ("kind", "success", "failure", "played", "want"),
    [
        pytest.param(READINESS, 1, 3, "ff", [None, None], id="below the failure threshold nothing changes"),
        pytest.param(READINESS, 1, 3, "fff", [None, None, FAILURE], id="the third failure counts"),
        pytest.param(READINESS, 1, 3, "ffsff", [None, None, SUCCESS, None, None], id="a success starts the count over"),
        pytest.param(READINESS, 2, 1, "fss", [FAILURE, None, SUCCESS], id="success has a threshold too"),
        pytest.param(READINESS, 1, 2, "fef", [None, None, FAILURE], id="an error counts for nothing"),
        pytest.param(READINESS, 1, 1, "wu", [SUCCESS, FAILURE], id="a warning is a success, an unknown a failure"),
        pytest.param(READINESS, 1, 1, "ff", [FAILURE, FAILURE], id="a readiness probe goes on failing"),
    ],
)
def test_thresholds(kind, success, failure, played, want):
    given = rules(kind, success_threshold=success, failure_threshold=failure)
    state, seen = KNOWN, []
    for outcome in outcomes(played):
        result = end_round(given, state, outcome)
        state = result.state
        seen.append(result.writes[0].result if result.writes else None)
    assert seen == want
    assert not state.on_hold


@pytest.mark.parametrize(
    ("kind", "played", "on_hold"),
    [
        pytest.param(LIVENESS, "s", False, id="a good liveness goes on"),
        pytest.param(LIVENESS, "fff", True, id="a failed liveness waits for the next instance"),
        pytest.param(STARTUP, "s", True, id="a startup that succeeded is over"),
        pytest.param(STARTUP, "fff", True, id="a startup that failed is over"),
        pytest.param(STARTUP, "ff", False, id="a startup below its threshold goes on"),
    ],
)
def test_hold(kind, played, on_hold):
    state = KNOWN
    for outcome in outcomes(played):
        state = end_round(rules(kind), state, outcome).state
    assert state.on_hold is on_hold
    assert not on_hold or state.count == 0


def test_a_new_instance_keeps_the_count_of_the_one_before():
    state = end_round(rules(READINESS, failure_threshold=2), KNOWN, BAD).state
    state = begin_round(rules(), state, reported(running(instance="main-1")), is_deleted=False, now=NOW).state
    assert end_round(rules(READINESS, failure_threshold=2), state, BAD).writes == (Write(SECOND_ID, FAILURE),)


def test_playbook_of_a_container_that_never_starts():
    """Period 5, failure threshold 3: it is killed at 10 s, and the next instance gets its own three tries."""
    startup = rules(STARTUP)
    state = ProbeState()
    story = []
    for second, instance in ((0, "main-0"), (5, "main-0"), (10, "main-0"), (15, "main-0"), (20, "main-1")):
        status = reported(running(instance=instance, started=False))
        begun = begin_round(startup, state, status, is_deleted=False, now=NOW + second * SECOND)
        result = end_round(startup, begun.state, BAD) if begun.next == Run() else begun
        state = result.state
        story.append((second, type(begun.next).__name__, [write.result for write in (*begun.writes, *result.writes)]))
    assert story[:4] == [(0, "Run", [UNKNOWN]), (5, "Run", []), (10, "Run", [FAILURE]), (15, "ProbeWait", [])]
    assert story[4] == (20, "Run", [None, UNKNOWN])


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_container_that_has_ended_is_probed_again_if_its_pod_restarts(goes_on):
    asked = []

    def restarts(code, status):
        asked.append((code, status))
        return goes_on

    status = reported(ended(7))
    following = begin_round(rules(restarts=restarts), KNOWN, status, is_deleted=False, now=NOW).next
    assert following == (ProbeWait() if goes_on else Stop())
    assert asked == [(7, status)]

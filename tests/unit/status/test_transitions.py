"""Which status may follow which, and whether two say the same."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.api.container import ContainerRestartRule
from klet.api.container_status import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
)
from klet.api.pod import PodCondition, PodStatus
from klet.api.times import Time
from klet.runtime.restart import restarts_after
from klet.status.board import StatusBoard
from klet.status.transitions import date_status, find_illegal_transition, is_same
from klet.testing.builders import make_container, make_pod
from klet.testing.clock import ManualClock
from klet.testing.loop import EPOCH

NOW = Time.of(EPOCH)
BEFORE = Time.of(EPOCH - timedelta(hours=1))

STATES = {
    "waiting": ContainerState(waiting=ContainerStateWaiting()),
    "running": ContainerState(running=ContainerStateRunning()),
    "succeeded": ContainerState(terminated=ContainerStateTerminated(exit_code=0)),
    "failed": ContainerState(terminated=ContainerStateTerminated(exit_code=3)),
}


def container(name: str, state: str) -> ContainerStatus:
    return ContainerStatus(name=name, state=STATES[state], ready=False, restart_count=0, image="", image_id="")


def regular(state: str) -> PodStatus:
    return PodStatus(container_statuses=(container("main", state),))


def init(state: str, name: str = "setup") -> PodStatus:
    return PodStatus(init_container_statuses=(container(name, state),))


def problem(pod, old, new):
    return find_illegal_transition(pod, old, new, lambda each, code: restarts_after(each, pod, code))


ILLEGAL = "terminated container main attempted illegal transition to non-terminated state"
ILLEGAL_INIT = "terminated init container setup attempted illegal transition to non-terminated state"


@pytest.mark.parametrize(
    ("policy", "old", "new", "expected"),
    [
        pytest.param("Always", "succeeded", "running", None, id="always restarted"),
        pytest.param("Never", "running", "waiting", None, id="only an end is final"),
        pytest.param("Never", "succeeded", "running", ILLEGAL, id="never restarted after success"),
        pytest.param("Never", "failed", "waiting", ILLEGAL, id="never restarted after failure"),
        pytest.param("Never", "failed", "succeeded", None, id="another end is legal"),
        pytest.param("OnFailure", "failed", "running", None, id="restarted on failure"),
        pytest.param("OnFailure", "succeeded", "running", ILLEGAL, id="not restarted on success"),
    ],
)
def test_transitions(policy, old, new, expected):
    pod = make_pod("main", init=("setup",), restart_policy=policy)
    assert problem(pod, regular(old), regular(new)) == expected
    expected_of_init = ILLEGAL_INIT if expected is not None else None
    assert problem(pod, init(old), init(new)) == expected_of_init


@pytest.mark.parametrize(
    ("made", "old", "new", "expected"),
    [
        pytest.param(
            make_pod("main", init=(make_container("setup", restart_policy="Always"),), restart_policy="Never"),
            init("failed"),
            init("running"),
            None,
            id="a sidecar is always restarted",
        ),
        pytest.param(
            make_pod(make_container("main", restart_policy="Always"), restart_policy="Never"),
            regular("failed"),
            regular("running"),
            None,
            id="a container with a policy of its own",
        ),
        pytest.param(
            make_pod("main", restart_policy="Never"),
            init("failed", "stranger"),
            PodStatus(),
            "found mismatch between pod spec and status, container: stranger",
            id="an init container that the spec does not have",
        ),
        pytest.param(
            make_pod("other", restart_policy="OnFailure"),
            regular("failed"),
            regular("running"),
            None,
            id="a container that the spec does not have has the pod's policy",
        ),
        pytest.param(
            make_pod("other", restart_policy="Never"), regular("failed"), regular("running"), ILLEGAL, id="and is kept"
        ),
        pytest.param(
            make_pod("main", restart_policy="Never"),
            regular("failed"),
            PodStatus(),
            None,
            id="a container that is gone",
        ),
    ],
)
def test_containers_of_their_own_kind(made, old, new, expected):
    assert problem(made, old, new) == expected


def conditioned(kind: str, status: str, *, at: Time | None = None, generation: int = 0, reason: str = "") -> PodStatus:
    condition = PodCondition(
        type=kind, status=status, last_transition_time=at, observed_generation=generation, reason=reason
    )
    return PodStatus(conditions=(condition,))


@pytest.mark.parametrize(
    ("kind", "old", "new", "expected"),
    [
        pytest.param("Ready", "True", "True", BEFORE, id="nothing changed"),
        pytest.param("Ready", "False", "True", NOW, id="a change"),
        pytest.param("DisruptionTarget", "True", "True", BEFORE, id="a condition that others write too"),
        pytest.param("PodResizePending", "True", "True", None, id="a condition that is dated elsewhere"),
        pytest.param("example.com/gate", "False", "True", None, id="a condition of others"),
    ],
)
def test_instants(kind, old, new, expected):
    dated = date_status(conditioned(kind, new), conditioned(kind, old, at=BEFORE), now=NOW)
    assert dated.conditions[0].last_transition_time == expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(None, None, NOW, id="the first report"),
        pytest.param(BEFORE, None, BEFORE, id="it is kept"),
        pytest.param(None, BEFORE, BEFORE, id="it may be known already"),
    ],
)
def test_start_time(old, new, expected):
    before = PodStatus(start_time=old) if old is not None else None
    assert date_status(PodStatus(start_time=new), before, now=NOW).start_time == expected


def test_the_observed_generation_never_falls():
    older = PodStatus(observed_generation=3)
    assert date_status(older, PodStatus(observed_generation=5), now=NOW).observed_generation == 5
    assert date_status(PodStatus(observed_generation=6), older, now=NOW).observed_generation == 6


READY = conditioned("Ready", "True")
GATE = conditioned("example.com/gate", "True")


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        pytest.param(READY, conditioned("Ready", "True", at=NOW, generation=7), True, id="instants do not count"),
        pytest.param(READY, conditioned("Ready", "True", reason="Why"), False, id="reasons do"),
        pytest.param(
            GATE, conditioned("example.com/gate", "True", at=NOW), False, id="conditions of others count whole"
        ),
        pytest.param(PodStatus(), PodStatus(observed_generation=2), False, id="a generation that was observed counts"),
    ],
)
def test_same(one, other, expected):
    assert is_same(one, other) is expected


class TestVersions:
    UID = "uid-1"

    def test_each_change_is_a_version(self):
        board = StatusBoard(clock=ManualClock())
        assert board.reported(self.UID) is None
        board.put(self.UID, READY)
        board.put(self.UID, READY)
        assert board.reported(self.UID).version == 1
        board.put(self.UID, conditioned("Ready", "False"))
        assert board.reported(self.UID).version == 2

    def test_a_forced_one_is_a_version_even_if_it_says_nothing_new(self):
        board = StatusBoard(clock=ManualClock())
        board.put(self.UID, READY)
        with board.changes() as changes:
            assert not board.put(self.UID, READY, is_forced=True)
            assert changes.drain() == [self.UID]
        assert board.reported(self.UID).version == 2

    def test_a_pod_that_has_finished_stays_so(self):
        board = StatusBoard(clock=ManualClock())
        board.put(self.UID, READY)
        board.put(self.UID, READY, is_finished=True)
        assert (board.reported(self.UID).version, board.reported(self.UID).is_finished) == (2, True)
        board.put(self.UID, replace(READY, phase="Failed"))
        assert board.reported(self.UID).is_finished
        board.forget(self.UID)
        assert board.reported(self.UID) is None


@pytest.mark.parametrize(
    ("is_on", "expected"),
    [pytest.param(True, None, id="with the gate"), pytest.param(False, ILLEGAL, id="not without")],
)
def test_where_one_exit_may_restart_all_every_end_may_be_left(is_on, expected):
    asks = replace(make_container("asks"), restart_policy_rules=(ContainerRestartRule(action="RestartAllContainers"),))
    pod = make_pod("main", asks, restart_policy="Never")
    found = find_illegal_transition(
        pod, regular("succeeded"), regular("waiting"), lambda _each, _code: False, restart_all=is_on
    )
    assert found == expected

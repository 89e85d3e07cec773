"""The questions a runtime status answers."""

import pytest

from klet.model.pods import PodUID
from klet.model.runtime import PodRuntimeStatus, RuntimeContainerState
from klet.testing.builders import make_pod, make_record, make_sandbox, make_status

EXITED = RuntimeContainerState.EXITED
POD = make_pod("a", "b")


def test_the_newest_record_of_a_name_counts():
    status = make_status(POD, make_record(POD, "a", EXITED), make_record(POD, "a", restarts=1))
    newest = status.newest("a")
    assert newest is not None
    assert newest.restart_count == 1
    assert status.newest("b") is None


def test_the_newest_that_has_ended_is_not_always_the_newest():
    ended = [make_record(POD, "a", EXITED, restarts=count) for count in (0, 1)]
    status = make_status(POD, *ended, make_record(POD, "a", RuntimeContainerState.CREATED, restarts=2))
    assert status.newest_exited("a") == ended[1]
    assert status.newest_exited("b") is None


def test_running_containers_are_those_in_state_running():
    status = make_status(POD, make_record(POD, "a", RuntimeContainerState.CREATED), make_record(POD, "b"))
    assert [record.name for record in status.running()] == ["b"]


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        pytest.param([], True, id="there never was one"),
        pytest.param([RuntimeContainerState.EXITED, RuntimeContainerState.EXITED], True, id="all have exited"),
        pytest.param([RuntimeContainerState.EXITED, RuntimeContainerState.RUNNING], False, id="one runs"),
        pytest.param([RuntimeContainerState.CREATED], False, id="one may be about to start"),
        pytest.param([RuntimeContainerState.UNKNOWN], False, id="nobody knows"),
    ],
)
def test_whether_a_pod_has_ended_for_certain(states, expected):
    records = [make_record(POD, "a", state, restarts=number) for number, state in enumerate(states)]
    assert make_status(POD, *records).has_ended is expected


def test_active_containers_are_those_of_the_newest_ready_sandbox():
    old = make_record(POD, "a", sandbox="sandbox-0")
    new = make_record(POD, "a", sandbox="sandbox-1", restarts=1)
    sandboxes = [make_sandbox(attempt=1), make_sandbox(attempt=0)]
    assert make_status(POD, old, new, sandboxes=sandboxes).active_containers() == (new,)
    dead = [make_sandbox(attempt=1, ready=False)]
    assert make_status(POD, old, new, sandboxes=dead).active_containers() == ()


@pytest.mark.parametrize(
    ("status", "empty", "live"),
    [
        pytest.param(PodRuntimeStatus(uid=PodUID("u")), True, False, id="nothing"),
        pytest.param(make_status(POD), False, True, id="a ready sandbox lives"),
        pytest.param(make_status(POD, sandboxes=[make_sandbox(ready=False)]), False, False, id="a dead sandbox"),
        pytest.param(make_status(POD, make_record(POD, "a"), sandboxes=[]), False, True, id="a container runs alone"),
        pytest.param(
            make_status(POD, make_record(POD, "a", EXITED), sandboxes=[]), False, False, id="a dead container"
        ),
    ],
)
def test_empty_and_live(status, empty, live):
    assert (status.is_empty, status.is_live) == (empty, live)


def test_addresses_can_be_replaced():
    assert make_status(POD).with_ips(("10.0.0.9",)).ips == ("10.0.0.9",)

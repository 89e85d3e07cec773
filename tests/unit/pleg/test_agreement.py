"""Events and lists against what was read."""

import pytest

from klet.cri.events import EventKind
from klet.errors import KletError
from klet.model.pods import PodUID
from klet.model.runtime import PodRuntimeStatus, RuntimeContainerState
from klet.pleg.agreement import agrees, is_news
from klet.pleg.cache import Reading
from klet.testing.builders import make_pod, make_record, make_sandbox, make_status

POD = make_pod("a")
RUNNING = make_status(POD, make_record(POD, "a"))
EXITED = make_status(POD, make_record(POD, "a", RuntimeContainerState.EXITED))
NOTHING = PodRuntimeStatus(uid=PodUID("uid-1"))
CREATED = make_status(POD, make_record(POD, "a", RuntimeContainerState.CREATED))
DEAD = make_status(POD, sandboxes=[make_sandbox(ready=False)])


@pytest.mark.parametrize(
    ("kind", "member", "status", "expected"),
    [
        pytest.param(EventKind.STARTED, "a-0", RUNNING, True, id="started and running"),
        pytest.param(EventKind.STARTED, "a-0", EXITED, True, id="started and over already"),
        pytest.param(EventKind.STARTED, "a-0", CREATED, False, id="started, but shown as created"),
        pytest.param(EventKind.STARTED, "a-0", NOTHING, False, id="started, but not shown"),
        pytest.param(EventKind.STARTED, "sandbox-0", RUNNING, True, id="a started sandbox"),
        pytest.param(EventKind.STOPPED, "a-0", EXITED, True, id="stopped and exited"),
        pytest.param(EventKind.STOPPED, "a-0", NOTHING, True, id="stopped and gone already"),
        pytest.param(EventKind.STOPPED, "a-0", RUNNING, False, id="stopped, but shown as running"),
        pytest.param(EventKind.STOPPED, "a-0", CREATED, False, id="stopped before its start is shown"),
        pytest.param(EventKind.STOPPED, "sandbox-0", DEAD, True, id="a stopped sandbox"),
        pytest.param(EventKind.STOPPED, "sandbox-0", RUNNING, False, id="a stopped sandbox, but shown as ready"),
        pytest.param(EventKind.DELETED, "a-0", NOTHING, True, id="deleted and gone"),
        pytest.param(EventKind.DELETED, "a-0", EXITED, False, id="deleted, but still shown"),
        pytest.param(EventKind.DELETED, "sandbox-0", DEAD, False, id="a deleted sandbox, but still shown"),
        pytest.param(EventKind.CREATED, "a-0", NOTHING, True, id="a creation is not waited for"),
        pytest.param(EventKind.OOM, "a-0", RUNNING, True, id="nor is a lack of memory"),
    ],
)
def test_whether_a_reading_agrees_with_an_event(kind, member, status, expected):
    assert agrees(status, {member: kind}) is expected
    assert agrees(status, {})


@pytest.mark.parametrize(
    ("listed", "before", "reading", "expected"),
    [
        pytest.param(RUNNING, None, None, True, id="a pod that is new is read"),
        pytest.param(RUNNING, RUNNING, Reading(RUNNING, 1.0, KletError("x")), True, id="one that could not be is too"),
        pytest.param(EXITED, RUNNING, Reading(RUNNING, 1.0), True, id="one that looks different is read"),
        pytest.param(EXITED, RUNNING, Reading(EXITED, 1.0), False, id="but not if it has been since"),
        pytest.param(EXITED, EXITED, Reading(RUNNING, 1.0), False, id="lists that always differ are not believed"),
        pytest.param(None, RUNNING, Reading(RUNNING, 1.0), True, id="one that is gone is read a last time"),
        pytest.param(None, RUNNING, Reading(NOTHING, 1.0), False, id="but not if that is known"),
    ],
)
def test_what_lists_newly_report(listed, before, reading, expected):
    assert is_news(listed, before, reading) is expected

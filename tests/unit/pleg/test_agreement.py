import pytest

from klet.cri.events import EventKind
from klet.model.runtime import ContainerState
from klet.pleg.pleg import agrees
from klet.testing.builders import make_pod, make_record, make_sandbox, make_status

POD = make_pod("main")
CREATED, STARTED, STOPPED, DELETED = EventKind.CREATED, EventKind.STARTED, EventKind.STOPPED, EventKind.DELETED


@pytest.mark.parametrize(
    ("kind", "state", "want"),
    [
        pytest.param(CREATED, None, True, id="that it was made says nothing about its state"),
        pytest.param(STARTED, ContainerState.RUNNING, True, id="started and running"),
        pytest.param(STARTED, ContainerState.EXITED, True, id="started and over already"),
        pytest.param(STARTED, ContainerState.CREATED, False, id="started and not shown as such"),
        pytest.param(STARTED, None, False, id="started and not shown at all"),
        pytest.param(STOPPED, ContainerState.EXITED, True, id="ended"),
        pytest.param(STOPPED, None, True, id="ended and removed"),
        pytest.param(STOPPED, ContainerState.RUNNING, False, id="ended and shown as running"),
        pytest.param(STOPPED, ContainerState.CREATED, False, id="ended before its start is shown"),
        pytest.param(DELETED, None, True, id="gone"),
        pytest.param(DELETED, ContainerState.EXITED, False, id="gone and still shown"),
    ],
)
def test_a_reading_and_an_event(kind, state, want):
    status = make_status(POD, *([make_record(POD, "main", state)] if state is not None else []))
    assert agrees(status, {"main-0": kind}) is want


@pytest.mark.parametrize(
    ("kind", "is_ready", "want"),
    [
        pytest.param(STARTED, True, True, id="started and ready"),
        pytest.param(STOPPED, False, True, id="ended and not ready"),
        pytest.param(STOPPED, True, False, id="ended and still ready"),
    ],
)
def test_a_reading_and_an_event_of_a_sandbox(kind, is_ready, want):
    assert agrees(make_status(POD, sandboxes=[make_sandbox(ready=is_ready)]), {"sandbox-0": kind}) is want

import pytest

from klet.cri.events import EventKind, event_of_envelope
from klet.testing.fake_runtime.events import BadFilter, FakeEvent, parse_filters
from klet.wire import containerd_events_pb2 as containerd
from klet.wire import cri_v1_pb2 as pb

START = FakeEvent("/tasks/start", 1_500_000_000, "c1", containerd.TaskStart(container_id="c1", pid=7))


@pytest.mark.parametrize(
    ("filters", "passes"),
    [
        pytest.param([], True, id="no filter takes all"),
        pytest.param(["topic==/tasks/start"], True, id="equal"),
        pytest.param(["topic==/tasks/exit"], False, id="not equal"),
        pytest.param(["topic!=/tasks/exit"], True, id="different"),
        pytest.param(['topic~="^/tasks/(start|exit)"'], True, id="pattern"),
        pytest.param(['topic~="^/containers/"'], False, id="other pattern"),
        pytest.param(["namespace==k8s.io,topic==/tasks/exit"], False, id="all terms of a filter must hold"),
        pytest.param(["topic==/tasks/exit", "topic==/tasks/start"], True, id="one of the filters must hold"),
        pytest.param(["event.container_id==c1"], True, id="a field of the event"),
        pytest.param(["event.nope==c1"], False, id="a field that is not there"),
        pytest.param(["namespace==other"], False, id="another namespace"),
    ],
)
def test_filters(filters, passes):
    assert parse_filters(filters)(START) is passes


@pytest.mark.parametrize("text", ["topic", "topic=x", "==x", 'topic=="open'])
def test_bad_filters(text):
    with pytest.raises(BadFilter, match="cannot parse filter"):
        parse_filters([text])


def test_klet_reads_what_the_fake_writes():
    event = event_of_envelope(START.envelope())
    assert (event.kind, event.container_id) == (EventKind.STARTED, "c1")
    assert event.at.timestamp() == 1.5


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (START, pb.CONTAINER_STARTED_EVENT),
        (
            FakeEvent("/tasks/exit", 1, "c1", containerd.TaskExit(container_id="c1", id="c1")),
            pb.CONTAINER_STOPPED_EVENT,
        ),
        (FakeEvent("/tasks/exit", 1, "c1", containerd.TaskExit(container_id="c1", id="exec")), None),
        (FakeEvent("/tasks/create", 1, "c1", containerd.TaskCreate(container_id="c1")), None),
        (FakeEvent("/containers/delete", 1, "c1", containerd.ContainerDelete(id="c1")), pb.CONTAINER_DELETED_EVENT),
    ],
    ids=["start", "exit", "exit of an exec", "creation of the task", "deletion"],
)
def test_types_of_the_cri(event, kind):
    assert event.cri_type == kind

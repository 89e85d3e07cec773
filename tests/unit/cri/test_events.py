from datetime import UTC, datetime

import pytest
from google.protobuf.any_pb2 import Any
from google.protobuf.timestamp_pb2 import Timestamp

from klet.cri.events import EventKind, RuntimeEvent, event_of_answer, event_of_envelope
from klet.wire import containerd_events_pb2 as containerd
from klet.wire import cri_v1_pb2 as pb
from klet.wire.containerd_types_pb2 import Envelope

AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
SECONDS, MICROSECONDS = int(AT.timestamp()), 678901


def envelope(payload, prefix=""):
    event = Any(type_url=prefix + payload.DESCRIPTOR.full_name, value=payload.SerializeToString())
    stamp = Timestamp(seconds=SECONDS, nanos=MICROSECONDS * 1000 + 999)
    return Envelope(timestamp=stamp, namespace="k8s.io", topic="/any", event=event)


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        pytest.param(
            containerd.ContainerCreate(id="c", image="i"),
            RuntimeEvent(EventKind.CREATED, "c", None, AT),
            id="a container is made",
        ),
        pytest.param(
            containerd.ContainerDelete(id="c"),
            RuntimeEvent(EventKind.DELETED, "c", None, AT),
            id="a container is removed",
        ),
        pytest.param(
            containerd.TaskStart(container_id="c", pid=7),
            RuntimeEvent(EventKind.STARTED, "c", None, AT),
            id="a container starts",
        ),
        pytest.param(
            containerd.TaskExit(container_id="c", id="c", exit_status=1),
            RuntimeEvent(EventKind.STOPPED, "c", None, AT),
            id="a container stops",
        ),
        pytest.param(containerd.TaskExit(container_id="c", id="probe"), None, id="the end of an exec is no event"),
        pytest.param(
            containerd.TaskOOM(container_id="c"), RuntimeEvent(EventKind.OOM, "c", None, AT), id="a container is killed"
        ),
        pytest.param(
            containerd.SandboxCreate(sandbox_id="s"), RuntimeEvent(EventKind.CREATED, "s", "s", AT), id="sandbox made"
        ),
        pytest.param(
            containerd.SandboxStart(sandbox_id="s"), RuntimeEvent(EventKind.STARTED, "s", "s", AT), id="sandbox starts"
        ),
        pytest.param(
            containerd.SandboxExit(sandbox_id="s"), RuntimeEvent(EventKind.STOPPED, "s", "s", AT), id="sandbox stops"
        ),
        pytest.param(containerd.TaskExecStarted(container_id="c"), None, id="an exec is no event"),
    ],
)
@pytest.mark.parametrize("prefix", ["", "type.googleapis.com/"], ids=["bare type", "type with a host"])
def test_events_of_containerd(payload, expected, prefix):
    assert event_of_envelope(envelope(payload, prefix)) == expected


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pb.CONTAINER_CREATED_EVENT, EventKind.CREATED),
        (pb.CONTAINER_STARTED_EVENT, EventKind.STARTED),
        (pb.CONTAINER_STOPPED_EVENT, EventKind.STOPPED),
        (pb.CONTAINER_DELETED_EVENT, EventKind.DELETED),
    ],
)
def test_events_of_the_cri(kind, expected):
    answer = pb.ContainerEventResponse(
        container_id="c",
        container_event_type=kind,
        created_at=SECONDS * 1_000_000_000 + MICROSECONDS * 1000 + 999,
        pod_sandbox_status=pb.PodSandboxStatus(id="s"),
    )
    assert event_of_answer(answer) == RuntimeEvent(expected, "c", "s", AT)


def test_an_event_of_the_cri_without_a_sandbox():
    answer = pb.ContainerEventResponse(container_id="c", container_event_type=pb.CONTAINER_DELETED_EVENT)
    assert event_of_answer(answer).sandbox_id is None


@pytest.mark.parametrize(
    "name",
    [
        "ContainerCreate",
        "ContainerDelete",
        "TaskStart",
        "TaskOOM",
        "TaskExit",
        "SandboxCreate",
        "SandboxStart",
        "SandboxExit",
    ],
)
def test_an_event_that_cannot_be_read_is_none(name):
    event = Any(type_url=f"containerd.events.{name}", value=b"\xff" * 100)
    assert event_of_envelope(Envelope(event=event)) is None


def test_an_event_of_a_time_that_there_is_not_is_of_the_beginning_of_time():
    said = envelope(containerd.TaskStart(container_id="c"))
    said.timestamp.seconds = 2**62
    found = event_of_envelope(said)
    assert found is not None
    assert found.at == datetime(1970, 1, 1, tzinfo=UTC)


def test_an_event_of_a_kind_that_nobody_knows_is_none():
    assert event_of_answer(pb.ContainerEventResponse(container_id="c", container_event_type=99)) is None

"""Runtime events as one type, from containerd's own stream or from the CRI's.

An event is a hint that something happened to a container; its state is read afterwards. A runtime without the stream
makes the iterator raise Unimplemented, a lost connection Unavailable.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Protocol

from google.protobuf.message import DecodeError
from google.protobuf.timestamp_pb2 import Timestamp
from msgspec import Struct

from klet.cri.connection import CriTransport
from klet.cri.port import RuntimeService
from klet.wire import containerd_events_pb2 as containerd
from klet.wire import containerd_events_service_pb2 as service
from klet.wire import cri_v1_pb2 as pb
from klet.wire.containerd_types_pb2 import Envelope
from klet.wire.methods import method_of


class EventKind(StrEnum):
    """What happened."""

    CREATED = "created"
    STARTED = "started"
    STOPPED = "stopped"
    DELETED = "deleted"
    OOM = "oom"


class RuntimeEvent(Struct, frozen=True):
    """Something happened to a container or, when the id is a sandbox's, to the sandbox itself."""

    kind: EventKind
    container_id: str
    sandbox_id: str | None
    at: datetime


class RuntimeEventSource(Protocol):
    """A stream of runtime events; each subscription is its own and ends when it is closed (contextlib.aclosing)."""

    def subscribe(self) -> AsyncGenerator[RuntimeEvent, None]: ...


class ContainerdEvents:
    """containerd's own events, on the socket that also serves the CRI."""

    def __init__(self, *, connection: CriTransport, namespace: str = "k8s.io") -> None:
        self._connection = connection
        self._namespace = namespace

    async def subscribe(self) -> AsyncGenerator[RuntimeEvent, None]:
        request = service.SubscribeRequest(filters=[f'namespace=={self._namespace},topic~="{_TOPICS}"'])
        async with aclosing(self._connection.stream(_SUBSCRIBE, request)) as stream:
            async for envelope in stream:
                if (event := event_of_envelope(envelope)) is not None:
                    yield event


class CriEvents:
    """The CRI's GetContainerEvents."""

    def __init__(self, *, runtime: RuntimeService) -> None:
        self._runtime = runtime

    async def subscribe(self) -> AsyncGenerator[RuntimeEvent, None]:
        async with aclosing(self._runtime.get_container_events(pb.GetEventsRequest())) as stream:
            async for answer in stream:
                if (event := event_of_answer(answer)) is not None:
                    yield event


def event_of_envelope(envelope: Envelope) -> RuntimeEvent | None:
    """Return the event in containerd's envelope, if it is about the life of a container or sandbox and can be read."""
    try:
        return _event_of_envelope(envelope)
    except DecodeError:
        # An event is a hint: without this one, the next list shows what happened.
        return None


def _event_of_envelope(envelope: Envelope) -> RuntimeEvent | None:
    at = _instant(envelope.timestamp)
    data = envelope.event.value
    match envelope.event.type_url.rpartition("/")[2]:
        case "containerd.events.ContainerCreate":
            return RuntimeEvent(EventKind.CREATED, containerd.ContainerCreate.FromString(data).id, None, at)
        case "containerd.events.ContainerDelete":
            return RuntimeEvent(EventKind.DELETED, containerd.ContainerDelete.FromString(data).id, None, at)
        case "containerd.events.TaskStart":
            return RuntimeEvent(EventKind.STARTED, containerd.TaskStart.FromString(data).container_id, None, at)
        case "containerd.events.TaskOOM":
            return RuntimeEvent(EventKind.OOM, containerd.TaskOOM.FromString(data).container_id, None, at)
        case "containerd.events.TaskExit":
            return _event_of_exit(containerd.TaskExit.FromString(data), at)
        case "containerd.events.SandboxCreate":
            return _event_of_sandbox(EventKind.CREATED, containerd.SandboxCreate.FromString(data).sandbox_id, at)
        case "containerd.events.SandboxStart":
            return _event_of_sandbox(EventKind.STARTED, containerd.SandboxStart.FromString(data).sandbox_id, at)
        case "containerd.events.SandboxExit":
            return _event_of_sandbox(EventKind.STOPPED, containerd.SandboxExit.FromString(data).sandbox_id, at)
        case _:
            return None


def event_of_answer(answer: pb.ContainerEventResponse) -> RuntimeEvent | None:
    """Return the CRI's event, unless it is of a kind that a newer CRI has.

    Its sandbox is unknown when the runtime did not send the sandbox's status.
    """
    kind = _KINDS.get(answer.container_event_type)
    if kind is None:
        return None
    return RuntimeEvent(
        kind=kind,
        container_id=answer.container_id,
        sandbox_id=answer.pod_sandbox_status.id or None,
        at=_EPOCH + timedelta(microseconds=answer.created_at // 1000),
    )


_SUBSCRIBE = method_of(service.DESCRIPTOR.services_by_name["Events"], "Subscribe", service.SubscribeRequest, Envelope)
# containerd filters before it sends: the events of exec probes and of image pulls never wake klet.
_TOPICS = "^/?(containers/(create|delete)|tasks/(start|exit|oom)|sandbox(es)?/)"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KINDS = {
    pb.CONTAINER_CREATED_EVENT: EventKind.CREATED,
    pb.CONTAINER_STARTED_EVENT: EventKind.STARTED,
    pb.CONTAINER_STOPPED_EVENT: EventKind.STOPPED,
    pb.CONTAINER_DELETED_EVENT: EventKind.DELETED,
}


def _event_of_exit(exit_: containerd.TaskExit, at: datetime) -> RuntimeEvent | None:
    """Return the end of the container's own process; a process run inside it has another id."""
    if exit_.id != exit_.container_id:
        return None
    return RuntimeEvent(EventKind.STOPPED, exit_.container_id, None, at)


def _event_of_sandbox(kind: EventKind, sandbox_id: str, at: datetime) -> RuntimeEvent:
    return RuntimeEvent(kind, sandbox_id, sandbox_id, at)


def _instant(stamp: Timestamp) -> datetime:
    try:
        return _EPOCH + timedelta(seconds=stamp.seconds, microseconds=stamp.nanos // 1000)
    except OverflowError:
        return _EPOCH

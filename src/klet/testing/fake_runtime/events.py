"""Events as containerd publishes them, and its filters of subscriptions."""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
from google.protobuf.any_pb2 import Any
from google.protobuf.message import Message

from klet.wire import containerd_events_pb2 as containerd
from klet.wire import cri_v1_pb2 as pb
from klet.wire.containerd_types_pb2 import Envelope

NAMESPACE = "k8s.io"

# The topics, and what the CRI calls them; the CRI does not publish the others.
_CRI_TYPES = {
    "/containers/create": pb.CONTAINER_CREATED_EVENT,
    "/tasks/start": pb.CONTAINER_STARTED_EVENT,
    "/tasks/exit": pb.CONTAINER_STOPPED_EVENT,
    "/containers/delete": pb.CONTAINER_DELETED_EVENT,
}
_TERM = re.compile(r'\s*([a-zA-Z_.]+)\s*(==|!=|~=)\s*("(?:[^"\\]|\\.)*"|[^,"\s]+)\s*(?:,|$)')


class FakeEvent(msgspec.Struct, frozen=True):
    """One event; `container_id` is the container's or the sandbox's."""

    topic: str
    stamp: int
    container_id: str
    body: Message

    def envelope(self) -> Envelope:
        answer = Envelope(namespace=NAMESPACE, topic=self.topic)
        answer.timestamp.seconds, answer.timestamp.nanos = divmod(self.stamp, 1_000_000_000)
        if isinstance(self.body, Any):
            answer.event.CopyFrom(self.body)
        else:
            # containerd leaves out the usual prefix of type URLs.
            answer.event.type_url = self.body.DESCRIPTOR.full_name
            answer.event.value = self.body.SerializeToString(deterministic=True)
        return answer

    @property
    def cri_type(self) -> pb.ContainerEventType | None:
        """The CRI's type of the event, if the CRI has one; the end of an exec is none."""
        if isinstance(self.body, containerd.TaskExit) and self.body.id != self.body.container_id:
            return None
        return _CRI_TYPES.get(self.topic)

    def __str__(self) -> str:
        return f"{self.stamp} {self.topic} {self.container_id}"


class BadFilter(ValueError):
    """A filter that containerd would refuse too."""


def parse_filters(filters: Sequence[str]) -> Callable[[FakeEvent], bool]:
    """Return the predicate of a subscription: one filter must hold, all terms of it. No filter takes all."""
    parsed = [_parse_filter(text) for text in filters]

    def holds(event: FakeEvent) -> bool:
        return not parsed or any(all(term.holds(event) for term in terms) for terms in parsed)

    if any(term.name not in {"topic", "namespace"} for terms in parsed for term in terms):
        return holds
    # There are few topics and many events.
    answers: dict[str, bool] = {}

    def answer(event: FakeEvent) -> bool:
        if event.topic not in answers:
            answers[event.topic] = holds(event)
        return answers[event.topic]

    return answer


class _Term(NamedTuple):
    name: str
    holds: Callable[[FakeEvent], bool]


def _parse_filter(text: str) -> list[_Term]:
    terms = []
    position = 0
    while position < len(text):
        match = _TERM.match(text, position)
        if match is None:
            message = f"cannot parse filter {text!r} at {position}"
            raise BadFilter(message)
        terms.append(_Term(match[1], _term(match[1], match[2], match[3])))
        position = match.end()
    return terms


def _term(name: str, operator: str, value: str) -> Callable[[FakeEvent], bool]:
    wanted = re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value
    match operator:
        case "==":
            return lambda event: _value(event, name) == wanted
        case "!=":
            return lambda event: _value(event, name) != wanted
        case _:
            pattern = re.compile(wanted)
            return lambda event: pattern.search(_value(event, name)) is not None


def _value(event: FakeEvent, name: str) -> str:
    match name:
        case "topic":
            return event.topic
        case "namespace":
            return NAMESPACE
        case _:
            return str(getattr(event.body, name.removeprefix("event."), ""))

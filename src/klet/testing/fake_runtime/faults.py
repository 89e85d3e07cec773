"""Faults that tests and simulations put into the fake runtime: into calls, and into the delivery of events."""

from collections.abc import Callable
from datetime import timedelta
from typing import TypeAlias

from google.protobuf.message import Message
from msgspec import Struct, field

from klet.cri.errors import Code
from klet.testing.fake_runtime.calls import CallSignal
from klet.testing.fake_runtime.events import FakeEvent

ANY = "*"


class Fail(Struct, frozen=True):
    """The call does nothing and answers with an error."""

    code: Code = Code.UNKNOWN
    message: str = "injected fault"


class DelayCall(Struct, frozen=True):
    """The call takes that much longer: before its effect, or between its effect and its answer."""

    by: timedelta
    after_effect: bool = False


class Hang(Struct, frozen=True):
    """The call waits until the fault is released or the caller gives up."""

    after_effect: bool = False


class HalfDone(Struct, frozen=True):
    """The call has its effect, but answers with an error."""

    code: Code = Code.UNAVAILABLE
    message: str = "injected fault after the effect"


class Twice(Struct, frozen=True):
    """The call is applied twice, as if it had been sent again; the caller gets the first answer."""


class DropEvent(Struct, frozen=True):
    """The event is lost."""


class Late(Struct, frozen=True):
    """The event comes later."""

    by: timedelta


class Repeat(Struct, frozen=True):
    """The event comes twice."""


CallEffect: TypeAlias = Fail | DelayCall | Hang | HalfDone | Twice
EventEffect: TypeAlias = DropEvent | Late | Repeat


def _every_request(_request: Message) -> bool:
    return True


def _every_event(_event: FakeEvent) -> bool:
    return True


class Fault(Struct, eq=False):
    """A fault in calls. `rpc` is the CRI's name of the call or ANY; `count` None means every matching call."""

    rpc: str
    effect: CallEffect
    matches: Callable[[Message], bool] = _every_request
    count: int | None = 1
    hits: int = 0
    released: CallSignal = field(default_factory=CallSignal)
    is_released: bool = False

    def release(self) -> None:
        """End the fault; calls that hang go on."""
        self.is_released = True
        self.released.fire()


class EventFault(Struct, eq=False):
    """A fault in the delivery of events. `topic` is containerd's, or ANY."""

    topic: str
    effect: EventEffect
    matches: Callable[[FakeEvent], bool] = _every_event
    count: int | None = 1
    hits: int = 0


class FaultBook:
    """The faults in force; the first that matches is used."""

    def __init__(self) -> None:
        self._calls: list[Fault] = []
        self._events: list[EventFault] = []

    def add(self, fault: Fault) -> Fault:
        self._calls.append(fault)
        return fault

    def add_to_events(self, fault: EventFault) -> EventFault:
        self._events.append(fault)
        return fault

    def clear(self) -> None:
        """End all faults; hanging calls go on."""
        faults, self._calls, self._events = self._calls, [], []
        for fault in faults:
            fault.release()

    def take(self, rpc: str, request: Message) -> Fault | None:
        for fault in self._calls:
            if fault.rpc in (ANY, rpc) and _is_left(fault) and not fault.is_released and fault.matches(request):
                fault.hits += 1
                return fault
        return None

    def take_event(self, event: FakeEvent) -> EventFault | None:
        for fault in self._events:
            if fault.topic in (ANY, event.topic) and _is_left(fault) and fault.matches(event):
                fault.hits += 1
                return fault
        return None


def _is_left(fault: Fault | EventFault) -> bool:
    return fault.count is None or fault.hits < fault.count

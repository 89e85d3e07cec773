"""Faults that tests inject into the embedded API: refusals, delays, interrupted watches."""

from collections.abc import Callable
from datetime import timedelta
from typing import TypeAlias

from msgspec import Struct

from klet.embedded.refusals import RequestRefused


class FaultRequest(Struct, frozen=True):
    """What a fault is decided on."""

    method: str
    path: str
    is_watch: bool


class RefuseRequest(Struct, frozen=True):
    """Answer with an error."""

    with_error: RequestRefused


class DelayAnswer(Struct, frozen=True):
    """Answer late."""

    by: timedelta


class Cut(Struct, frozen=True):
    """Close the connection: before any answer, or after some events of a watch."""

    after_events: int = 0


class FallSilent(Struct, frozen=True):
    """Send nothing more and keep the connection open."""

    after_events: int = 0


Fault: TypeAlias = RefuseRequest | DelayAnswer | Cut | FallSilent


class _Planned(Struct):
    applies: Callable[[FaultRequest], bool]
    fault: Fault
    times: int


class Faults:
    """Faults that are planned. The first one that applies is used, and used up."""

    def __init__(self) -> None:
        self._planned: list[_Planned] = []

    def plan(self, fault: Fault, *, applies: Callable[[FaultRequest], bool] = lambda _: True, times: int = 1) -> None:
        self._planned.append(_Planned(applies, fault, times))

    def clear(self) -> None:
        self._planned.clear()

    def take(self, ask: FaultRequest) -> Fault | None:
        for planned in self._planned:
            if planned.applies(ask):
                planned.times -= 1
                if planned.times == 0:
                    self._planned.remove(planned)
                return planned.fault
        return None

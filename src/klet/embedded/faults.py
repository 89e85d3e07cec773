"""Misbehaviour on request, for tests of whatever talks to an API server: refusals, delays, cut watches."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from klet.embedded.refusals import Refused


@dataclass(frozen=True, slots=True)
class Ask:
    """What a fault is decided on."""

    method: str
    path: str
    is_watch: bool


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer with an error."""

    with_error: Refused


@dataclass(frozen=True, slots=True)
class Delay:
    """Answer late."""

    by: timedelta


@dataclass(frozen=True, slots=True)
class Cut:
    """Close the connection: before any answer, or after some events of a watch."""

    after_events: int = 0


@dataclass(frozen=True, slots=True)
class FallSilent:
    """Send nothing more and keep the connection open."""

    after_events: int = 0


Fault: TypeAlias = Refuse | Delay | Cut | FallSilent


@dataclass(slots=True)
class _Planned:
    applies: Callable[[Ask], bool]
    fault: Fault
    times: int


class Faults:
    """Faults that are planned. The first one that applies is used, and used up."""

    def __init__(self) -> None:
        self._planned: list[_Planned] = []

    def plan(self, fault: Fault, *, applies: Callable[[Ask], bool] = lambda _: True, times: int = 1) -> None:
        self._planned.append(_Planned(applies, fault, times))

    def clear(self) -> None:
        self._planned.clear()

    def take(self, ask: Ask) -> Fault | None:
        for planned in self._planned:
            if planned.applies(ask):
                planned.times -= 1
                if planned.times == 0:
                    self._planned.remove(planned)
                return planned.fault
        return None

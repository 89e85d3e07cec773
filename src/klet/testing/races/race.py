"""Sets an attacker on a victim until the victim does harm or the time is over."""

import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Final, Protocol

import msgspec

from klet.aio.clock import SystemClock
from klet.errors import KletError
from klet.testing.races import confined
from klet.testing.races.arena import TOKEN, Arena, Oracle
from klet.testing.races.attacker import Attack, Attacker, Swap

STALL: Final = 5.0
"""Seconds that one attempt may take; nothing that a victim does has a reason to wait."""
_GRACE: Final = 30.0
_BETWEEN_LOOKS: Final = 16
"""Attempts between two looks at the sentinels: a look may cost more than an attempt. Harm stays; a mount may not."""
_REFUSALS: Final = 3
_SHARE: Final = 30
"""A victim gets at least one part in so many of a processor."""


class Victim(Protocol):
    """Code under attack."""

    attempts: int
    """How many attempts one preparation is good for: one, if the work takes away what was prepared."""

    def prepare(self) -> None:
        """Put in place what the next attempts need. It must not follow links either."""
        ...

    def attempt(self) -> bytes:
        """Do the work once; returns what it has read. An OSError or KletError is a refusal, which is no defeat."""
        ...


class Outcome(msgspec.Struct, frozen=True):
    """How a race went."""

    harm: str = ""
    """What happened to the sentinels; empty for a victim that survived."""
    done: int = 0
    refused: int = 0
    refusals: tuple[str, ...] = ()
    """Some of the reasons."""
    swaps: int = 0
    seconds: float = 0.0


class Stalled(BaseException):
    """An attempt that does not end."""


def race(
    arena: Arena,
    victim: Callable[[], Victim],
    swaps: tuple[Swap, ...],
    *,
    seconds: float,
    seed: int,
    busy: float = 0.0,
    mounts: bool = False,
) -> Outcome:
    """Run one race. The victim is built in its own process; with `mounts` it may mount there.

    It takes that many seconds, and longer where the victim was not `busy` for so many: on a machine with a lot to do
    neither side gets to move.
    """
    attacker = Attacker(arena=arena, swaps=swaps, seed=seed)
    oracle = Oracle(arena)

    def defend() -> Outcome:
        return _Defence(victim=victim(), oracle=oracle, between_looks=1 if mounts else _BETWEEN_LOOKS).run(
            seconds, busy
        )

    attacking = confined.start(lambda is_over: msgspec.json.encode(attacker.run(is_over)))
    try:
        defending = confined.start(lambda _: msgspec.json.encode(defend()), mounts=mounts)
        try:
            outcome = msgspec.json.decode(defending.result(within=max(seconds, busy * _SHARE) + _GRACE), type=Outcome)
        finally:
            defending.end()
        attacking.stop()
        attack = msgspec.json.decode(attacking.result(within=_GRACE), type=Attack)
    finally:
        attacking.end()
    return msgspec.structs.replace(outcome, swaps=attack.swaps)


class _Defence:
    """The victim's side of a race."""

    def __init__(self, *, victim: Victim, oracle: Oracle, between_looks: int) -> None:
        self._victim = victim
        self._oracle = oracle
        self._between_looks = between_looks
        self._left = 0
        """Attempts until the next preparation."""
        self._done = 0
        self._refused = 0
        self._refusals: set[str] = set()

    def run(self, seconds: float, busy: float) -> Outcome:
        clock = SystemClock()
        started = clock.monotonic()
        harm: str | None = None
        signal.signal(signal.SIGALRM, _stalled)
        while harm is None and (clock.monotonic() < started + seconds or _processor_time() < busy):
            harm = self._attempt()
        return Outcome(
            harm=harm or self._oracle.look() or "",
            done=self._done,
            refused=self._refused,
            refusals=tuple(sorted(self._refusals)),
            seconds=clock.monotonic() - started,
        )

    def _attempt(self) -> str | None:
        """Attempt the work once; returns the harm that was done."""
        signal.setitimer(signal.ITIMER_REAL, STALL)
        try:
            if self._left == 0:
                self._victim.prepare()
                self._left = self._victim.attempts
            self._left -= 1
            read = self._victim.attempt()
            self._done += 1
        except (OSError, KletError) as error:
            self._refuse(error)
            read = b""
        except Stalled:
            return "an attempt waited for the attacker"
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if TOKEN in read:
            return "a sentinel was read"
        return self._oracle.look() if (self._done + self._refused) % self._between_looks == 0 else None

    def _refuse(self, error: Exception) -> None:
        self._refused += 1
        if len(self._refusals) < _REFUSALS:
            self._refusals.add(f"{type(error).__name__}: {error}")


def _processor_time() -> float:
    """Seconds that this process has computed."""
    used = os.times()
    return used.user + used.system


def _stalled(_number: int, _frame: FrameType | None) -> None:
    raise Stalled

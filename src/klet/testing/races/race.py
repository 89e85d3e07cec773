"""Sets an attacker on a victim until the victim does harm or the time is over."""

import signal
from collections.abc import Callable
from types import FrameType
from typing import Final, Protocol

import msgspec

from klet.aio.clock import SystemClock
from klet.errors import KletError
from klet.testing.races import confined
from klet.testing.races.arena import Arena, Oracle
from klet.testing.races.attacker import Attack, Attacker, Swap

STALL: Final = 5.0
"""Seconds that one attempt may take; nothing that a victim does has a reason to wait."""
_GRACE: Final = 30.0
_REFUSALS: Final = 3


class Victim(Protocol):
    """Code under attack."""

    def prepare(self) -> None:
        """Put in place what the next attempt needs. It must not follow links either."""
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
    mounts: bool = False,
) -> Outcome:
    """Run one race. The victim is built in its own process; with `mounts` it may mount there."""
    attacker = Attacker(arena=arena, swaps=swaps, seed=seed)
    oracle = Oracle(arena)
    attacking = confined.start(lambda is_over: msgspec.json.encode(attacker.run(is_over)))
    try:
        defending = confined.start(lambda _: msgspec.json.encode(_defend(victim(), oracle, seconds)), mounts=mounts)
        try:
            outcome = msgspec.json.decode(defending.result(within=seconds + _GRACE), type=Outcome)
        finally:
            defending.end()
        attacking.stop()
        attack = msgspec.json.decode(attacking.result(within=_GRACE), type=Attack)
    finally:
        attacking.end()
    return msgspec.structs.replace(outcome, swaps=attack.swaps)


def _defend(victim: Victim, oracle: Oracle, seconds: float) -> Outcome:
    clock = SystemClock()
    started = clock.monotonic()
    done = refused = 0
    refusals: set[str] = set()
    harm: str | None = None
    signal.signal(signal.SIGALRM, _stalled)
    while harm is None and clock.monotonic() < started + seconds:
        read = b""
        try:
            victim.prepare()
            signal.setitimer(signal.ITIMER_REAL, STALL)
            read = victim.attempt()
            done += 1
        except (OSError, KletError) as error:
            refused += 1
            if len(refusals) < _REFUSALS:
                refusals.add(f"{type(error).__name__}: {error}")
        except Stalled:
            harm = "an attempt waited for the attacker"
            break
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        harm = oracle.harm(read)
    return Outcome(
        harm=harm or "",
        done=done,
        refused=refused,
        refusals=tuple(sorted(refusals)),
        seconds=clock.monotonic() - started,
    )


def _stalled(_number: int, _frame: FrameType | None) -> None:
    raise Stalled

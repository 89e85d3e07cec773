"""Sets an attacker on a victim until the victim does harm or the time is over."""

import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, nullcontext
from enum import StrEnum
from types import FrameType
from typing import Final, Protocol

import msgspec

from klet.aio.clock import SystemClock
from klet.errors import KletError
from klet.testing.races import confined
from klet.testing.races.arena import TOKEN, Arena, Oracle
from klet.testing.races.attacker import Attacker, Swap

STALL: Final = 20.0
"""Seconds that one attempt may take. Nothing that a victim does has a reason to wait, but machines are busy."""
_GRACE: Final = 30.0
_BETWEEN_LOOKS: Final = 16
"""Attempts between two looks at the sentinels: a look may cost more than an attempt. Harm stays; a mount may not."""
_REFUSALS: Final = 3
_CHANCES: Final = (0.02, 0.1, 0.3)
"""How often a call is interrupted: one attempt makes a dozen of them, another hundreds."""


class Interruptions:
    """Moves of an attacker before calls of functions in C, on every thread that is started meanwhile."""

    def __init__(self, *, attacker: Attacker, seed: int) -> None:
        self._moves = attacker.moves()
        self._random = random.Random(seed)
        self._chance = 0.0
        self._moving = threading.Lock()

    def __enter__(self) -> None:
        threading.setprofile(self._look)
        sys.setprofile(self._look)

    def __exit__(self, *_error: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Allow interruptions inside the block."""
        self._chance = self._random.choice(_CHANCES)
        try:
            yield
        finally:
            self._chance = 0.0

    def _look(self, _frame: FrameType, event: str, _argument: object) -> None:
        if event != "c_call" or self._random.random() >= self._chance:
            return
        if self._moving.acquire(blocking=False):  # otherwise another thread has it move
            try:
                next(self._moves)
            finally:
                self._moving.release()


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


class RaceOutcome(msgspec.Struct, frozen=True):
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


class Way(StrEnum):
    """How the attacker gets to move."""

    INTERLEAVED = "interleaved"
    """Between two calls of the victim, in its own process: every gap is met, whatever else uses the machine."""
    CONCURRENT = "concurrent"
    """In a process of its own, at any moment, within a call of the system too."""


def race(
    arena: Arena,
    victim: Callable[[], Victim],
    swaps: tuple[Swap, ...],
    *,
    seconds: float,
    seed: int,
    mounts: bool = False,
    ways: tuple[Way, ...] = (Way.INTERLEAVED, Way.CONCURRENT),
) -> RaceOutcome:
    """Run one race: some of the time in each way, until the victim does harm.

    The victim is built in a process of its own; with `mounts` it may mount there.
    """
    whole = RaceOutcome()
    for way in ways:
        attacker = Attacker(arena=arena, swaps=swaps, seed=seed)
        defence = _Defence(victim=victim, oracle=Oracle(arena), between_looks=1 if mounts else _BETWEEN_LOOKS)
        match way:
            case Way.INTERLEAVED:
                outcome = _interleave(attacker, defence, seconds / len(ways), seed=seed, mounts=mounts)
            case Way.CONCURRENT:
                outcome = _let_loose(attacker, defence, seconds / len(ways), mounts=mounts)
        whole = RaceOutcome(
            harm=outcome.harm,
            done=whole.done + outcome.done,
            refused=whole.refused + outcome.refused,
            refusals=whole.refusals + outcome.refusals,
            swaps=whole.swaps + outcome.swaps,
            seconds=whole.seconds + outcome.seconds,
        )
        if whole.harm:
            break
    return whole


def _interleave(attacker: Attacker, defence: "_Defence", seconds: float, *, seed: int, mounts: bool) -> RaceOutcome:
    def work(_is_over: Callable[[], bool]) -> bytes:
        outcome = defence.run(seconds, Interruptions(attacker=attacker, seed=seed))
        return msgspec.json.encode(msgspec.structs.replace(outcome, swaps=attacker.count))

    return _outcome_of(work, seconds, mounts=mounts)


def _let_loose(attacker: Attacker, defence: "_Defence", seconds: float, *, mounts: bool) -> RaceOutcome:
    """Give each side a processor of its own if there are two: otherwise neither moves while the other does."""
    here, there = choose_processors(os.sched_getaffinity(0), number=os.getpid())

    def defend(_is_over: Callable[[], bool]) -> bytes:
        os.sched_setaffinity(0, {here})
        return msgspec.json.encode(defence.run(seconds))

    def attack(is_over: Callable[[], bool]) -> bytes:
        os.sched_setaffinity(0, {there})
        attacker.run(is_over)
        return msgspec.json.encode(attacker.count)

    attacking = confined.start(attack)
    try:
        outcome = _outcome_of(defend, seconds, mounts=mounts)
        attacking.stop()
        count = msgspec.json.decode(attacking.result(within=_GRACE), type=int)
    finally:
        attacking.end()
    return msgspec.structs.replace(outcome, swaps=count)


def _outcome_of(work: Callable[[Callable[[], bool]], bytes], seconds: float, *, mounts: bool) -> RaceOutcome:
    child = confined.start(work, mounts=mounts)
    try:
        return msgspec.json.decode(child.result(within=seconds + _GRACE), type=RaceOutcome)
    finally:
        child.end()


def choose_processors(allowed: AbstractSet[int], *, number: int) -> tuple[int, int]:
    """Return one for the victim and one for the attacker, of those that may be used; other races take others."""
    processors = sorted(allowed)
    return processors[number % len(processors)], processors[(number + 1) % len(processors)]


class _Defence:
    """The victim's side of a race."""

    def __init__(self, *, victim: Callable[[], Victim], oracle: Oracle, between_looks: int) -> None:
        self._build = victim
        self._oracle = oracle
        self._between_looks = between_looks
        self._left = 0
        """Attempts until the next preparation."""
        self._done = 0
        self._refused = 0
        self._refusals: set[str] = set()

    def run(self, seconds: float, interruptions: Interruptions | None = None) -> RaceOutcome:
        clock = SystemClock()
        harm: str | None = None
        signal.signal(signal.SIGALRM, _stalled)
        with interruptions or nullcontext():
            victim = self._build()
            started = clock.monotonic()
            while harm is None and clock.monotonic() < started + seconds:
                harm = self._attempt(victim, interruptions)
        return RaceOutcome(
            harm=harm or self._oracle.look() or "",
            done=self._done,
            refused=self._refused,
            refusals=tuple(sorted(self._refusals)),
            seconds=clock.monotonic() - started,
        )

    def _attempt(self, victim: Victim, interruptions: Interruptions | None) -> str | None:
        """Attempt the work once; returns the harm that was done."""
        signal.setitimer(signal.ITIMER_REAL, STALL)
        try:
            if self._left == 0:
                victim.prepare()
                self._left = victim.attempts
            self._left -= 1
            with interruptions.allowed() if interruptions else nullcontext():
                read = victim.attempt()
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


def _stalled(_number: int, _frame: FrameType | None) -> None:
    raise Stalled

"""Says in the log when the API server does not answer, and when it does again: one voice for all who ask it.

Who meets such an error logs it for debugging only (`klet.errors.level_for`), and tries again in its own time.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from klet.aio.clock import Clock
from klet.kube.reach import Reach

logger = logging.getLogger(__name__)

FIRST_PAUSE: Final = 30.0
"""Seconds between the first line about a loss and the next; then twice as long each time."""
LONGEST_PAUSE: Final = 600.0
LOSSES_APART: Final = 60.0
"""Seconds: a connection that comes and goes is told lost at most so often."""


class Lost(Struct, frozen=True):
    """Nobody answers, for the first time."""

    why: str
    attempts: int


class StillLost(Struct, frozen=True):
    """Nobody has answered since."""

    why: str
    attempts: int
    seconds: float


class Back(Struct, frozen=True):
    """It answers again."""

    attempts: int
    seconds: float


Word: TypeAlias = Lost | StillLost | Back


class Told(Struct, frozen=True):
    """What the log says so far."""

    lost_at: float | None = None
    """When the first attempt failed; None while the server answers."""
    attempts: int = 0
    """How many have failed since then."""
    is_said: bool = False
    """Whether the log says that it is lost."""
    failed_at: float = 0
    said_at: float | None = None
    pause: float = FIRST_PAUSE


def heed(told: Told, why: str, *, now: float) -> tuple[Told, Word | None]:
    """What to say after an attempt: `why` nobody answered, or empty if somebody did."""
    if not why:
        return _heed_answer(told, now=now)
    if told.lost_at is None and now - told.failed_at >= LONGEST_PAUSE:
        told = Told()  # a loss that has nothing to do with the ones before
    lost_at = now if told.lost_at is None else told.lost_at
    told = replace(told, lost_at=lost_at, attempts=told.attempts + 1, failed_at=now)
    if told.is_said:
        if told.said_at is not None and now - told.said_at < told.pause:
            return told, None
        told = replace(told, said_at=now, pause=min(2 * told.pause, LONGEST_PAUSE))
        return told, StillLost(why, told.attempts, now - lost_at)
    if told.said_at is not None and now - told.said_at < LOSSES_APART:
        return told, None
    return replace(told, is_said=True, said_at=now, pause=FIRST_PAUSE), Lost(why, told.attempts)


def _heed_answer(told: Told, *, now: float) -> tuple[Told, Word | None]:
    if told.lost_at is None:
        return told, None
    if not told.is_said:
        return replace(told, lost_at=None), None
    word = Back(told.attempts, now - told.lost_at)
    return replace(told, lost_at=None, attempts=0, is_said=False), word


class Announcer:
    """Writes the lines. All the connections of one server have one of it."""

    def __init__(self, *, server: str, reaches: Sequence[Reach], clock: Clock) -> None:
        self._server = server
        self._reaches = reaches
        self._clock = clock
        self._told = Told()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number, reach in enumerate(self._reaches):
                group.create_task(self._follow(reach), name=f"reach-{number}")

    async def _follow(self, reach: Reach) -> None:
        with reach.troubles() as troubles:
            async for why in troubles.items():
                self._told, word = heed(self._told, why, now=self._clock.monotonic())
                if word is not None:
                    self._say(word)

    def _say(self, word: Word) -> None:
        where = {"server": self._server, "attempts": word.attempts}
        match word:
            case Lost(why):
                logger.warning("The API server does not answer; trying again", extra={**where, "error": why})
            case StillLost(why, seconds=seconds):
                extra = {**where, "duration": round(seconds), "error": why}
                logger.warning("The API server still does not answer", extra=extra)
            case Back(seconds=seconds):
                logger.info("The API server answers again", extra={**where, "duration": round(seconds)})

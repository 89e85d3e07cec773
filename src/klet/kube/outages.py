"""Logs when the API server stops answering and when it answers again: once for all clients of the agent.

The clients log such an error at debug level only (`klet.errors.level_for`), and retry on their own schedule.
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
"""Seconds: a connection that comes and goes is logged as lost at most so often."""


class ServerLost(Struct, frozen=True):
    """The server does not answer, for the first time."""

    why: str
    attempts: int


class ServerStillLost(Struct, frozen=True):
    """The server has not answered since."""

    why: str
    attempts: int
    seconds: float


class ServerBack(Struct, frozen=True):
    """The server answers again."""

    attempts: int
    seconds: float


Announcement: TypeAlias = ServerLost | ServerStillLost | ServerBack


class LoggedOutage(Struct, frozen=True):
    """What has been logged so far."""

    lost_at: float | None = None
    """When the first attempt failed; None while the server answers."""
    attempts: int = 0
    """How many have failed since then."""
    is_logged: bool = False
    """Whether the loss has been logged."""
    failed_at: float = 0
    logged_at: float | None = None
    pause: float = FIRST_PAUSE


def decide_announcement(announced: LoggedOutage, why: str, *, now: float) -> tuple[LoggedOutage, Announcement | None]:
    """Return what to log after an attempt: `why` it failed, empty if the server answered."""
    if not why:
        return _decide_after_answer(announced, now=now)
    if announced.lost_at is None and now - announced.failed_at >= LONGEST_PAUSE:
        announced = LoggedOutage()  # a new loss, long after the previous one
    lost_at = now if announced.lost_at is None else announced.lost_at
    announced = replace(announced, lost_at=lost_at, attempts=announced.attempts + 1, failed_at=now)
    if announced.is_logged:
        if announced.logged_at is not None and now - announced.logged_at < announced.pause:
            return announced, None
        announced = replace(announced, logged_at=now, pause=min(2 * announced.pause, LONGEST_PAUSE))
        return announced, ServerStillLost(why, announced.attempts, now - lost_at)
    if announced.logged_at is not None and now - announced.logged_at < LOSSES_APART:
        return announced, None
    return replace(announced, is_logged=True, logged_at=now, pause=FIRST_PAUSE), ServerLost(why, announced.attempts)


def _decide_after_answer(announced: LoggedOutage, *, now: float) -> tuple[LoggedOutage, Announcement | None]:
    if announced.lost_at is None:
        return announced, None
    if not announced.is_logged:
        return replace(announced, lost_at=None), None
    announcement = ServerBack(announced.attempts, now - announced.lost_at)
    return replace(announced, lost_at=None, attempts=0, is_logged=False), announcement


class OutageLogger:
    """Writes the log lines, for all connections to one server."""

    def __init__(self, *, server: str, reaches: Sequence[Reach], clock: Clock) -> None:
        self._server = server
        self._reaches = reaches
        self._clock = clock
        self._announced = LoggedOutage()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number, reach in enumerate(self._reaches):
                group.create_task(self._follow(reach), name=f"reach-{number}")

    async def _follow(self, reach: Reach) -> None:
        with reach.troubles() as troubles:
            async for why in troubles.items():
                self._announced, announcement = decide_announcement(self._announced, why, now=self._clock.monotonic())
                if announcement is not None:
                    self._log(announcement)

    def _log(self, announcement: Announcement) -> None:
        where = {"server": self._server, "attempts": announcement.attempts}
        match announcement:
            case ServerLost(why):
                logger.warning("The API server does not answer; trying again", extra={**where, "error": why})
            case ServerStillLost(why, seconds=seconds):
                extra = {**where, "duration": round(seconds), "error": why}
                logger.warning("The API server still does not answer", extra=extra)
            case ServerBack(seconds=seconds):
                logger.info("The API server answers again", extra={**where, "duration": round(seconds)})

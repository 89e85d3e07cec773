"""Clocks of tests: one that only the test moves, whose sleepers wake in their order, and one that is in a hurry."""

import asyncio
import heapq
import itertools
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

from klet.aio.clock import SystemClock
from klet.aio.tasks import first_of

START = datetime(2030, 1, 1, tzinfo=UTC)

# How many turns of the loop woken tasks get before `run` moves on: enough for chains of awaits within one process.
_SETTLING_TURNS = 50
_HASTE = 20


class ManualClock:
    """Time stands still until `advance` or `run` moves it."""

    def __init__(self, *, start: datetime = START) -> None:
        self._start = start
        self._now = start
        self._sleepers: list[tuple[datetime, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self._watchers: list[tuple[int, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return (self._now - self._start).total_seconds()

    async def sleep(self, duration: timedelta) -> None:
        await self.sleep_until(self._now + duration)

    async def sleep_until(self, at: datetime) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if at <= self._now:
            asyncio.get_running_loop().call_soon(_wake, waiter)
        else:
            heapq.heappush(self._sleepers, (at, next(self._order), waiter))
            self._notify_watchers()
        await waiter

    async def wait(self, what: Coroutine[Any, Any, object], *, at_most: timedelta) -> None:
        await first_of(what, self.sleep(at_most))

    def sleepers(self) -> int:
        """Return how many tasks wait for this clock."""
        return sum(not waiter.done() for _, _, waiter in self._sleepers)

    def next_wake(self) -> datetime | None:
        """Return when the earliest sleeper is due."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    async def until_asleep(self, count: int = 1) -> None:
        """Wait until that many tasks sleep, so that an `advance` is not lost on a task still on its way."""
        watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watchers.append((count, watcher))
        self._notify_watchers()
        await watcher

    def advance(self, duration: timedelta) -> None:
        """Jump. Sleepers that became due run afterwards, all at the new time."""
        self.advance_to(self._now + duration)

    def advance_to(self, at: datetime) -> None:
        self._now = max(self._now, at)
        while (due := self.next_wake()) is not None and due <= self._now:
            _wake(heapq.heappop(self._sleepers)[2])

    async def run(self, duration: timedelta) -> None:
        """Pass the time bit by bit: each sleeper runs at its own due time, and may sleep again within the span."""
        end = self._now + duration
        await _settle()
        while (due := self.next_wake()) is not None and due <= end:
            self.advance_to(due)
            await _settle()
        self.advance_to(end)
        await _settle()

    def _notify_watchers(self) -> None:
        asleep = self.sleepers()
        for count, watcher in self._watchers:
            if count <= asleep:
                _wake(watcher)
        self._watchers = [each for each in self._watchers if not each[1].done()]


class SteppingClock(ManualClock):
    """A machine whose time is set while it runs: the wall clock is off by `step`, and waits do not notice."""

    def __init__(self, *, start: datetime = START) -> None:
        super().__init__(start=start)
        self.step = timedelta()

    def now(self) -> datetime:
        return super().now() + self.step

    async def sleep(self, duration: timedelta) -> None:
        await super().sleep_until(super().now() + duration)

    async def sleep_until(self, at: datetime) -> None:
        await super().sleep_until(at - self.step)


class FastClock(SystemClock):
    """Waits a twentieth of what it is asked to, so that periods and back-offs are real and short."""

    async def sleep(self, duration: timedelta) -> None:
        await super().sleep(duration / _HASTE)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


async def _settle() -> None:
    loop = asyncio.get_running_loop()
    for _ in range(_SETTLING_TURNS):
        turn: asyncio.Future[None] = loop.create_future()
        loop.call_soon(_wake, turn)
        await turn

"""A queue of keys, each in it at most once, with delayed adds (client-go's delaying work queue).

A key added while a worker holds it comes again after `done`, so one key is never handled by two workers at once.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Hashable
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from klet.aio.clock import Clock
from klet.aio.tasks import first_of

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """Bounded by the number of distinct keys."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._ready: deque[K] = deque()
        self._dirty: set[K] = set()
        self._held: set[K] = set()
        self._due: dict[K, datetime] = {}
        self._timers: list[tuple[datetime, int, K]] = []
        self._sequence = 0
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._ready)

    def add(self, key: K) -> None:
        """Make a key ready now; a pending delayed add of the same key is dropped."""
        self._due.pop(key, None)
        if key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._held:
            self._ready.append(key)
            self._wake.set()

    def add_after(self, key: K, delay: timedelta) -> None:
        """Make a key ready after a delay; of two delayed adds the earlier wins."""
        if delay <= timedelta(0):
            self.add(key)
            return
        at = self._clock.now() + delay
        if key in self._dirty or (key in self._due and self._due[key] <= at):
            return
        self._due[key] = at
        self._sequence += 1
        heapq.heappush(self._timers, (at, self._sequence, key))
        self._wake.set()

    def forget(self, key: K) -> None:
        """Drop a key that waits; one that a worker holds finishes first."""
        self._due.pop(key, None)
        if key in self._dirty:
            self._dirty.discard(key)
            if key not in self._held:
                self._ready.remove(key)

    async def get(self) -> K:
        """The next ready key. The caller holds it until `done`. One caller at a time waits for timers."""
        while True:
            self._release_due()
            if self._ready:
                key = self._ready.popleft()
                self._dirty.discard(key)
                self._held.add(key)
                return key
            self._wake.clear()
            await self._wait()

    def done(self, key: K) -> None:
        self._held.discard(key)
        if key in self._dirty:
            self._ready.append(key)
            self._wake.set()

    def _release_due(self) -> None:
        now = self._clock.now()
        while self._timers and (self._timers[0][0] <= now or self._stale(self._timers[0])):
            timer = heapq.heappop(self._timers)
            if not self._stale(timer):
                self.add(timer[2])

    def _stale(self, timer: tuple[datetime, int, K]) -> bool:
        """A timer whose key was added, forgotten or given an earlier time since."""
        return self._due.get(timer[2]) != timer[0]

    async def _wait(self) -> None:
        if not self._timers:
            await self._wake.wait()
            return
        await first_of(self._wake.wait(), self._clock.sleep_until(self._timers[0][0]))

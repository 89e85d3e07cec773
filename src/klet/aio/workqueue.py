"""A queue of keys, each in it at most once, with delayed adds (client-go's delaying work queue).

A key added while a worker holds it comes again after `done`, so no two workers ever handle one key at once.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Hashable
from datetime import timedelta
from typing import Final, Generic, TypeVar

from klet.aio.clock import Clock

K = TypeVar("K", bound=Hashable)

_TICK: Final = timedelta(microseconds=1)


class WorkQueue(Generic[K]):
    """Bounded by the number of distinct keys."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._ready: deque[K] = deque()
        self._dirty: set[K] = set()
        """Keys to hand out: those that are ready, and those that were added while held (client-go's dirty set)."""
        self._held: set[K] = set()
        """Keys between `get` and `done` (client-go's processing set)."""
        self._due: dict[K, int] = {}
        self._timers: list[tuple[int, int, K]] = []
        """A heap of delayed adds. Entries are never removed from its middle: `_due` says which are still valid."""
        self._sequence = 0
        """Orders timers of the same instant, so that keys are never compared."""
        self._waiters: dict[asyncio.Future[None], None] = {}
        self._keeper: asyncio.Future[None] | None = None
        """The one waiter that also sleeps until the first timer; the others wait without a timer each."""

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
            self._wake_one()

    def add_after(self, key: K, delay: timedelta) -> None:
        """Make a key ready after a delay; of two delayed adds the earlier wins."""
        if delay <= timedelta(0):
            self.add(key)
            return
        at = self._now() + delay // _TICK
        if key in self._dirty or (key in self._due and self._due[key] <= at):
            return
        self._due[key] = at
        self._sequence += 1
        heapq.heappush(self._timers, (at, self._sequence, key))
        if self._timers[0][1] != self._sequence:
            return  # the keeper wakes before this timer, and looks at all of them then
        # The new timer is the first: the sleep of the keeper is too long now, or there is no keeper yet.
        if self._keeper is None:
            self._wake_one()
        else:
            _wake(self._keeper)

    def forget(self, key: K) -> None:
        """Drop a key that waits; one that a worker holds finishes first."""
        self._due.pop(key, None)
        if key in self._dirty:
            self._dirty.discard(key)
            if key not in self._held:
                self._ready.remove(key)

    async def get(self) -> K:
        """Return the next ready key. The caller holds it until `done`."""
        while True:
            self._release_due()
            if self._ready:
                key = self._ready.popleft()
                self._dirty.discard(key)
                self._held.add(key)
                return key
            await self._wait()

    def done(self, key: K) -> None:
        self._held.discard(key)
        if key in self._dirty:
            self._ready.append(key)
            self._wake_one()

    def _release_due(self) -> None:
        now = self._now()
        while self._timers and (self._timers[0][0] <= now or self._stale(self._timers[0])):
            timer = heapq.heappop(self._timers)
            if not self._stale(timer):
                self.add(timer[2])

    def _now(self) -> int:
        """Return microseconds of the monotonic clock: a change of the wall clock does not change a delay."""
        return round(self._clock.monotonic() / _TICK.total_seconds())

    def _stale(self, timer: tuple[int, int, K]) -> bool:
        """Return whether the key was added, forgotten or given an earlier time since the timer was made."""
        return self._due.get(timer[2]) != timer[0]

    async def _wait(self) -> None:
        """Wait until a key may be ready. A key wakes one waiter, not all of them."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None
        try:
            if self._timers and self._keeper is None:
                await self._keep_time(waiter)
            else:
                await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._wake_one()  # this one was woken for a key and is cancelled: without it the key would stay
            raise
        finally:
            self._waiters.pop(waiter, None)

    async def _keep_time(self, waiter: asyncio.Future[None]) -> None:
        self._keeper = waiter
        try:
            await self._clock.wait(_until(waiter), at_most=(self._timers[0][0] - self._now()) * _TICK)
        finally:
            self._keeper = None
            if self._timers:
                self._wake_one()  # another waiter becomes the keeper, or nothing would wake at the next timer

    def _wake_one(self) -> None:
        """Wake the one that waits longest; a dictionary keeps their order."""
        while self._waiters:
            waiter = next(iter(self._waiters))
            del self._waiters[waiter]
            if _wake(waiter):
                return


async def _until(waiter: asyncio.Future[None]) -> None:
    await waiter


def _wake(waiter: asyncio.Future[None]) -> bool:
    if waiter.done():
        return False
    waiter.set_result(None)
    return True

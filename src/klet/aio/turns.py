"""A semaphore with a time limit: a limited number of turns, first come first served, each lost after a while.

So a caller that never gives back its turn does not block the others.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from klet.aio.clock import Clock

SHORTEST_WAIT = timedelta(milliseconds=1)


class Turns:
    """At most `at_once` turns are held, and none counts for longer than `longest`.

    With `first` there are only so many at the beginning, and one more each time that so many are done, until no caller
    waits: the first callers are not slowed down by all the others, and a long queue gets all turns.
    """

    def __init__(self, *, at_once: int, longest: timedelta, clock: Clock, first: int | None = None) -> None:
        self._most = at_once
        self._first = at_once if first is None else first
        self._through = 0
        self._longest = longest
        self._clock = clock
        self._arrivals = 0
        self._held: dict[int, float] = {}
        self._waiting: dict[int, asyncio.Event] = {}

    @contextmanager
    def queue(self) -> Iterator["Turn"]:
        """Enter the queue; the turn is given back at the end of the block."""
        self._arrivals += 1
        turn = Turn(turns=self, number=self._arrivals)
        try:
            yield turn
        finally:
            turn.give_back()

    def renew(self, number: int) -> bool:
        if self._held.get(number, 0.0) <= self._clock.monotonic():
            return False
        self._hold(number)
        return True

    async def take(self, number: int) -> None:
        if self.renew(number):
            return
        self.give_back(number)
        if not self._waiting and self._has_place():
            self._hold(number)
            return
        granted = self._waiting[number] = asyncio.Event()
        self._hand_out()
        try:
            while not granted.is_set():
                first_lost = timedelta(seconds=min(self._held.values()) - self._clock.monotonic())
                # Timers may fire a moment early, and durations are rounded: never wait for nothing.
                await self._clock.wait(granted.wait(), at_most=max(first_lost, SHORTEST_WAIT))
                self._hand_out()
        finally:
            self._leave(number)

    def give_back(self, number: int) -> None:
        if self._held.pop(number, None) is not None:
            self._through += 1
            self._hand_out()
            self._note_end_of_queue()

    def _hand_out(self) -> None:
        """Give turns to those that came first, as long as there are any."""
        if not self._waiting:
            return
        self._drop_lost()
        for number in sorted(self._waiting)[: max(0, self._at_once() - len(self._held))]:
            self._hold(number)
            self._waiting[number].set()
            self._leave(number)

    def _has_place(self) -> bool:
        self._note_end_of_queue()
        return len(self._held) < self._at_once()

    def _at_once(self) -> int:
        return min(self._first + self._through // self._first, self._most)

    def _drop_lost(self) -> None:
        """Drop turns that were held for too long."""
        now = self._clock.monotonic()
        left = {number: until for number, until in self._held.items() if until > now}
        self._through += len(self._held) - len(left)
        self._held = left

    def _leave(self, number: int) -> None:
        self._waiting.pop(number, None)
        self._note_end_of_queue()

    def _note_end_of_queue(self) -> None:
        if self._waiting:
            return
        self._drop_lost()
        if not self._held:
            self._through = 0

    def _hold(self, number: int) -> None:
        self._held[number] = self._clock.monotonic() + self._longest.total_seconds()


class Turn:
    """A position in the queue. A turn that is taken again comes before those of later callers."""

    def __init__(self, *, turns: Turns, number: int) -> None:
        self._turns = turns
        self._number = number

    def renew(self) -> bool:
        """Extend the turn by its whole time; return False if it is not held."""
        return self._turns.renew(self._number)

    async def take(self) -> None:
        """Wait for a turn; a turn that is held already is extended."""
        await self._turns.take(self._number)

    def give_back(self) -> None:
        self._turns.give_back(self._number)

"""Turns to start pods: only so many at once, first come first served. Nothing but starts ever waits here.

Many sandboxes at once slow the runtime down for all of them. A turn is for what the runtime does: a pod that waits for
something else, an image or a hook, gives it back meanwhile, and gets the next one before those that came after it.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from klet.aio.clock import Clock
from klet.aio.tasks import first_of
from klet.model.halts import PodHalts
from klet.model.pods import PodUID

LONGEST_STEP = timedelta(seconds=5)
"""A sandbox or container that takes longer counts no more. On a busy machine one takes a second or two; one that hangs
may take minutes, and would keep its turn from others that could start."""

SHORTEST_WAIT = timedelta(milliseconds=1)


class StartTurns:
    """Gives out turns; a step of a start that hangs loses its own."""

    def __init__(self, *, at_once: int, halts: PodHalts, clock: Clock) -> None:
        self._at_once = at_once
        self._halts = halts
        self._clock = clock
        self._pods = 0
        self._held: dict[int, float] = {}
        self._waiting: dict[int, asyncio.Event] = {}

    @contextmanager
    def queue(self, uid: PodUID) -> Iterator["Turn"]:
        """The place of one pod in the queue; its turn is given back at the end of the block."""
        self._pods += 1
        number = self._pods
        try:
            yield Turn(turns=self, number=number, uid=uid)
        finally:
            self.give_back(number)

    async def take(self, number: int, uid: PodUID) -> None:
        now = self._clock.monotonic()
        if self._held.get(number, now) > now:
            self._hold(number)
            return
        self.give_back(number)
        # A pod that is to stop does not wait for its turn to start.
        await self._halts.run(uid, self._wait(number))

    def give_back(self, number: int) -> None:
        if self._held.pop(number, None) is not None:
            self._hand_out()

    async def _wait(self, number: int) -> None:
        granted = self._waiting[number] = asyncio.Event()
        self._hand_out()
        try:
            while not granted.is_set():
                first_lost = timedelta(seconds=min(self._held.values()) - self._clock.monotonic())
                # Timers may fire a moment early, and durations are rounded: never wait for nothing.
                await first_of(granted.wait(), self._clock.sleep(max(first_lost, SHORTEST_WAIT)))
                self._hand_out()
        finally:
            self._waiting.pop(number, None)

    def _hand_out(self) -> None:
        """To those that came first, as long as there are turns."""
        now = self._clock.monotonic()
        self._held = {number: until for number, until in self._held.items() if until > now}
        for number in sorted(self._waiting)[: max(0, self._at_once - len(self._held))]:
            self._hold(number)
            self._waiting.pop(number).set()

    def _hold(self, number: int) -> None:
        self._held[number] = self._clock.monotonic() + LONGEST_STEP.total_seconds()


class Turn:
    """One pod's place in the queue."""

    def __init__(self, *, turns: StartTurns, number: int, uid: PodUID) -> None:
        self._turns = turns
        self._number = number
        self._uid = uid

    async def take(self) -> None:
        """Return when the next step may begin; raises Halted if the pod is to stop meanwhile."""
        await self._turns.take(self._number, self._uid)

    def give_back(self) -> None:
        """What comes next is no work of the runtime, or there is nothing more to do."""
        self._turns.give_back(self._number)

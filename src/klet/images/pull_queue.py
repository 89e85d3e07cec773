"""Which pulls run and which wait: critical pods first, then first come first served (serial and parallel image puller).

Only pulls wait here. A pod whose images are on the node never comes near the queue.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta

from msgspec import Struct

from klet.api.times import Duration
from klet.model.foreign_text import LONGEST_WORD, shorten
from klet.model.pods import PodUID


class QueuedPull(Struct, frozen=True, eq=False):
    """A pull that a pod has asked for."""

    uid: PodUID
    pod: str
    """`namespace/name`."""
    image: str
    is_critical: bool
    asked_at: float
    """On the clock that never steps."""


class PullLine(Struct, frozen=True):
    """What a pull waits for."""

    running: tuple[QueuedPull, ...]
    before: tuple[QueuedPull, ...]
    """Those that wait too, and come first."""


class PullQueue:
    """Lets at most `at_once` pulls run; None: any number. Also the board that shows them."""

    def __init__(self, *, at_once: int | None) -> None:
        self._at_once = at_once
        self._running: dict[QueuedPull, None] = {}
        self._waiting: dict[QueuedPull, asyncio.Event] = {}

    @property
    def at_once(self) -> int | None:
        return self._at_once

    def running(self) -> tuple[QueuedPull, ...]:
        return tuple(self._running)

    def waiting(self) -> tuple[QueuedPull, ...]:
        """Return those that wait, in the order in which they will run."""
        return in_order(self._waiting)

    @asynccontextmanager
    async def turn(self, pull: QueuedPull, *, on_wait: Callable[[PullLine], None]) -> AsyncIterator[None]:
        """Run the block when it is the pull's turn. A cancelled caller leaves the queue, or gives back the turn.

        `on_wait` is called once if the pull cannot run at once.
        """
        granted = self._waiting[pull] = asyncio.Event()
        self._hand_out()
        try:
            if not granted.is_set():
                waiting = self.waiting()
                on_wait(PullLine(self.running(), waiting[: waiting.index(pull)]))
                await granted.wait()
            yield
        finally:
            self._waiting.pop(pull, None)
            self._running.pop(pull, None)
            self._hand_out()

    def _hand_out(self) -> None:
        while self._waiting and (self._at_once is None or len(self._running) < self._at_once):
            first = in_order(self._waiting)[0]
            self._running[first] = None
            self._waiting.pop(first).set()


def in_order(waiting: Iterable[QueuedPull]) -> tuple[QueuedPull, ...]:
    """Sort pulls, given as they came, into the order in which they run."""
    return tuple(sorted(waiting, key=lambda pull: not pull.is_critical))


def describe_wait(image: str, line: PullLine, *, now: float) -> str:
    """Return why a pull waits, and behind what."""
    pulls = "one pull runs" if len(line.running) == 1 else f"{len(line.running)} pulls run"
    oldest, others = line.running[0], len(line.before)
    since = Duration.of(timedelta(seconds=max(0, round(now - oldest.asked_at)))).wire()
    behind = f'"{shorten(oldest.image, LONGEST_WORD)}" of pod {oldest.pod} (asked for {since} ago)'
    if others:
        behind += f", and {others} that {'waits' if others == 1 else 'wait'}"
    return f'Pull of image "{image}" waits: {pulls}, as many as may at a time; it is behind {behind}'

"""The fake runtime's own time: what happens when, in a fixed order. It never reads a clock."""

import heapq
import itertools
from collections.abc import Callable
from datetime import UTC, datetime

_UNIX = datetime(1970, 1, 1, tzinfo=UTC)


class Timer:
    """Something that will happen, unless it is cancelled."""

    __slots__ = ("action",)

    def __init__(self, action: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.action = None


class TimerQueue:
    """Timers in the order of their times, then of their creation."""

    def __init__(self, start: datetime) -> None:
        self.now = start
        self._timers: list[tuple[datetime, int, Timer]] = []
        self._order = itertools.count()
        self._last_stamp = 0
        self._when_earlier: Callable[[], None] | None = None

    def at(self, when: datetime, action: Callable[[], None]) -> Timer:
        timer = Timer(action)
        is_first = not self._timers or when < self._timers[0][0]
        heapq.heappush(self._timers, (when, next(self._order), timer))
        if is_first and self._when_earlier is not None:
            self._when_earlier()
        return timer

    def when_earlier(self, listener: Callable[[], None]) -> None:
        """Call whenever something becomes due before all else, so that a sleeper wakes in time."""
        self._when_earlier = listener

    def next_due(self) -> datetime | None:
        timers = self._timers
        while timers and timers[0][2].action is None:
            heapq.heappop(timers)
        return timers[0][0] if timers else None

    def advance(self, now: datetime) -> None:
        """Let everything happen that is due by then, each thing at its own instant. Time never goes back."""
        timers = self._timers
        while timers and timers[0][0] <= now:
            due, _, timer = heapq.heappop(timers)
            action, timer.action = timer.action, None
            if action is not None:
                if due > self.now:
                    self.now = due
                action()
        if now > self.now:
            self.now = now

    def stamp(self) -> int:
        """Return nanoseconds since 1970, later than every stamp before: no runtime does two things at one instant."""
        self._last_stamp = max(nanoseconds(self.now), self._last_stamp + 1)
        return self._last_stamp


def nanoseconds(at: datetime) -> int:
    since = at - _UNIX
    return (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1000

"""Exponential delays: per key (client-go's flowcontrol.Backoff) and as a plain sequence."""

from collections.abc import Callable, Hashable, Iterator
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from msgspec import Struct

K = TypeVar("K", bound=Hashable)


class _Entry(Struct, frozen=True):
    delay: timedelta
    updated: datetime


class Backoff(Generic[K]):
    """Doubling delays per key. A key untouched for long, twice the longest delay, starts again from the first one."""

    def __init__(self, *, first: timedelta, longest: timedelta, forget_after: timedelta | None = None) -> None:
        self._first = first
        self._longest = longest
        self._forget_after = longest * 2 if forget_after is None else forget_after
        self._entries: dict[K, _Entry] = {}

    def get(self, key: K) -> timedelta:
        """Return the delay in force now; zero for a key that never failed."""
        entry = self._entries.get(key)
        return entry.delay if entry else timedelta(0)

    def next(
        self, key: K, *, now: datetime, event: datetime | None = None, longest: timedelta | None = None
    ) -> timedelta:
        """Count one more failure and return the delay that follows it. `longest` overrides the cap for this key.

        `event` is when it failed, if that is not now: time that was spent waiting must not make the key look old.
        """
        cap = self._longest if longest is None else longest
        entry = self._entries.get(key)
        if entry is None or self._expired(entry, now if event is None else event):
            delay = min(self._first, cap)
        else:
            delay = min(entry.delay * 2, cap)
        self._entries[key] = _Entry(delay=delay, updated=now)
        return delay

    def is_waiting_since(self, key: K, event: datetime, *, now: datetime) -> bool:
        """Return True while less than the key's delay has passed since `event`."""
        entry = self._entries.get(key)
        if entry is None or self._expired(entry, event):
            return False
        return _is_within(entry.delay, event, now)

    def is_waiting(self, key: K, *, now: datetime) -> bool:
        """Return True while less than the key's delay has passed since its last failure."""
        entry = self._entries.get(key)
        return entry is not None and _is_within(entry.delay, entry.updated, now)

    def waiting_until(self, key: K, *, now: datetime) -> datetime | None:
        """Return when the key's delay since its last failure ends; None if it has ended."""
        entry = self._entries.get(key)
        return entry.updated + entry.delay if entry is not None and self.is_waiting(key, now=now) else None

    def restore(self, key: K, *, delay: timedelta, updated: datetime) -> None:
        """Restore what a previous run of the process knew about a key."""
        self._entries[key] = _Entry(delay=min(delay, self._longest), updated=updated)

    def known(self) -> AbstractSet[K]:
        """Return every key that has a delay."""
        return self._entries.keys()

    def all(self) -> Iterator[tuple[K, timedelta, datetime]]:
        """Return every key with its delay and the instant of its last failure: what `restore` takes."""
        return ((key, entry.delay, entry.updated) for key, entry in self._entries.items())

    def reset(self, key: K) -> None:
        self._entries.pop(key, None)

    def reset_where(self, matches: Callable[[K], bool]) -> None:
        """Forget every key that matches."""
        for key in [key for key in self._entries if matches(key)]:
            del self._entries[key]

    def collect(self, *, now: datetime) -> None:
        """Forget keys that have not been used for long."""
        for key in [key for key, entry in self._entries.items() if self._expired(entry, now)]:
            del self._entries[key]

    def _expired(self, entry: _Entry, now: datetime) -> bool:
        return now - entry.updated > self._forget_after


def _is_within(delay: timedelta, event: datetime, now: datetime) -> bool:
    """Return whether an event happened less than `delay` ago.

    An event far in the future happened before the clock was set back: waiting for it could take hours.
    """
    return abs(now - event) < delay


def exponential_delays(*, first: timedelta, longest: timedelta, factor: float = 2.0) -> Iterator[timedelta]:
    """Yield endless delays, each `factor` times the one before, up to `longest`."""
    delay = min(first, longest)
    while True:
        yield delay
        delay = min(delay * factor, longest)

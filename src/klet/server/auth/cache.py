"""Answers that stay good for a while. Bounded: the oldest go first."""

from collections import OrderedDict
from collections.abc import Hashable
from datetime import timedelta
from typing import Final, Generic, TypeVar

from klet.aio.clock import Clock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

LIMIT: Final = 8192


class TimedCache(Generic[K, V]):
    """Values with the instant they expire."""

    def __init__(self, *, clock: Clock, limit: int = LIMIT) -> None:
        self._clock = clock
        self._limit = limit
        self._values: OrderedDict[K, tuple[V, float]] = OrderedDict()

    def get(self, key: K) -> V | None:
        found = self._values.get(key)
        if found is None:
            return None
        value, until = found
        if self._clock.monotonic() < until:
            return value
        del self._values[key]
        return None

    def put(self, key: K, value: V, *, keep: timedelta) -> None:
        self._values.pop(key, None)
        if keep > timedelta(0):
            self._values[key] = (value, self._clock.monotonic() + keep.total_seconds())
        while len(self._values) > self._limit:
            self._values.popitem(last=False)

"""Answers that stay good for a while."""

from datetime import timedelta

from klet.server.auth.cache import TimedCache
from klet.testing.clock import ManualClock

MINUTE = timedelta(minutes=1)


def test_a_value_is_gone_when_its_time_is_over():
    clock = ManualClock()
    cache = TimedCache(clock=clock)
    cache.put("a", 1, keep=MINUTE)
    clock.advance(timedelta(seconds=59))
    assert cache.get("a") == 1
    clock.advance(timedelta(seconds=1))
    assert cache.get("a") is None


def test_no_time_is_no_keeping():
    cache = TimedCache(clock=ManualClock())
    cache.put("a", 1, keep=MINUTE)
    cache.put("a", 2, keep=timedelta(0))
    assert cache.get("a") is None


def test_the_oldest_make_room():
    cache = TimedCache(clock=ManualClock(), limit=2)
    for key in ("a", "b", "a", "c"):
        cache.put(key, key, keep=MINUTE)
    assert [cache.get(key) for key in ("a", "b", "c")] == ["a", None, "c"]

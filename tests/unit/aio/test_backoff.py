"""Doubling delays: how they grow, when they count, and when they are forgotten."""

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from klet.aio.backoff import Backoff, exponential_delays

T0 = datetime(2030, 1, 1, tzinfo=UTC)


def s(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def after(seconds: float) -> datetime:
    return T0 + s(seconds)


@pytest.fixture
def backoff() -> Backoff[str]:
    return Backoff[str](first=s(10), longest=s(300))


def test_a_key_that_never_failed_waits_for_nothing(backoff):
    assert backoff.get("a") == s(0)
    assert not backoff.is_waiting("a", now=T0)
    assert not backoff.is_waiting_since("a", T0, now=T0)


def test_delays_double_up_to_the_longest(backoff):
    delays = [backoff.next("a", now=T0) for _ in range(7)]
    assert delays == [s(10), s(20), s(40), s(80), s(160), s(300), s(300)]
    assert backoff.get("a") == s(300)


def test_keys_do_not_share_delays(backoff):
    backoff.next("a", now=T0)
    backoff.next("a", now=T0)
    assert backoff.next("b", now=T0) == s(10)


@pytest.mark.parametrize(
    ("seconds", "waits"),
    [
        pytest.param(0, True, id="right after the failure it waits"),
        pytest.param(9.999, True, id="just before the end it still waits"),
        pytest.param(10, False, id="at the end it may go"),
    ],
)
def test_waiting_is_counted_from_the_last_failure(backoff, seconds, waits):
    backoff.next("a", now=T0)
    assert backoff.is_waiting("a", now=after(seconds)) is waits


@pytest.mark.parametrize(
    ("event", "now", "waits"),
    [
        pytest.param(5, 14, True, id="less than the delay since the event"),
        pytest.param(5, 15, False, id="the delay since the event has passed"),
        pytest.param(600, 601, True, id="an event within twice the longest delay of the last count still waits"),
        pytest.param(601, 602, False, id="an event long after the last count has nothing to wait for"),
    ],
)
def test_waiting_since_an_event(backoff, event, now, waits):
    backoff.next("a", now=T0)
    assert backoff.is_waiting_since("a", after(event), now=after(now)) is waits


@pytest.mark.parametrize(
    ("event", "now", "delay"),
    [
        pytest.param(None, 600, 20, id="a failure within twice the longest delay goes on doubling"),
        pytest.param(None, 601, 10, id="a failure long after starts over"),
        pytest.param(400, 700, 20, id="the event decides, not the time that was spent waiting after it"),
        pytest.param(601, 700, 10, id="an event long after the last count starts over"),
    ],
)
def test_when_counting_starts_over(backoff, event, now, delay):
    backoff.next("a", now=T0)
    at = None if event is None else after(event)
    assert backoff.next("a", now=after(now), event=at) == s(delay)


def test_the_time_after_which_a_key_is_forgotten_can_be_set_apart_from_the_longest_delay():
    backoff = Backoff[str](first=s(1), longest=s(1), forget_after=s(600))
    backoff.next("a", now=T0)
    assert backoff.is_waiting_since("a", after(500), now=after(500.5))
    assert not backoff.is_waiting_since("a", after(601), now=after(601.5))


def test_the_cap_can_be_set_for_one_count(backoff):
    assert backoff.next("a", now=T0, longest=s(5)) == s(5)
    assert backoff.next("a", now=T0, longest=s(8)) == s(8)


def test_a_restored_key_goes_on_where_it_was(backoff):
    backoff.restore("a", delay=s(40), updated=T0)
    backoff.restore("b", delay=s(4000), updated=T0)
    assert backoff.is_waiting("a", now=after(39))
    assert backoff.next("a", now=after(40)) == s(80)
    assert backoff.get("b") == s(300)


def test_a_clock_that_is_set_back_makes_nobody_wait_for_hours(backoff):
    backoff.next("a", now=T0)
    assert not backoff.is_waiting("a", now=after(-7200))
    assert backoff.waiting_until("a", now=after(-7200)) is None
    assert not backoff.is_waiting_since("a", T0, now=after(-7200))
    assert backoff.is_waiting_since("a", T0, now=after(-1)), "clocks of two programs are never quite the same"


def test_reset_forgets_a_key_and_matching_keys(backoff):
    for key in ("a1", "a2", "b"):
        backoff.next(key, now=T0)
    backoff.reset("b")
    backoff.reset("never seen")
    backoff.reset_where(lambda key: key == "a1")
    assert [backoff.get(key) for key in ("a1", "a2", "b")] == [s(0), s(10), s(0)]


def test_collect_forgets_only_what_is_old(backoff):
    backoff.next("old", now=T0)
    backoff.next("new", now=after(500))
    backoff.collect(now=after(601))
    assert (backoff.get("old"), backoff.get("new")) == (s(0), s(10))


@pytest.mark.parametrize(
    ("first", "longest", "expected"),
    [
        pytest.param(1, 5, [1, 2, 4, 5, 5], id="they grow to the longest and stay there"),
        pytest.param(9, 5, [5, 5, 5, 5, 5], id="the first is never longer than the longest"),
    ],
)
def test_plain_delays(first, longest, expected):
    delays = exponential_delays(first=s(first), longest=s(longest))
    assert list(islice(delays, 5)) == [s(seconds) for seconds in expected]

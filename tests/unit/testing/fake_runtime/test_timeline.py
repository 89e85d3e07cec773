from datetime import UTC, datetime, timedelta

from klet.testing.fake_runtime.timeline import TimerQueue, nanoseconds

START = datetime(2030, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def test_things_happen_in_the_order_of_time_then_creation_each_at_its_own_instant():
    line, seen = TimerQueue(START), []
    for after, name in ((2, "later"), (1, "first"), (1, "second"), (5, "not yet")):
        line.at(START + after * SECOND, lambda name=name: seen.append((name, line.now)))
    line.advance(START + 3 * SECOND)
    assert seen == [("first", START + SECOND), ("second", START + SECOND), ("later", START + 2 * SECOND)]
    assert line.now == START + 3 * SECOND
    assert line.next_due() == START + 5 * SECOND


def test_what_happens_may_cause_more_within_the_same_span():
    line, seen = TimerQueue(START), []
    line.at(START + SECOND, lambda: line.at(line.now + SECOND, lambda: seen.append(line.now)))
    line.advance(START + 3 * SECOND)
    assert seen == [START + 2 * SECOND]


def test_a_cancelled_timer_is_not_due():
    line, seen = TimerQueue(START), []
    timer = line.at(START + SECOND, lambda: seen.append("no"))
    timer.cancel()
    assert line.next_due() is None
    line.advance(START + 2 * SECOND)
    assert seen == []


def test_time_never_goes_back():
    line = TimerQueue(START)
    line.advance(START + SECOND)
    line.advance(START)
    assert line.now == START + SECOND


def test_stamps_are_unique_and_grow():
    line = TimerQueue(START)
    first, second = line.stamp(), line.stamp()
    line.advance(START + SECOND)
    assert (first, second, line.stamp()) == (nanoseconds(START), nanoseconds(START) + 1, nanoseconds(START + SECOND))


def test_a_listener_is_notified_only_of_earlier_due_times():
    line, notified = TimerQueue(START), []
    line.when_earlier(lambda: notified.append(line.next_due()))
    line.at(START + 3 * SECOND, lambda: None)
    line.at(START + 4 * SECOND, lambda: None)
    line.at(START + 2 * SECOND, lambda: None)
    assert notified == [START + 3 * SECOND, START + 2 * SECOND]

"""Log lines that clients can cause are limited; the others are not."""

import logging

import pytest

from klet.agent_log.flood import MOST, WINDOW, FloodFilter


def record(at, *, name="klet.server.connection", level=logging.WARNING, message="Request refused"):
    made = logging.LogRecord(name, level, "", 1, message, (), None)
    made.created = at
    return made


def passed(filter_, records):
    return [each for each in records if filter_.filter(each)]


def test_a_message_that_repeats_is_dropped_and_counted():
    filter_ = FloodFilter()
    assert len(passed(filter_, (record(100 + number / 1000) for number in range(1000)))) == MOST
    [later] = passed(filter_, [record(100 + WINDOW)])
    assert later.dropped == 1000 - MOST
    [again] = passed(filter_, [record(100 + WINDOW + 1)])
    assert not hasattr(again, "dropped")


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"name": "klet.sync.loop"}, id="other parts of the agent"),
        pytest.param({"name": "klet.serverless"}, id="a name that only begins alike"),
        pytest.param({"level": logging.ERROR}, id="what a person must act on"),
    ],
)
def test_what_is_never_dropped(options):
    assert len(passed(FloodFilter(), [record(100, **options) for _ in range(1000)])) == 1000


def test_errors_of_requests_are_limited_too():
    records = [record(100, name="klet.server.requests", level=logging.ERROR) for _ in range(1000)]
    assert len(passed(FloodFilter(), records)) == MOST


def test_messages_are_counted_apart_and_few_are_remembered():
    filter_ = FloodFilter()
    assert len(passed(filter_, (record(100, message=f"message {number}") for number in range(5000)))) == 5000
    assert len(filter_._seen) <= 256


def test_a_clock_that_is_set_back_begins_again():
    filter_ = FloodFilter()
    passed(filter_, [record(100) for _ in range(50)])
    assert len(passed(filter_, [record(50)])) == 1

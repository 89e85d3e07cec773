"""Log lines in klog text and in JSON."""

import io
import json
import logging
import sys

import pytest

from klet.agent_log.format import MOST, WINDOW, FloodFilter, JsonFormatter, TextFormatter, record_data
from klet.model.foreign_text import LONGEST_OUTPUT
from klet.model.verbosity import CHANGES, REQUESTS

INSTANT = 1893456000.123456


def record(level: int = logging.INFO, message: str = "Pod started", args: tuple[object, ...] = (), **extra: object):
    made = logging.LogRecord("klet.sync", level, "/src/klet/sync/workers.py", 12, message, args, None)
    made.created, made.process = INSTANT, 1234
    vars(made).update(extra)
    return made


@pytest.fixture(autouse=True)
def utc(monkeypatch):
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("level", "letter"),
    [
        (logging.DEBUG, "I"),
        (logging.INFO, "I"),
        (logging.WARNING, "W"),
        (logging.ERROR, "E"),
        (logging.CRITICAL, "F"),
        (25, "I"),
    ],
)
def test_a_line_of_text(level, letter):
    line = TextFormatter().format(record(level, pod="web", count=3, ok=True, ratio=0.5))
    assert line == (
        f'{letter}0101 00:00:00.123456    1234 workers.py:12] "Pod started" pod="web" count=3 ok=true ratio=0.5'
    )


@pytest.mark.parametrize(
    ("value", "quoted"),
    [
        pytest.param('a "b"\n', '"a \\"b\\"\\n"', id="what would break the line is escaped"),
        pytest.param("é", '"é"', id="other letters stay"),
        pytest.param(None, '"None"', id="nothing"),
        pytest.param(ValueError("no"), '"no"', id="an error"),
    ],
)
def test_values_in_text(value, quoted):
    assert TextFormatter().format(record(error=value)).endswith(f" error={quoted}")


def test_a_message_stays_on_one_line():
    assert '"a\\nb"' in TextFormatter().format(record(message="a\n%s", args=("b",)))


def test_a_trace_follows_in_text():
    try:
        raise ValueError("no luck")
    except ValueError:
        found = record(logging.ERROR)
        found.exc_info = sys.exc_info()
    head, *trace = TextFormatter().format(found).splitlines()
    assert head.startswith("E0101")
    assert trace[0] == "Traceback (most recent call last):"
    assert trace[-1] == "ValueError: no luck"
    assert "ValueError: no luck" in json.loads(JsonFormatter().format(found))["stacktrace"]


@pytest.mark.parametrize(
    ("level", "verbosity"),
    [
        pytest.param(REQUESTS, {"v": 6}, id="requests have verbosity 6"),
        pytest.param(logging.DEBUG, {"v": 4}, id="debugging lines have verbosity 4"),
        pytest.param(CHANGES, {"v": 3}, id="changes have verbosity 3"),
        pytest.param(logging.INFO, {"v": 0}, id="information"),
        pytest.param(logging.WARNING, {"v": 0}, id="warnings"),
        pytest.param(logging.ERROR, {}, id="errors have none"),
    ],
)
def test_a_line_of_json(level, verbosity):
    line = JsonFormatter().format(record(level, pod="web", count=3, path=io))
    assert "\n" not in line
    assert json.loads(line) == {
        "ts": 1893456000123.456,
        "caller": "sync/workers.py:12",
        "msg": "Pod started",
        **verbosity,
        "pod": "web",
        "count": 3,
        "path": str(io),
    }


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("é" * 100_000, id="a text"),
        pytest.param(ValueError("x" * 100_000), id="an error"),
        pytest.param(["x" * 100] * 10_000, id="a list"),
        pytest.param({"a": "x" * 100_000}, id="a mapping"),
    ],
)
@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()], ids=["text", "JSON"])
def test_no_value_is_longer_than_its_limit(formatter, value):
    line = formatter.format(record(error=value, pod="web", message="y" * 100_000))
    assert len(line.encode()) <= 3 * LONGEST_OUTPUT
    assert "web" in line
    assert "…" in line


def test_a_trace_is_bounded():
    try:
        raise ValueError("x" * 1_000_000)
    except ValueError:
        found = record(logging.ERROR)
        found.exc_info = sys.exc_info()
    for formatter in (TextFormatter(), JsonFormatter()):
        line = formatter.format(found)
        assert "Traceback (most recent call last):" in line
        assert len(line) <= 100_000


def test_short_values_keep_their_form_in_json():
    line = json.loads(JsonFormatter().format(record(names=["a", "b"], nothing=None, ratio=0.5, by={"a": 1})))
    assert (line["names"], line["nothing"], line["ratio"], line["by"]) == (["a", "b"], None, 0.5, {"a": 1})


def test_only_what_the_caller_gave_is_data():
    assert record_data(record(pod="web")) == {"pod": "web"}
    assert record_data(record()) == {}


HOSTILE = "/pods/\x9b31m\x9d\x85\x7f\u202e\x1b[2J"


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_no_control_character_from_outside_reaches_a_terminal(formatter):
    line = formatter.format(record(path=HOSTILE))
    assert not {*line} & {*HOSTILE[6:]} & {"\x9b", "\x9d", "\x85", "\x7f", "\u202e", "\x1b"}
    assert "\\u009b31m\\u009d\\u0085\\u007f\\u202e\\u001b[2J" in line


def test_json_means_the_same_with_its_controls_shown():
    assert json.loads(JsonFormatter().format(record(path=HOSTILE)))["path"] == HOSTILE


def record_at(at, *, name="klet.server.connection", level=logging.WARNING, message="Request refused"):
    made = logging.LogRecord(name, level, "", 1, message, (), None)
    made.created = at
    return made


def passed(filter_, records):
    return [each for each in records if filter_.filter(each)]


def test_a_message_that_repeats_is_dropped_and_counted():
    filter_ = FloodFilter()
    assert len(passed(filter_, (record_at(100 + number / 1000) for number in range(1000)))) == MOST
    [later] = passed(filter_, [record_at(100 + WINDOW)])
    assert later.dropped == 1000 - MOST
    [again] = passed(filter_, [record_at(100 + WINDOW + 1)])
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
    assert len(passed(FloodFilter(), [record_at(100, **options) for _ in range(1000)])) == 1000


def test_errors_of_requests_are_limited_too():
    records = [record_at(100, name="klet.server.requests", level=logging.ERROR) for _ in range(1000)]
    assert len(passed(FloodFilter(), records)) == MOST


def test_messages_are_counted_apart_and_few_are_remembered():
    filter_ = FloodFilter()
    assert len(passed(filter_, (record_at(100, message=f"message {number}") for number in range(5000)))) == 5000
    assert len(filter_._seen) <= 256


def test_a_clock_that_is_set_back_begins_again():
    filter_ = FloodFilter()
    passed(filter_, [record_at(100) for _ in range(50)])
    assert len(passed(filter_, [record_at(50)])) == 1

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klet.logs.line import LogError
from klet.logs.render import MAX_LINE, LogOptions, LogRenderer, resolve_since
from klet.model.log_query import LogStream

START = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


def stamp(number: int) -> str:
    return f"2023-11-14T22:13:2{number}.000000000Z"


def line(number: int, text: str, tag: str = "F", stream: str = "stdout") -> bytes:
    return f"{stamp(number)} {stream} {tag} {text}\n".encode()


THREE = line(1, "line1") + line(2, "line2") + line(3, "line3")
MIXED = line(1, "out") + line(2, "err", stream="stderr") + line(3, "out again")


def render(data: bytes, **options) -> bytes:
    renderer = LogRenderer(LogOptions(**options))
    return renderer.feed(data) + renderer.finish()


@pytest.mark.parametrize(
    ("data", "options", "expected"),
    [
        pytest.param(THREE, {}, b"line1\nline2\nline3\n", id="everything"),
        pytest.param(b"", {}, b"", id="an empty file"),
        pytest.param(THREE, {"limit": 9}, b"line1\nlin", id="the limit cuts exactly"),
        pytest.param(THREE, {"limit": 6}, b"line1\n", id="the limit at the end of a line"),
        pytest.param(THREE, {"limit": 0}, b"", id="limit zero gives nothing"),
        pytest.param(THREE, {"limit": 100}, b"line1\nline2\nline3\n", id="a limit beyond the end"),
        pytest.param(THREE, {"tail": 0}, b"", id="tail zero gives nothing"),
        pytest.param(
            THREE, {"tail": 2}, b"line1\nline2\n", id="without follow at most the tail's number of lines is given"
        ),
        pytest.param(
            THREE, {"tail": 2, "follow": True}, b"line1\nline2\nline3\n", id="a follower's tail does not end it"
        ),
        pytest.param(
            line(1, "a") + b"bad\n" + line(2, "b") + line(3, "c"),
            {"tail": 2},
            b"a\nb\n",
            id="a line that is none does not use up the tail",
        ),
        pytest.param(THREE, {"since": START + timedelta(seconds=2)}, b"line2\nline3\n", id="a line at since is kept"),
        pytest.param(
            THREE, {"since": START + timedelta(seconds=2, microseconds=1)}, b"line3\n", id="an earlier line is dropped"
        ),
        pytest.param(
            THREE,
            {"since": START + timedelta(seconds=2), "tail": 2},
            b"line2\n",
            id="a dropped line uses up one of the tail",
        ),
        pytest.param(
            THREE,
            {"timestamps": True, "limit": 39},
            stamp(1).encode() + b" line1\n20",
            id="the limit counts timestamps",
        ),
        pytest.param(
            line(1, "a", "P") + line(2, "b", "P") + line(3, "c") + line(4, "d"),
            {"timestamps": True},
            f"{stamp(1)} abc\n{stamp(4)} d\n".encode(),
            id="parts join into one line with one timestamp",
        ),
        pytest.param(
            line(1, "", "P") + line(2, "x"),
            {"timestamps": True},
            f"{stamp(1)} x\n".encode(),
            id="an empty part has its timestamp",
        ),
        pytest.param(
            line(1, "a", "P") + line(2, "b"),
            {"timestamps": True, "since": START + timedelta(seconds=2)},
            b"b\n",
            id="the rest of a line whose beginning was dropped has no timestamp",
        ),
        pytest.param(
            (line(1, "x", "P") * 10_000 + line(2, "y")) * 2,
            {"timestamps": True},
            (stamp(1).encode() + b" " + b"x" * 10_000 + b"y\n") * 2,
            id="ten thousand parts make one line, twice",
        ),
        pytest.param(MIXED, {}, b"out\nerr\nout again\n", id="both streams in the order of the file"),
        pytest.param(MIXED, {"stream": LogStream.STDOUT}, b"out\nout again\n", id="only stdout"),
        pytest.param(MIXED, {"stream": LogStream.STDERR}, b"err\n", id="only stderr"),
        pytest.param(
            MIXED, {"stream": LogStream.STDERR, "limit": 3}, b"err", id="the other stream does not count for the limit"
        ),
        pytest.param(
            line(1, "part", "P", "stderr") + line(2, "whole"),
            {"stream": LogStream.STDOUT, "timestamps": True},
            f"{stamp(2)} whole\n".encode(),
            id="a part of the other stream does not hide a timestamp",
        ),
        pytest.param(THREE[:-3], {}, b"line1\nline2\nlin", id="an incomplete last line is given out"),
        pytest.param(THREE + b"20", {}, b"line1\nline2\nline3\n", id="an unreadable last line is left out"),
        pytest.param(
            rb'{"log":"a\n","stream":"stdout","time":"2023-11-14T22:13:20Z"}' + b"\n" + line(1, "cri"),
            {},
            b"a\n",
            id="the format does not change within a read",
        ),
    ],
)
def test_render(data, options, expected):
    assert render(data, **options) == expected


@given(cuts=st.lists(st.integers(0, len(MIXED)), max_size=8))
def test_the_cut_into_chunks_does_not_matter(cuts):
    renderer = LogRenderer(LogOptions(timestamps=True))
    edges = [0, *sorted(cuts), len(MIXED)]
    output = b"".join(renderer.feed(MIXED[left:right]) for left, right in itertools.pairwise(edges))
    assert output == render(MIXED, timestamps=True)


def test_bad_lines_are_counted():
    renderer = LogRenderer(LogOptions())
    assert renderer.feed(line(1, "a") + b"bad\nworse\n" + line(2, "b")) == b"a\nb\n"
    assert renderer.skipped == 2


def test_an_unterminated_line_waits_for_its_rest():
    renderer = LogRenderer(LogOptions(follow=True))
    whole = line(1, "hello")
    assert renderer.feed(whole[:-3]) == b""
    assert renderer.pending == len(whole) - 3
    assert renderer.feed(whole[-3:]) == b"hello\n"
    assert renderer.pending == 0


def test_a_dropped_rest_does_not_join_what_follows():
    renderer = LogRenderer(LogOptions(follow=True))
    renderer.feed(line(1, "old")[:-3])
    renderer.drop_incomplete()
    assert renderer.feed(line(2, "new")) == b"new\n"


def test_a_file_of_no_lines_does_not_fill_the_memory():
    renderer = LogRenderer(LogOptions())
    for _ in range(MAX_LINE // 65536):
        renderer.feed(b"x" * 65536)
    with pytest.raises(LogError, match="log line is longer than"):
        renderer.feed(b"x")


def test_nothing_comes_after_the_end():
    renderer = LogRenderer(LogOptions(limit=3))
    assert renderer.feed(THREE) == b"lin"
    assert renderer.is_done
    assert renderer.feed(THREE) == b""
    assert renderer.finish() == b""


@pytest.mark.parametrize(
    ("seconds", "time", "expected"),
    [
        pytest.param(None, None, None, id="neither"),
        pytest.param(10, None, START - timedelta(seconds=10), id="seconds count back from now"),
        pytest.param(None, START - timedelta(hours=1), START - timedelta(hours=1), id="an instant"),
        pytest.param(2**63 - 1, None, None, id="more seconds than there are instants"),
        pytest.param(10, START - timedelta(hours=1), START - timedelta(seconds=10), id="the later wins: seconds"),
        pytest.param(10, START - timedelta(seconds=1), START - timedelta(seconds=1), id="the later wins: instant"),
    ],
)
def test_resolve_since(seconds, time, expected):
    assert resolve_since(seconds=seconds, time=time, now=START) == expected

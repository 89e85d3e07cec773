from datetime import UTC, datetime

import pytest

from klet.server.static_files import (
    ByteRange,
    FileAnswer,
    content_type_of,
    escape_path,
    modification_time,
    parse_ranges,
    plan_file_answer,
)

MODIFIED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SAME, BEFORE, AFTER = (
    "Fri, 02 Jan 2026 03:04:05 GMT",
    "Fri, 02 Jan 2026 03:04:04 GMT",
    "Fri, 02 Jan 2026 03:04:06 GMT",
)
WHOLE = FileAnswer(200)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("bytes=0-3", (ByteRange(0, 4),), id="the beginning"),
        pytest.param("bytes=5-", (ByteRange(5, 5),), id="from somewhere to the end"),
        pytest.param("bytes=-4", (ByteRange(6, 4),), id="the end"),
        pytest.param("bytes=-40", (ByteRange(0, 10),), id="more than there is from the end"),
        pytest.param("bytes=8-99", (ByteRange(8, 2),), id="more than there is"),
        pytest.param("bytes= 0-0 , , 9-9", (ByteRange(0, 1), ByteRange(9, 1)), id="several, with spaces"),
        pytest.param("bytes=10-", (), id="behind the end"),
        pytest.param("bytes=10-,0-0", (ByteRange(0, 1),), id="one of two is behind the end"),
        pytest.param("bytes=3-2", None, id="backwards"),
        pytest.param("bytes=-", None, id="no numbers"),
        pytest.param("bytes=--1", None, id="a negative end"),
        pytest.param("bytes=1", None, id="no dash"),
        pytest.param("bytes=x-y", None, id="letters"),
        pytest.param("bytes=0-99999999999999999999", None, id="more than 64 bits"),
        pytest.param("lines=0-1", None, id="another unit"),
        pytest.param("x bytes=0-1", None, id="something before the unit"),
    ],
)
def test_parse_ranges(text, expected):
    assert parse_ranges(text, 10) == expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        pytest.param({}, WHOLE, id="no condition"),
        pytest.param({"If-Modified-Since": SAME}, FileAnswer(304), id="not modified since"),
        pytest.param({"If-Modified-Since": BEFORE}, WHOLE, id="modified since"),
        pytest.param({"If-Modified-Since": "nonsense"}, WHOLE, id="no date"),
        pytest.param({"If-Modified-Since": "9" * 5000}, WHOLE, id="a long date"),
        pytest.param({"If-None-Match": '"x"', "If-Modified-Since": SAME}, WHOLE, id="another tag wins over the date"),
        pytest.param({"If-None-Match": "*"}, FileAnswer(304), id="any tag"),
        pytest.param({"If-Unmodified-Since": BEFORE}, FileAnswer(412), id="modified since, and must not be"),
        pytest.param({"If-Unmodified-Since": AFTER}, WHOLE, id="unmodified since"),
        pytest.param({"If-Match": '"x"'}, FileAnswer(412), id="a tag that no file has"),
        pytest.param({"Range": "bytes=0-0"}, FileAnswer(206, (ByteRange(0, 1),)), id="a range"),
        pytest.param(
            {"Range": "bytes=0-0", "If-Range": SAME}, FileAnswer(206, (ByteRange(0, 1),)), id="a range of what it has"
        ),
        pytest.param({"Range": "bytes=0-0", "If-Range": BEFORE}, WHOLE, id="a range of another version"),
        pytest.param({"Range": "bytes=0-5,3-9"}, WHOLE, id="ranges longer than the file"),
        pytest.param({"Range": "bytes=" + "0-0," * 65}, WHOLE, id="too many ranges"),
        pytest.param({"Range": "x"}, FileAnswer(416, error="invalid range"), id="no range"),
        pytest.param(
            {"Range": "bytes=10-"},
            FileAnswer(416, error="invalid range: failed to overlap", is_outside=True),
            id="a range behind the end",
        ),
    ],
)
def test_plan_file_answer(headers, expected):
    assert plan_file_answer(headers, size=10, modified=MODIFIED) == expected


def test_an_empty_file_has_no_ranges():
    assert plan_file_answer({"Range": "bytes=0-99"}, size=0, modified=None) == WHOLE


@pytest.mark.parametrize(
    ("name", "start", "expected"),
    [
        ("a.JSON", b"", "application/json"),
        ("syslog", b"Jan  2 03:04:05", "text/plain; charset=utf-8"),
        ("syslog", b"<html>", "text/plain; charset=utf-8"),
        ("syslog.1.gz", b"\x1f\x8b\x08\0", "application/x-gzip"),
        ("wtmp", b"\x07\0\0", "application/octet-stream"),
        ("empty", b"", "text/plain; charset=utf-8"),
        (".html", b"", "text/plain; charset=utf-8"),
    ],
)
def test_content_type(name, start, expected):
    assert content_type_of(name, start) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [("a b", "a%20b"), ("javascript:x", "./javascript:x"), ("a/b:c", "a/b:c"), ("é", "%C3%A9"), ("\udcff", "%FF")],
)
def test_escape_path(path, expected):
    assert escape_path(path) == expected


@pytest.mark.parametrize("seconds", [0, 2**40, -(2**40), 2**63 - 1])
def test_times_without_a_date(seconds):
    assert modification_time(seconds) is None

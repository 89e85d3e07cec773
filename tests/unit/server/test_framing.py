"""Where requests begin and end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klet.server.framing import (
    BodyReader,
    Chunked,
    FramingError,
    Length,
    RequestHead,
    ResponseHead,
    body_of,
    parse_request_head,
    parse_response_head,
    write_head,
)


def test_a_head_keeps_the_order_and_spelling_of_its_headers():
    head = parse_request_head(b"POST /exec/a/b/c?x=1 HTTP/1.1\r\nHost: node\r\nX-A: 1\r\nx-a:2 \r\n\r\n")
    assert head == RequestHead("POST", "/exec/a/b/c?x=1", "1.1", (("Host", "node"), ("X-A", "1"), ("x-a", "2")))
    assert head.all("x-a") == ("1", "2")
    assert head.path == "/exec/a/b/c"


def test_bytes_that_are_no_text_survive():
    data = b"GET / HTTP/1.1\r\nX: \xff\xfe\r\n\r\n"
    head = parse_request_head(data)
    assert write_head("GET / HTTP/1.1", head.headers) == data


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"GET /pods\r\n\r\n", id="no version"),
        pytest.param(b"GET /pods HTTP/2.0\r\n\r\n", id="another protocol"),
        pytest.param(b"GET  /pods HTTP/1.1\r\n\r\n", id="two spaces"),
        pytest.param(b"G\x00T /pods HTTP/1.1\r\n\r\n", id="a method that is no word"),
        pytest.param(b"GET /pods HTTP/1.1\r\nno colon\r\n\r\n", id="a header without a colon"),
        pytest.param(b"GET /pods HTTP/1.1\r\nA : b\r\n\r\n", id="a space before the colon"),
        pytest.param(b"GET /pods HTTP/1.1\r\nA: b\r\n c\r\n\r\n", id="a folded header"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", id="TLS"),
    ],
)
def test_what_is_not_plain_http_is_no_head(data):
    assert parse_request_head(data) is None


@given(st.binary(max_size=200))
def test_nothing_that_comes_breaks_the_parsers(data):
    parse_request_head(data)
    parse_response_head(data)


@pytest.mark.parametrize(
    ("head", "is_upgrade"),
    [
        (b"GET / HTTP/1.1\r\nConnection: Upgrade\r\n\r\n", True),
        (b"GET / HTTP/1.1\r\nConnection: keep-alive, upgrade\r\n\r\n", True),
        (b"GET / HTTP/1.1\r\nUpgrade: SPDY/3.1\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\nConnection: Upgrade\r\n\r\n", False),
    ],
)
def test_upgrades(head, is_upgrade):
    assert parse_request_head(head).is_upgrade is is_upgrade


def test_the_head_of_an_answer():
    assert parse_response_head(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n") == ResponseHead(
        101, (("Upgrade", "x"),)
    )
    assert parse_response_head(b"HTTP/1.1 101\r\n\r\n") == ResponseHead(101, ())
    assert parse_response_head(b"HTTP/1.1 1o1 x\r\n\r\n") is None


def announced(*headers):
    return body_of(ResponseHead(200, headers))


def test_what_a_head_announces():
    assert announced() is None
    assert announced(("Content-Length", "5")) == Length(5)
    assert announced(("content-length", "5"), ("Content-Length", "5")) == Length(5)
    assert announced(("Transfer-Encoding", "Chunked")) == Chunked()


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param((("Content-Length", "5"), ("Content-Length", "6")), id="two lengths"),
        pytest.param((("Content-Length", "-5"),), id="less than nothing"),
        pytest.param((("Content-Length", "5, 5"),), id="a list"),
        pytest.param((("Content-Length", "9" * 30),), id="more than there is"),
        pytest.param((("Content-Length", "5"), ("Transfer-Encoding", "chunked")), id="a length and chunks"),
        pytest.param((("Transfer-Encoding", "gzip, chunked"),), id="an encoding that is not known"),
        pytest.param((("Transfer-Encoding", "chunked"), ("Transfer-Encoding", "chunked")), id="chunks twice"),
    ],
)
def test_a_head_that_contradicts_itself(headers):
    with pytest.raises(FramingError):
        announced(*headers)


CHUNKS = b"5\r\nhello\r\n6;name=value\r\n world\r\n0\r\nTrailer: x\r\n\r\n"


def test_chunks_end_at_their_end_however_they_come():
    for size in range(1, len(CHUNKS) + 1):
        body, waiting, taken = Chunked(), bytearray(), 0
        data = CHUNKS + b"GET /next"
        for start in range(0, len(data), size):
            waiting += data[start : start + size]
            if not body.is_complete:
                step = body.take(waiting)
                del waiting[:step]
                taken += step
        assert body.is_complete
        assert taken == len(CHUNKS)


@pytest.mark.parametrize("data", [b"x\r\n", b"-5\r\n", b"\r\n", b"5" * 20 + b"\r\n", b"5" * 5000])
def test_chunks_without_a_proper_length(data):
    with pytest.raises(FramingError):
        Chunked().take(bytearray(data))


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_bodies_are_put_together(step):
    reader = BodyReader(ResponseHead(500, (("Transfer-Encoding", "chunked"),)))
    for start in range(0, len(CHUNKS), step):
        reader.feed(CHUNKS[start : start + step])
    assert (bytes(reader.content), reader.is_complete) == (b"hello world", True)


def test_a_body_of_some_length_and_one_without():
    sized = BodyReader(ResponseHead(500, (("Content-Length", "3"),)))
    sized.feed(b"ab")
    assert not sized.is_complete
    sized.feed(b"cd")
    assert (bytes(sized.content), sized.is_complete) == (b"abc", True)
    endless = BodyReader(ResponseHead(500, ()))
    endless.feed(b"abc")
    assert (bytes(endless.content), endless.is_complete) == (b"abc", False)

"""Requests as h11 reads them: what is refused, what is passed on, and that aiohttp's parser sees the same request."""

import time

import pytest
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import HttpRequestParser
from hypothesis import example, given, settings
from hypothesis import strategies as st

from klet.server.http1 import (
    HttpRefusal,
    MessageLimits,
    RequestHead,
    RequestMessage,
    RequestReader,
    write_plain,
    write_refusal,
)
from klet.server.streaming.answer import AnswerError, AnswerReader

LIMITS = MessageLimits()


def read_all(data, *, size=1 << 20):
    """The requests of a connection, up to the first refusal, fed in pieces of a size."""
    reader, found = RequestReader(LIMITS), []
    for start in range(0, len(data), size):
        reader.feed(data[start : start + size])
        while (message := reader.read()) is not None:
            found.append(message)
            if isinstance(message, HttpRefusal):
                return found
    return found


def head(*lines, first="GET / HTTP/1.1", host=True):
    fields = (*(("Host: n",) if host else ()), *lines)
    return "\r\n".join((first, *fields, "", "")).encode("latin-1")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        pytest.param(head(first="GET / HTTP/2.0"), 505, id="a version that is not spoken here"),
        pytest.param(head(first="GET / HTTP/9.9.9"), 400, id="a version that does not exist"),
        pytest.param(head(first="GET  / HTTP/1.1"), 400, id="two spaces"),
        pytest.param(head(first="GET / x HTTP/1.1"), 400, id="a space in the path"),
        pytest.param(head(first="CONNECT a:1 HTTP/1.1"), 405, id="CONNECT"),
        pytest.param(head(first="FOO / HTTP/1.1"), 501, id="a method that does not exist"),
        pytest.param(head(first="get / HTTP/1.1"), 501, id="a method in small letters"),
        pytest.param(head(first="PRI / HTTP/1.1"), 501, id="the method of HTTP/2's preface"),
        pytest.param(head(first="GET x HTTP/1.1"), 400, id="a target that is no path"),
        pytest.param(head(first="OPTIONS * HTTP/1.1"), 400, id="a target that is the whole server"),
        pytest.param(head(first="GET ftp://x/ HTTP/1.1"), 400, id="a target of another scheme"),
        pytest.param(head(first="GET /pods#/exec HTTP/1.1"), 400, id="a target with a fragment"),
        pytest.param(head(first=f"GET {'/' * 65} HTTP/1.1"), 404, id="a path of many segments"),
        pytest.param(head(host=False), 400, id="no Host"),
        pytest.param(head("Host: m"), 400, id="two Hosts"),
        pytest.param(head("no colon"), 400, id="no colon"),
        pytest.param(head("Name : value"), 400, id="a space before the colon"),
        pytest.param(head("X: a\x00b"), 400, id="NUL"),
        pytest.param(head("X: a\rb"), 400, id="a bare CR"),
        pytest.param(head("X: a\x0bb"), 400, id="a vertical tab"),
        pytest.param(head("X: a", " Content-Length: 5"), 400, id="a line that continues the one before it"),
        pytest.param(head("Content-Length: x"), 400, id="a length that is no number"),
        pytest.param(head("Content-Length: +1"), 400, id="a length with a sign"),
        pytest.param(head("Content-Length: " + "1" * 5000), 400, id="a length of thousands of digits"),
        pytest.param(head("Content-Length: 1", "Content-Length: 2"), 400, id="two lengths"),
        pytest.param(head("Content-Length: 1", "Transfer-Encoding: chunked"), 400, id="two ends of one body"),
        pytest.param(head("Transfer-Encoding: gzip, chunked"), 501, id="an encoding that is not spoken here"),
        pytest.param(head("Transfer-Encoding: chunked", first="GET / HTTP/1.0"), 400, id="chunks in HTTP/1.0"),
        pytest.param(head("Expect: wonders"), 417, id="a strange expectation"),
        pytest.param(head("X: " + "a" * (64 << 10)), 431, id="a large field"),
        pytest.param(head(*["X: a"] * 101), 431, id="many fields"),
        pytest.param(head(first="GET /" + "a" * (64 << 10) + " HTTP/1.1"), 431, id="a long path"),
        pytest.param(head("Content-Length: 65537") + b"x" * 65537, 413, id="a large body"),
        pytest.param(head("Transfer-Encoding: chunked") + b"1\r\nx\r\n" * 5000, 413, id="a body of many tiny chunks"),
        pytest.param(head("Transfer-Encoding: chunked") + b"zz\r\n", 400, id="a chunk without a length"),
        pytest.param(head("Transfer-Encoding: chunked") + b"1;" + b"a" * 5000, 431, id="an extension without end"),
        pytest.param(head("Transfer-Encoding: chunked") + b"0\r\nX: " + b"a" * 5000, 431, id="a trailer without end"),
        pytest.param(head("Transfer-Encoding: chunked") + b"1\r\nxy\r\n0\r\n\r\n", 400, id="a chunk that is too long"),
        pytest.param(head("X: a\x7f"), 400, id="DEL"),
        pytest.param(b"\r" + head(), 400, id="a bare CR before the request"),
        pytest.param(head("Transfer-Encoding: chunked") + b"1;a\rb\r\nx\r\n0\r\n\r\n", 400, id="a CR in an extension"),
        pytest.param(head("Transfer-Encoding: chunked") + b"1;\x7f\r\nx\r\n0\r\n\r\n", 400, id="DEL in an extension"),
        pytest.param(head("Transfer-Encoding: chunked") + b"0\r\nX: \x01\r\n\r\n", 400, id="a control in a trailer"),
        pytest.param(head("Transfer-Encoding: chunked") + b"0\r\nX: a\r\n b\r\n\r\n", 400, id="a trailer of two lines"),
        pytest.param(head("Transfer-Encoding: chunked") + b"1\nx\r\n0\r\n\r\n", 400, id="a size that a LF ends"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\n\n", 400, id="TLS where plain HTTP is spoken"),
    ],
)
@pytest.mark.parametrize("size", [1 << 20, 7], ids=["at once", "in small pieces"])
def test_what_is_refused(data, status, size):
    *before, refusal = read_all(data, size=size)
    assert before == []
    assert isinstance(refusal, HttpRefusal)
    assert refusal.status == status
    assert write_refusal(refusal).startswith(f"HTTP/1.1 {status} {refusal.reason}\r\n".encode())


@pytest.mark.parametrize("size", [1 << 20, 1024, 61, 7, 1])
@pytest.mark.parametrize("body", [0, 1, 500, 1000])
@pytest.mark.parametrize(
    ("make", "most"),
    [
        pytest.param(lambda n: b"0\r\nX: " + b"a" * (n - 7) + b"\r\n\r\n", 1024, id="a trailer"),
        pytest.param(lambda n: b"0\r\n" + b"X: a\r\n" * 100 + b"Y:" + b"a" * (n - 604) + b"\n\n", 1024, id="many"),
        pytest.param(lambda n: b"0;" + b"a" * (n - 4) + b"\r\n\r\n", 1024, id="an extension"),
    ],
)
def test_the_pieces_do_not_decide_how_long_lines_of_chunks_may_be(make, most, body, size):
    """Found by atheris: trailers between one and two kilobytes were accepted or refused by how they arrived."""
    start = head("Transfer-Encoding: chunked") + (b"%x\r\n%b\r\n" % (body, b"x" * body) if body else b"")
    (message,) = read_all(start + make(most), size=size)
    assert message.body == b"x" * body
    (refusal,) = read_all(start + make(most + 1), size=size)
    assert refusal.status == 431


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(b"\r\n\r\n" + head(), ("GET", "/", b""), id="empty lines before"),
        pytest.param(head().replace(b"\r\n", b"\n"), ("GET", "/", b""), id="lines that end with LF alone"),
        pytest.param(head("Content-Length: 3") + b"abc", ("GET", "/", b"abc"), id="a length"),
        pytest.param(head("Content-Length: 3, 3") + b"abc", ("GET", "/", b"abc"), id="one length twice"),
        pytest.param(
            head("Transfer-Encoding: Chunked") + b"2;x=y\r\nab\r\n1 \r\nc\r\n0\r\nT: u\r\n\r\n",
            ("GET", "/", b"abc"),
            id="chunks with all that they may have",
        ),
        pytest.param(head(first="GET / HTTP/1.0", host=False), ("GET", "/", b""), id="HTTP/1.0"),
    ],
)
def test_what_is_read(data, expected):
    for size in (1 << 20, 1):
        [message] = read_all(data + b"\r\n", size=size)
        assert (message.head.method, message.head.target, message.body) == expected


@pytest.mark.parametrize(
    ("version", "connection", "persistent", "upgrade"),
    [
        ("1.1", (), True, False),
        ("1.1", ("close",), False, False),
        ("1.1", ("Keep-Alive, Close",), False, False),
        ("1.0", (), False, False),
        ("1.0", ("keep-alive",), True, False),
        ("1.1", ("keep-alive, Upgrade",), True, True),
        ("1.1", ("keep-alive", "upgrade"), True, True),
        ("1.1", ("not-an-upgrade",), True, False),
        ("1.0", ("upgrade",), False, False),
    ],
)
def test_how_a_connection_goes_on(version, connection, persistent, upgrade):
    headers = (("Upgrade", "websocket"), *(("Connection", value) for value in connection))
    found = RequestHead("GET", "/", version, headers)
    assert (found.is_persistent, found.is_upgrade) == (persistent, upgrade)


class Loop:
    """What aiohttp's parser asks of a loop."""

    def get_debug(self):
        return False


class Pausable:
    _reading_paused = False

    def pause_reading(self):
        pass

    def resume_reading(self, **_options):
        pass


def as_aiohttp_reads(data):
    parser = HttpRequestParser(
        Pausable(), Loop(), 2**18, max_line_size=1 << 17, max_headers=200, max_field_size=1 << 17
    )
    messages, is_upgraded, tail = parser.feed_data(data)
    bodies = [b"".join(getattr(payload, "_buffer", ())) for _, payload in messages]
    return [(m.method, m.path, b) for (m, _), b in zip(messages, bodies, strict=True)], is_upgraded, tail


TOKENS = st.text(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_!#$%&'*+.^`|~", min_size=1, max_size=12
)
VALUES = st.text(st.characters(min_codepoint=0, max_codepoint=255), max_size=30)
FRAMING = st.sampled_from(
    [
        "Content-Length: 0",
        "Content-Length: 5",
        "Content-Length: 05",
        "content-length: 5, 5",
        "Content-Length : 5",
        " Content-Length: 5",
        "Transfer-Encoding: chunked",
        "Transfer-Encoding:\tchunked ",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: chunked, chunked",
        "Transfer_Encoding: chunked",
        "Connection: close",
        "Connection: Upgrade",
        "Connection: content-length",
        "Upgrade: websocket",
        "Expect: 100-continue",
        "Trailer: Content-Length",
    ]
)
BODIES = st.sampled_from(
    [b"", b"hello", b"0\r\n\r\n", b"5\r\nhello\r\n0\r\n\r\n", b"5\nhello\n0\n\n", b"GET /b HTTP/1.1\r\nHost: n\r\n\r\n"]
)
LINES = st.one_of(FRAMING, st.builds("{}: {}".format, TOKENS, VALUES))
ENDS = st.sampled_from(["\r\n", "\n", "\r\r\n"])


@st.composite
def streams(draw):
    data = b""
    for _ in range(draw(st.integers(1, 3))):
        end = draw(ENDS)
        method = draw(st.sampled_from(["GET", "POST", "PUT", "OPTIONS"]))
        lines = [f"{method} /{draw(TOKENS)} HTTP/1.{draw(st.sampled_from('01'))}", "Host: n"]
        lines += draw(st.lists(LINES, max_size=4))
        data += (end.join(lines) + end + end).encode("latin-1") + draw(BODIES)
    return data


@settings(max_examples=500)
@given(streams(), st.integers(1, 300))
@example(b"POST / HTTP/1.1\r\nHost: n\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET", 7)
def test_aiohttp_sees_exactly_the_requests_that_h11_saw(data, size):
    """Whatever a client sends, the server behind gets one request for each that was read, with its body, no more.

    It may still refuse one, such as a method that it does not know.
    """
    for message in read_all(data, size=size):
        if isinstance(message, RequestMessage):
            try:
                seen, is_upgraded, tail = as_aiohttp_reads(write_plain(message))
            except HttpProcessingError:
                continue
            assert seen == [(message.head.method, message.head.target, message.body)]
            assert (is_upgraded, bytes(tail)) == (False, b"")


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("http://x/pods?a=b", "/pods?a=b"),
        ("HTTPS://x/pods", "/pods"),
        ("http://x", "/"),
        ("http://x?a=//b", "/?a=//b"),
        ("http://xn--a.xn--/pods", "/pods"),
        ("http://[::1/pods", "/pods"),
        ("http://x:99999999/pods", "/pods"),
        ("http:///pods", "/pods"),
        ("//x/pods", "//x/pods"),
    ],
)
def test_of_a_whole_url_only_the_path_counts(target, path):
    """What aiohttp makes of the host may be an exception that ends its task without an answer."""
    [message] = read_all(head(first=f"GET {target} HTTP/1.1"))
    [(_, seen, _)], _, _ = as_aiohttp_reads(write_plain(message))
    assert seen == path


@pytest.mark.parametrize("header", ["Content-Encoding: gzip", "Content-Encoding: br", "Sec-WebSocket-Key1: x"])
def test_aiohttp_has_no_reason_to_unpack_or_to_refuse_a_request(header):
    [message] = read_all(head(header, "Content-Length: 5") + b"hello")
    assert header.encode() not in write_plain(message)
    assert as_aiohttp_reads(write_plain(message))[0] == [("GET", "/", b"hello")]


HOSTILE = {
    "spaces and a NUL": lambda n: head("X:" + " " * n + "\x00"),
    "spaces and a vertical tab": lambda n: head("X:" + " " * n + "\x0b"),
    "spaces alone": lambda n: head("X:" + " " * n),
    "spaces in a value": lambda n: head("X: a" + " " * n + "\rb"),
    "folded lines": lambda n: head("X: a", *[" b"] * (n // 800)),
    "a name without a colon": lambda n: head("X" * n),
    "commas": lambda n: head("Connection: " + "," * n),
    "lengths": lambda n: head("Content-Length: " + "1," * (n // 2)),
    "a trailer of spaces": lambda n: head("Transfer-Encoding: chunked") + b"0\r\nX:" + b" " * n + b"\x00\r\n\r\n",
    "an extension of spaces": lambda n: head("Transfer-Encoding: chunked") + b"1;" + b" " * n + b"\x00\r\n\r\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_head_costs_more_than_its_length_deserves(name):
    """The limit is some hundred times what these take, and a thousandth of what a quadratic pattern took."""
    data = HOSTILE[name](60_000)
    started = time.process_time()
    read_all(data)
    assert time.process_time() - started < 0.5


def test_a_head_that_comes_byte_by_byte_is_searched_once():
    data = head(*[f"X-{number}: {'a' * 600}" for number in range(90)])
    started = time.process_time()
    [message] = read_all(data, size=1)
    assert len(message.head.headers) == 91
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    ("answer", "how"),
    [
        (b"what?\r\n\r\n", "with something that is not HTTP"),
        (b"HTTP/1.1 101 x" * 10_000, "with headers without end"),
        (b"HTTP/1.1 200 OK\r\nX:" + b" " * 50_000 + b"\x00\r\n\r\n", "with something that is not HTTP"),
    ],
)
def test_answers_of_the_runtime_that_cannot_be_read(answer, how):
    reader = AnswerReader(LIMITS)
    headers = (("Host", "n"), ("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1"))
    assert reader.write_request(RequestHead("POST", "/exec/x", "1.1", headers), b"").startswith(
        b"POST /exec/x HTTP/1.1"
    )
    with pytest.raises(AnswerError, match=f"^{how}$"):
        reader.read_head(answer)

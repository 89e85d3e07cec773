import zlib

import pytest

from klet.host.http_response import MAX_BODY, MAX_HEAD, HttpResponse, ResponseError, ResponseReader

OK = b"HTTP/1.1 200 OK\r\n"
BROKEN = "net/http: HTTP/1.x transport connection broken: "


def read(data, *, step=None):
    """The response from data that comes in steps and then ends."""
    reader = ResponseReader()
    step = step or max(len(data), 1)
    for start in range(0, len(data), step):
        if (response := reader.feed(data[start : start + step])) is not None:
            return response
    return reader.end()


@pytest.mark.parametrize("step", [None, 1, 3], ids=["at once", "byte by byte", "in pieces"])
@pytest.mark.parametrize(
    ("data", "want"),
    [
        pytest.param(OK + b"Content-Length: 3\r\n\r\nabc", HttpResponse(200, b"abc"), id="a length"),
        pytest.param(OK + b"content-length: 0\r\n\r\n", HttpResponse(200), id="no body"),
        pytest.param(OK + b"\r\nabc", HttpResponse(200, b"abc"), id="a body until the end"),
        pytest.param(
            OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n",
            HttpResponse(200, b"abcde"),
            id="chunks",
        ),
        pytest.param(b"HTTP/1.1 200 OK\nContent-Length: 3\n\nabc", HttpResponse(200, b"abc"), id="bare newlines"),
        pytest.param(b"HTTP/1.0 200\r\n\r\n".replace(b"200", b"200 "), HttpResponse(200), id="no reason phrase"),
        pytest.param(b"HTTP/1.1 204 No\r\nContent-Length: 9\r\n\r\n", HttpResponse(204), id="204 has no body"),
        pytest.param(b"HTTP/1.1 101 Switch\r\n\r\n", HttpResponse(101), id="switching protocols is an answer"),
        pytest.param(b"HTTP/1.1 100 Go on\r\n\r\nHTTP/1.1 204 No\r\n\r\n", HttpResponse(204), id="continue is none"),
        pytest.param(
            b"HTTP/1.1 302 F\r\nLocation: /x\r\nContent-Length: 1\r\n\r\na",
            HttpResponse(302, b"a", "/x"),
            id="a location",
        ),
        pytest.param(OK + b"A: b\r\n more\r\nContent-Length: 1\r\n\r\na", HttpResponse(200, b"a"), id="a folded line"),
    ],
)
def test_responses(data, want, step):
    assert read(data, step=step) == want


@pytest.mark.parametrize(
    "framing",
    [
        pytest.param(b"Content-Length: 20000\r\n\r\n", id="by length"),
        pytest.param(b"\r\n", id="until the end"),
        pytest.param(b"Transfer-Encoding: chunked\r\n\r\n4E20\r\n", id="in one chunk"),
    ],
)
def test_a_long_body_is_cut(framing):
    reader = ResponseReader()
    assert reader.feed(OK + framing) is None
    assert reader.feed(b"x" * (MAX_BODY - 1)) is None
    assert reader.feed(b"xx") == HttpResponse(200, b"x" * MAX_BODY)


@pytest.mark.parametrize(
    ("data", "message", "in_body"),
    [
        pytest.param(b"", "EOF", False, id="nothing"),
        pytest.param(
            b"SSH-2.0-x\r\n\r\n", BROKEN + 'malformed HTTP response "SSH-2.0-x"', False, id="another protocol"
        ),
        pytest.param(b"garbage", BROKEN + 'malformed HTTP response "garbage"', False, id="not even a line"),
        pytest.param(b"HTTP/1.1 2x0 OK\r\n\r\n", BROKEN + 'malformed HTTP status code "2x0"', False, id="bad code"),
        pytest.param(b"HTTP/x.1 200 OK\r\n\r\n", BROKEN + 'malformed HTTP version "HTTP/x.1"', False, id="bad version"),
        pytest.param(
            OK + b"bad header\r\n\r\n",
            BROKEN + 'malformed MIME header: missing colon: "bad header"',
            False,
            id="no colon",
        ),
        pytest.param(OK + b"A: b\r\n", BROKEN + "unexpected EOF", False, id="half a head"),
        pytest.param(OK + b"Content-Length: x\r\n\r\n", BROKEN + 'bad Content-Length "x"', False, id="bad length"),
        pytest.param(
            OK + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
            BROKEN + f'bad Content-Length "{"9" * 1024}"',
            False,
            id="a length that nobody could count",
        ),
        pytest.param(
            OK + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\n",
            BROKEN + 'http: message cannot contain multiple Content-Length headers; got ["3" "4"]',
            False,
            id="two lengths",
        ),
        pytest.param(
            OK + b"Transfer-Encoding: gzip\r\n\r\n",
            BROKEN + 'unsupported transfer encoding: "gzip"',
            False,
            id="an unknown encoding",
        ),
        pytest.param(OK + b"Content-Length: 10\r\n\r\nabc", "unexpected EOF", True, id="half a body"),
        pytest.param(OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabc", "unexpected EOF", True, id="half a chunk"),
        pytest.param(
            OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", "invalid byte in chunk length", True, id="a bad chunk"
        ),
        pytest.param(
            OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"1" * 300,
            "invalid byte in chunk length",
            True,
            id="an endless chunk length",
        ),
    ],
)
def test_errors(data, message, in_body):
    with pytest.raises(ResponseError) as caught:
        read(data)
    assert (str(caught.value), caught.value.in_body) == (message, in_body)


TOO_MUCH_HEAD = "server response headers exceeded 65536 bytes; aborted"


@pytest.mark.parametrize("step", [None, 1000], ids=["at once", "in pieces"])
@pytest.mark.parametrize(
    "head",
    [
        pytest.param(OK + b"A: " + b"x" * MAX_HEAD, id="one endless header"),
        pytest.param(OK + b"A: b\r\n" * 20_000, id="endless headers"),
        pytest.param(OK + b"A: " + b"x" * MAX_HEAD + b"\r\n\r\n", id="a head that ends too late"),
        pytest.param(b"x" * (MAX_HEAD + 1), id="an endless status line"),
        pytest.param(b"HTTP/1.1 100 Go on\r\n\r\n" * 10_000, id="endless interim responses"),
    ],
)
def test_an_endless_head(head, step):
    with pytest.raises(ResponseError, match=TOO_MUCH_HEAD):
        read(head, step=step)


def test_the_longest_head():
    head = OK + b"A: " + b"x" * (MAX_HEAD - len(OK) - 7) + b"\r\n\r\n"
    assert len(head) == MAX_HEAD
    assert read(head + b"abc") == HttpResponse(200, b"abc")


def test_an_endless_body_of_tiny_chunks_ends_where_nobody_looks_any_more():
    reader = ResponseReader()
    reader.feed(OK + b"Transfer-Encoding: chunked\r\n\r\n")
    assert reader.feed(b"1\r\nx\r\n" * MAX_BODY * 2) == HttpResponse(200, b"x" * MAX_BODY)


@pytest.mark.parametrize("line", [b"1;" + b"x" * 300, b"0" * 300 + b"1"], ids=["an extension", "leading zeros"])
def test_a_long_line_before_a_chunk_is_refused_even_if_it_ends(line):
    with pytest.raises(ResponseError, match="invalid byte in chunk length"):
        read(OK + b"Transfer-Encoding: chunked\r\n\r\n" + line + b"\r\nx\r\n0\r\n\r\n")


def test_a_compressed_body_stays_compressed():
    bomb = zlib.compress(bytes(50_000_000))
    head = OK + b"Content-Encoding: deflate\r\nContent-Length: " + str(len(bomb)).encode() + b"\r\n\r\n"
    assert read(head + bomb) == HttpResponse(200, bomb[:MAX_BODY])

"""Requests on a connection of the kubelet API, compared with two other readers: one of RFC 9112, and aiohttp's.

What klet accepts must mean the same to all of them: method, target, fields, and where the body ends. Whatever is
ambiguous is refused, or a request could be smuggled past a server in front.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import HttpRequestParser

from klet.server.http1 import HttpRefusal, MessageLimits, RequestMessage, RequestReader, write_plain, write_refusal
from klet.testing.fuzz.mutators import amplify_bytes, change_bytes, change_lines, choose_of, put_words
from klet.testing.fuzz.target import Flaw, FuzzTarget, Limits, Run, piece_size
from klet.testing.fuzz.targets.rfc9112 import Conversation, ParsedRequest, read_conversation

Reader: TypeAlias = Callable[[bytes, int], list[RequestMessage | HttpRefusal]]
"""Reads the requests of a connection whose bytes come in pieces of that size, up to the first refusal."""

WORDS: Final = (
    b"GET / HTTP/1.1",
    b"POST /run/a/b/c?x=%00 HTTP/1.1",
    b"HEAD * HTTP/1.0",
    b"CONNECT a:1 HTTP/1.1",
    b"PRI * HTTP/2.0",
    b"GET http://n/pods HTTP/1.1",
    b"Host: n",
    b"Host: m",
    b"host:n",
    b"Content-Length: 5",
    b"Content-Length: 0",
    b"Content-Length: 05",
    b"content-length: 5, 5",
    b"Content-Length: 5, 6",
    b"Content-Length: +5",
    b"Content-Length : 5",
    b" Content-Length: 5",
    b"Content-Length: 5\r\nContent-Length: 5",
    b"Content-Length: 4\r\nContent-Length: 5",
    b"Content-Length:\r\n 5",
    b"Content-Length: 5_0",
    b"Content-Length: 0x5",
    b"Content-Length: \xc2\xb2",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding:\tchunked ",
    b"Transfer-Encoding: chunked, chunked",
    b"Transfer-Encoding:\r\n chunked",
    b"Transfer-Encoding: \x0bchunked",
    b"Transfer-Encoding: chunke\x64",
    b"Transfer-Encoding: identity",
    b"Transfer-Encoding: gzip, chunked",
    b"Transfer_Encoding: chunked",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    b"TE: trailers",
    b"Trailer: Content-Length",
    b"Connection: close",
    b"Connection: keep-alive, Upgrade",
    b"Connection: content-length",
    b"Upgrade: websocket",
    b"Expect: 100-continue",
    b"X: \x80",
    b"X: \x00",
    b"X:",
    b":",
    b"X\x00Y: 1",
    b"X\tY: 1",
    b"5\r\nhello\r\n0\r\n\r\n",
    b"5;a=b\r\nhello\r\n0\r\nX: 1\r\n\r\n",
    b"5\nhello\n0\n\n",
    b"0\r\n\r\n",
    b"00005\r\nhello\r\n",
    b"ffffffffffffffff\r\n",
    b"10000000000000005\r\nhello\r\n",
    b"-5\r\n",
    b"5 \r\nhello\r\n",
    b"5\t;\r\nhello\r\n",
    b"\r\n",
    b"\n",
    b"\r",
    b"hello",
)
SEEDS: Final = (
    b"GET /healthz HTTP/1.1\r\nHost: n\r\n\r\n",
    b"GET /pods HTTP/1.0\r\nAuthorization: Bearer abc\r\nAccept: */*\r\n\r\n",
    b"POST /run/a/b/c HTTP/1.1\r\nHost: n\r\nContent-Length: 5\r\n\r\nhelloGET /b HTTP/1.1\r\nHost: n\r\n\r\n",
    (
        b"POST / HTTP/1.1\r\nHost: n\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"5\r\nhello\r\n3;a=b\r\nabc\r\n0\r\nX: 1\r\n\r\nGET / HTTP/1.1\r\nHost: n\r\n\r\n"
    ),
    b"GET /exec/a/b/c HTTP/1.1\r\nHost: n\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n\x80\x03\x00\x01",
    b"\r\nPUT /x HTTP/1.1\nHost: n\nExpect: 100-continue\nContent-Length: 3\n\nabc",
)
_UNFRAMED: Final = frozenset(
    {b"connection", b"upgrade", b"content-length", b"transfer-encoding", b"expect", b"te", b"trailer"}
)


def request_heads(read: Reader | None = None) -> FuzzTarget:
    """Return the target; another reader than klet's shows that the comparison finds its faults."""
    reader = read or read_requests

    @contextmanager
    def opened() -> Iterator[Run]:
        yield lambda data: check_connection(reader, data)

    return FuzzTarget(
        name="request-heads",
        summary="requests to the kubelet API, against a reader of RFC 9112 and against aiohttp's",
        seeds=lambda: SEEDS,
        mutate=choose_of((change_bytes, change_lines, put_words(WORDS), put_words(WORDS))),
        amplify=amplify_bytes(),
        opened=opened,
        limits=Limits(largest=128 << 10),
    )


def read_requests(data: bytes, size: int) -> list[RequestMessage | HttpRefusal]:
    """Return the requests as the server reads them."""
    reader, found = RequestReader(MessageLimits()), list[RequestMessage | HttpRefusal]()
    for start in range(0, len(data), size):
        reader.feed(data[start : start + size])
        while (message := reader.read()) is not None:
            found.append(message)
            if isinstance(message, HttpRefusal):
                return found
    return found


def check_connection(read: Reader, data: bytes) -> tuple[object, ...]:
    """Compare the readers; raises Flaw."""
    found = read(data, max(1, len(data)))
    if _what_counts(read(data, piece_size(data))) != _what_counts(found):
        raise Flaw("reads other requests when they come in pieces")
    expected = read_conversation(data)
    messages = [message for message in found if isinstance(message, RequestMessage)]
    for position, message in enumerate(messages):
        _compare(message, position, expected)
    behind = {_read_behind(message) for message in messages}
    refusals = [message for message in found if isinstance(message, HttpRefusal)]
    for refusal in refusals:
        if write_refusal(refusal).count(b"\r\n\r\n") != 1:
            raise Flaw("writes a refusal that is not one answer")
    return (min(len(messages), 3), *(refusal.status for refusal in refusals), expected.refusal, *sorted(behind))


def _what_counts(found: list[RequestMessage | HttpRefusal]) -> list[RequestMessage | bool]:
    """Return what counts, of a refusal only that it is one: which limit is met first may depend on the pieces."""
    return [message if isinstance(message, RequestMessage) else True for message in found]


def _compare(message: RequestMessage, position: int, expected: Conversation) -> None:
    if position >= len(expected.requests):
        raise Flaw(f"accepts what RFC 9112 does not: {expected.refusal or 'an incomplete request'}")
    request = expected.requests[position]
    head = message.head
    ours = ParsedRequest(
        head.method.encode("latin-1"),
        head.target.encode("latin-1"),
        head.version.encode("latin-1"),
        tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in head.headers),
        message.body,
    )
    for part in ("method", "target", "version", "body"):
        if getattr(ours, part) != getattr(request, part):
            raise Flaw(f"reads another {part} than RFC 9112 says")
    if _without_lengths(ours) != _without_lengths(request):
        raise Flaw("reads other fields than RFC 9112 says")


def _without_lengths(request: ParsedRequest) -> list[tuple[bytes, bytes]]:
    """Drop lengths: equal ones may be merged, and what they mean is compared as the body. Codings have no case."""
    fields = [(name, value) for name, value in request.fields if name.lower() != b"content-length"]
    return [(name, value.lower() if name.lower() == b"transfer-encoding" else value) for name, value in fields]


def _read_behind(message: RequestMessage) -> str:
    """Check that what is written for the server behind is that one request to it, or refused by it."""
    protocol: Any = _Protocol()
    loop: Any = _Loop()
    parser = HttpRequestParser(protocol, loop, 2**18, max_line_size=1 << 17, max_headers=200, max_field_size=1 << 17)
    try:
        messages, _, tail = parser.feed_data(write_plain(message))
    except HttpProcessingError as error:
        return type(error).__name__
    if len(messages) != 1 or tail:
        raise Flaw(f"writes {len(messages)} requests for one")
    seen, payload = messages[0]
    body = b"".join(getattr(payload, "_buffer", ()))
    fields = [(name, value) for name, value in seen.raw_headers if name.lower() not in _UNFRAMED]
    ours = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in message.head.headers]
    wanted = [(name, value) for name, value in ours if name.lower() not in _UNFRAMED]
    if (seen.method, seen.path.encode("utf-8", "surrogateescape"), body) != (
        message.head.method,
        _in_origin_form(message.head.target).encode("latin-1"),
        message.body,
    ):
        raise Flaw("aiohttp sees another request")
    if fields != wanted:
        raise Flaw("aiohttp sees other fields")
    return ""


def _in_origin_form(target: str) -> str:
    """Return the target without scheme and host, of which klet takes no notice (RFC 9112, 3.2.1 and 3.2.2)."""
    if target.startswith("/"):
        return target
    behind_scheme = target.partition("://")[2]
    host = behind_scheme.partition("?")[0].partition("/")[0]
    path = behind_scheme.removeprefix(host)
    return path if path.startswith("/") else f"/{path}"


class _Loop:
    """What aiohttp's parser asks of a loop."""

    def get_debug(self) -> bool:
        return False


class _Protocol:
    """What aiohttp's parser asks of a connection."""

    _reading_paused = False

    def pause_reading(self) -> None:
        """Do nothing."""

    def resume_reading(self, **_options: object) -> None:
        """Do nothing."""

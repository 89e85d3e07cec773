"""HTTP/1 messages on a connection. h11 alone decides where each one begins and ends. Pure.

aiohttp gets every request rewritten with one Content-Length (`write_plain`), so the two parsers cannot disagree about
framing (request smuggling). What is refused here never reaches aiohttp.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import h11
from msgspec import Struct

from klet.server.chunk_lines import ChunkLines

HEAD_LIMIT: Final = 64 << 10
FIELD_LIMIT: Final = 100
BODY_LIMIT: Final = 64 << 10
_HEAD_END: Final = re.compile(rb"\n\r?\n")
_FOLDED: Final = re.compile(rb"\n[ \t]")
"""A line that continues the one before it (obs-fold). Some parsers read it as a header of its own."""
# Possessive: a long run of empty lines is matched once, without backtracking.
_EMPTY_LINES: Final = re.compile(rb"(?:\r?\n)*+")
_FORBIDDEN: Final = bytes({*range(0x20), 0x7F} - set(b"\t\n\r"))
PIECE: Final = 1024
"""Bytes of a body that h11 gets at once, and the most that trailers may have."""
_MOST_CHUNKS: Final = 4096
"""Of a body: one-byte chunks would cost much more time than their bytes suggest."""
_SUPPORTED: Final = ("1.0", "1.1")
_BAD_REQUEST: Final = 400
_TOO_LARGE: Final = 431
_FRAMING: Final = frozenset({"connection", "upgrade", "content-length", "transfer-encoding", "expect", "te", "trailer"})
_UNWANTED: Final = _FRAMING | {"content-encoding", "sec-websocket-key1"}
"""Headers that aiohttp does not get. The last two would make it decompress a body, or refuse a request by itself."""
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"})
_WHOLE_URL: Final = re.compile(r"https?://[^/?]*", re.ASCII | re.IGNORECASE)
_MOST_SEGMENTS: Final = 64
"""Of a path; the longest of the API has six. The cost of aiohttp's router grows with their square."""

Headers: TypeAlias = tuple[tuple[str, str], ...]


class MessageLimits(Struct, frozen=True, kw_only=True):
    """How large a message may be."""

    head_bytes: int = HEAD_LIMIT
    fields: int = FIELD_LIMIT
    body_bytes: int = BODY_LIMIT


class HttpRefusal(Struct, frozen=True):
    """Why a request is not served: an HTTP status and its reason phrase."""

    status: int
    reason: str


class RequestHead(Struct, frozen=True):
    """The request line and the headers of a request, in their order and spelling."""

    method: str
    target: str
    version: str
    headers: Headers

    @property
    def is_upgrade(self) -> bool:
        """Whether the client asks for another protocol."""
        return self.version == "1.1" and bool(self.all("upgrade")) and "upgrade" in self._connection_options()

    @property
    def is_persistent(self) -> bool:
        """Whether the client may send another request on the connection."""
        options = self._connection_options()
        return "close" not in options and (self.version == "1.1" or "keep-alive" in options)

    @property
    def path_and_query(self) -> str:
        """The target without the scheme and host that a client may put before it; empty if it is no path."""
        if self.target.startswith("/"):
            return self.target
        host = _WHOLE_URL.match(self.target)
        if host is None:
            return ""
        rest = self.target[host.end() :]
        return rest if rest.startswith("/") else f"/{rest}"

    def all(self, name: str) -> tuple[str, ...]:
        """Return the values of a header, given in lower case."""
        return tuple(value for each, value in self.headers if each.lower() == name)

    def _connection_options(self) -> frozenset[str]:
        return frozenset(each.strip().lower() for value in self.all("connection") for each in value.split(","))


class RequestMessage(Struct, frozen=True):
    """A whole request."""

    head: RequestHead
    body: bytes


class RequestReader:
    """Reads the requests of one connection, each of them whole."""

    def __init__(self, limits: MessageLimits) -> None:
        self._limits = limits
        self._head_bytes = HeadBytes(limits)
        self._h11: h11.Connection | None = None
        self._head: RequestHead | None = None
        self._body = bytearray()
        self._chunks = 0
        self._lines: ChunkLines | None = None

    @property
    def size(self) -> int:
        """The number of bytes in memory for this connection."""
        return len(self._head_bytes.buffer) + len(self._body)

    @property
    def is_idle(self) -> bool:
        """Whether no part of a request has arrived."""
        return self._h11 is None and not self._head_bytes.buffer

    @property
    def awaits_continue(self) -> bool:
        """Whether the client sends its body only after `100 Continue`."""
        return self._h11 is not None and self._h11.they_are_waiting_for_100_continue

    def feed(self, data: bytes) -> None:
        self._head_bytes.buffer += data

    def take_rest(self) -> bytes:
        """Remove and return what arrived after the last request."""
        rest = bytes(self._head_bytes.buffer)
        self._head_bytes.buffer.clear()
        return rest

    def read(self) -> RequestMessage | HttpRefusal | None:
        """Return the next request, or None while it is incomplete."""
        try:
            if self._head is None:
                head = self._read_head()
                if not isinstance(head, RequestHead):
                    return head
                self._head = head
                self._lines = ChunkLines(longest=PIECE) if head.all("transfer-encoding") else None
            return self._read_body(self._head)
        except h11.RemoteProtocolError as error:
            is_too_long = self._lines is not None and self._lines.is_too_long
            return refuse(_TOO_LARGE if is_too_long else error.error_status_hint)

    def _read_head(self) -> RequestHead | HttpRefusal | None:
        data = self._head_bytes.take()
        if not isinstance(data, bytes):
            return data
        if _FOLDED.search(data) is not None:  # h11 would join the lines
            return refuse(_BAD_REQUEST)
        # A new parser for each request: nothing of the previous one, such as an upgrade, carries over.
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=PIECE)
        self._h11.receive_data(data)
        event = self._h11.next_event()
        if not isinstance(event, h11.Request):
            return refuse(_BAD_REQUEST)
        head = RequestHead(
            event.method.decode("latin-1"),
            event.target.decode("latin-1"),
            event.http_version.decode("latin-1"),
            decode_headers(event),
        )
        return _why_not(head) or head

    def _read_body(self, head: RequestHead) -> RequestMessage | HttpRefusal | None:
        assert self._h11 is not None
        look = self._lines.are_plain if self._lines is not None else None
        for event in read_events(self._h11, self._head_bytes.buffer, look):
            match event:
                case h11.Data():
                    self._body += event.data
                    self._chunks += 1
                    if len(self._body) > self._limits.body_bytes or self._chunks > _MOST_CHUNKS:
                        return refuse(413)
                case h11.EndOfMessage():
                    return self._finish(head, self._h11.trailing_data[0])
                case _:
                    return refuse(_BAD_REQUEST)
        return None

    def _finish(self, head: RequestHead, behind: bytes) -> RequestMessage:
        message = RequestMessage(head, bytes(self._body))
        # h11 was fed in pieces, so it may hold the beginning of the next request: that goes back in front.
        self._head_bytes.buffer[:0] = behind
        self._h11 = self._head = None
        self._body.clear()
        self._chunks = 0
        return message


class HeadBytes:
    """Collects the bytes of a head, within its limits and in time linear in their number."""

    def __init__(self, limits: MessageLimits) -> None:
        self.buffer = bytearray()
        self._limits = limits
        self._searched = 0
        self._lines = 0

    def take(self) -> bytes | HttpRefusal | None:
        """Remove and return a head with its empty line; None while it is incomplete."""
        if self._searched == 0:
            # Some clients send an empty line behind a body.
            empty = _EMPTY_LINES.match(self.buffer)
            del self.buffer[: empty.end() if empty is not None else 0]
            if self.buffer == b"\r":
                return None  # half of an empty line
        # Only new bytes are searched, and the two before them where an end may have begun: a client that sends byte by
        # byte does not make this quadratic.
        found = _HEAD_END.search(self.buffer, max(0, self._searched - 2))
        end = len(self.buffer) if found is None else found.end()
        self._lines += self.buffer.count(b"\n", self._searched, end)
        if end > self._limits.head_bytes or self._lines > self._limits.fields + 2:
            return refuse(_TOO_LARGE)
        if found is None:
            self._searched = end
            return None
        self._searched = self._lines = 0
        head = bytes(self.buffer[:end])
        del self.buffer[:end]
        return refuse(_BAD_REQUEST) if _has_forbidden_bytes(head) else head


def refuse(status: int) -> HttpRefusal:
    return HttpRefusal(status, _REASONS.get(status, _REASONS[_BAD_REQUEST]))


def write_refusal(refusal: HttpRefusal) -> bytes:
    """Return a plain-text response after which the connection closes, as Go's server writes it."""
    text = f"{refusal.status} {refusal.reason}"
    headers = "Content-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
    return f"HTTP/1.1 {text}\r\n{headers}{text}".encode()


def write_plain(message: RequestMessage) -> bytes:
    """Return the request without an upgrade, framed by one length. After a refused upgrade the connection closes."""
    head = message.head
    lines = [f"{head.method} {head.path_and_query} HTTP/{head.version}"]
    lines += [f"{name}: {value}" for name, value in head.headers if name.lower() not in _UNWANTED]
    is_kept = head.is_persistent and not head.is_upgrade
    lines.append(f"Connection: {'keep-alive' if is_kept else 'close'}")
    if message.body:
        lines.append(f"Content-Length: {len(message.body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + message.body


def decode_headers(event: h11.Request | h11.Response | h11.InformationalResponse) -> Headers:
    assert not isinstance(event.headers, list)
    return tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in event.headers.raw_items())


def read_events(
    connection: h11.Connection, buffer: bytearray, look: Callable[[bytes], bool] | None = None
) -> Iterator[h11.Event | type[h11.PAUSED]]:
    """Yield the events of h11, fed from the buffer piece by piece until it needs more than there is.

    Each piece is checked first; raises RemoteProtocolError for one that does not pass.
    """
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Event) or event is h11.PAUSED:
            yield event
            continue
        if not buffer:
            return
        piece = bytes(buffer[:PIECE])
        del buffer[:PIECE]
        if look is not None and not look(piece):
            raise h11.RemoteProtocolError("a line that two servers can read in two ways")
        connection.receive_data(piece)


_REASONS: Final = {
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    413: "Request Entity Too Large",
    417: "Expectation Failed",
    431: "Request Header Fields Too Large",
    501: "Not Implemented",
    505: "HTTP Version Not Supported",
}


def _has_forbidden_bytes(head: bytes) -> bool:
    """Check for bytes that h11 refuses too, but finds with a pattern of quadratic cost in the spaces before them."""
    return len(head.translate(None, _FORBIDDEN)) < len(head) or head.count(b"\r") > head.count(b"\r\n")


def _why_not(head: RequestHead) -> HttpRefusal | None:
    """Return the refusal of what h11 allows and this server does not."""
    if head.version not in _SUPPORTED:
        return refuse(505)
    if head.method == "CONNECT":
        return refuse(405)
    if head.method not in _METHODS:
        return refuse(501)
    if "#" in head.target or not head.path_and_query:
        return refuse(_BAD_REQUEST)
    if head.path_and_query.partition("?")[0].count("/") > _MOST_SEGMENTS:
        return refuse(404)
    if head.all("transfer-encoding") and (head.all("content-length") or head.version == "1.0"):
        return refuse(_BAD_REQUEST)  # two ends of one body, or one that HTTP/1.0 does not know
    if any(value.lower() != "100-continue" for value in head.all("expect")):
        return refuse(417)
    return None

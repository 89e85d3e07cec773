"""The front of the HTTP server: frames requests, hands them to aiohttp one by one, and lets go of upgraded connections.

aiohttp knows no upgrade to SPDY. The front keeps the bytes behind an upgrade request to itself until a handler has
taken the connection over (`take_over`), or has answered in plain HTTP. If the request has a body, which no client of
Kubernetes sends, that is part of the request: it is waited for, and goes to the runtime with the head.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol, cast

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from klet.server.framing import HEAD_END, Body, FramingError, RequestHead, body_of, parse_request_head, write_head

logger = logging.getLogger(__name__)

STREAMING_PATHS: Final = frozenset({"exec", "attach", "portForward"})
HEAD_LIMIT: Final = (1 << 20) + 4096
"""Upstream's limit of 1 MiB, with the same allowance on top."""
_BUFFER_LIMIT: Final = 1 << 16
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_NOT_FOR_AIOHTTP: Final = frozenset({"connection", "upgrade", "content-length", "transfer-encoding", "expect"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontLimits:
    """What a client may take: bytes for a head, and time to send it; for the body of an upgrade request the same."""

    head_bytes: int = HEAD_LIMIT
    head_time: timedelta = timedelta(seconds=30)
    upgrade_body_bytes: int = 1 << 16


class Taker(Protocol):
    """Gets the connection once it has been taken over."""

    def client_data(self, data: bytes) -> None: ...

    def client_eof(self) -> None: ...

    def client_gone(self) -> None: ...

    def client_is_full(self, *, is_full: bool) -> None:
        """Whether the client takes its bytes too slowly."""
        ...


class Front(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, *, make_handler: Callable[[], RequestHandler], limits: FrontLimits) -> None:
        self._handler = make_handler()
        self._limits = limits
        self._buffer = bytearray()
        self._searched = 0
        self._body: Body | None = None
        self._is_busy = False
        self._is_opaque = False
        self._is_held = False
        self._has_ended = False
        self._taker: Taker | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self.upgrade: RequestHead | None = None
        """The request in hand as it was sent, if it asks for another protocol."""
        self.upgrade_body = b""
        """The bytes of its body, as they were sent."""
        self._awaited: tuple[RequestHead, Body] | None = None
        """An upgrade request whose body has not come yet."""

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport

    def done(self) -> None:
        """The handler of the request in hand is through with it."""
        if self._taker is None:
            self._is_busy = False
            self.upgrade = None
            self.upgrade_body = b""
            self._advance()

    def take_over(self, taker: Taker) -> bytes:
        """From now on all that comes goes to the taker; what has come already behind the request is returned."""
        self._taker = taker
        early = bytes(self._buffer)
        self._buffer.clear()
        self.transport.resume_reading()
        if self._has_ended:
            asyncio.get_running_loop().call_soon(taker.client_eof)
        return early

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not derived from it
        self._handler.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self._taker is not None:
            self._taker.client_gone()
        self._handler.connection_lost(exc)

    def pause_writing(self) -> None:
        self._handler.pause_writing()
        if self._taker is not None:
            self._taker.client_is_full(is_full=True)

    def resume_writing(self) -> None:
        self._handler.resume_writing()
        if self._taker is not None:
            self._taker.client_is_full(is_full=False)

    def eof_received(self) -> bool | None:
        if self._taker is not None:
            self._taker.client_eof()
            return True
        self._has_ended = True
        if self.upgrade is not None:
            return True  # it may have said all it has to say, and wants to hear the answer
        return None

    def data_received(self, data: bytes) -> None:
        if self._taker is not None:
            self._taker.client_data(data)
        elif self._is_opaque:
            self._handler.data_received(data)
        else:
            self._buffer += data
            self._advance()

    def _advance(self) -> None:
        """Pass on what can be passed on; the rest waits, and so does the client if it is much."""
        while self._pass_body() and self._buffer and not self._is_busy and not self._is_opaque:
            if not self._pass_head():
                break
        if self._is_opaque and self._buffer:
            self._pass(len(self._buffer))
        is_much = len(self._buffer) > _BUFFER_LIMIT and self._is_busy
        if is_much != self._is_held:
            self._is_held = is_much
            (self.transport.pause_reading if is_much else self.transport.resume_reading)()

    def _pass_body(self) -> bool:
        """Pass on what belongs to the body of the request in hand; False while more of it is to come."""
        if self._awaited is not None:
            return self._take_upgrade_body(*self._awaited)
        if self._body is None:
            return True
        try:
            self._pass(self._body.take(self._buffer))
        except FramingError:
            self._is_opaque = True
            self._body = None
            return True
        if self._body.is_complete:
            self._body = None
        return self._body is None

    def _pass_head(self) -> bool:
        """Pass on the next head, if all of it is there."""
        if self._searched == 0:
            del self._buffer[: len(self._buffer) - len(self._buffer.lstrip(b"\r\n"))]
        if not self._buffer:
            return False
        found = HEAD_END.search(self._buffer, max(0, self._searched - 3))
        if (len(self._buffer) if found is None else found.end()) > self._limits.head_bytes:
            self._refuse(431, "Request Header Fields Too Large")
            return False
        if found is None:
            self._searched = len(self._buffer)
            self._start_timer()
            return False
        self._searched = 0
        self._stop_timer()
        self._begin(parse_request_head(bytes(self._buffer[: found.end()])), found.end())
        return True

    def _begin(self, head: RequestHead | None, size: int) -> None:
        try:
            body = body_of(head) if head is not None else None
        except FramingError:
            head, body = None, None
        if head is not None and head.is_upgrade and _asks_for_stream(head):
            del self._buffer[:size]
            if body is None:
                self._begin_upgrade(head)
                return
            self._awaited = head, body
            if "100-continue" in (each.lower() for each in head.all("expect")) and not body.is_complete:
                self.transport.write(_CONTINUE)
            self._start_timer()
            return
        self._body = body
        if head is None or head.method == "CONNECT" or any(each != "100-continue" for each in head.all("expect")):
            self._is_opaque = True
            return
        self._is_busy = True
        self._pass(size)

    def _begin_upgrade(self, head: RequestHead) -> None:
        self._is_busy = True
        self.upgrade = head
        self._handler.data_received(_as_plain(head))

    def _take_upgrade_body(self, head: RequestHead, body: Body) -> bool:
        try:
            size = body.take(self._buffer)
        except FramingError:
            self._refuse(400, "Bad Request")
            return False
        self.upgrade_body += bytes(self._buffer[:size])
        del self._buffer[:size]
        if len(self.upgrade_body) > self._limits.upgrade_body_bytes:
            self._refuse(413, "Request Entity Too Large")
            return False
        if body.is_complete:
            self._stop_timer()
            self._awaited = None
            self._begin_upgrade(head)
        return self._awaited is None

    def _pass(self, size: int) -> None:
        piece = bytes(self._buffer[:size])
        del self._buffer[:size]
        if piece:
            self._handler.data_received(piece)

    def _refuse(self, status: int, reason: str) -> None:
        logger.warning("Request refused", extra={"error": reason, "client": _name_of(self.transport)})
        text = f"{status} {reason}"
        headers = (("Content-Type", "text/plain; charset=utf-8"), ("Connection", "close"))
        self._buffer.clear()
        self._stop_timer()
        self._awaited = None
        self.transport.write(write_head(f"HTTP/1.1 {text}", headers) + text.encode())
        self.transport.close()

    def _start_timer(self) -> None:
        if self._timer is None:
            seconds = self._limits.head_time.total_seconds()
            self._timer = asyncio.get_running_loop().call_later(seconds, self._refuse, 408, "Request Timeout")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def front_of(request: web.BaseRequest) -> Front | None:
    """The front that a request came through, if it did and its client is still there."""
    protocol = request.transport.get_protocol() if request.transport is not None else None
    return protocol if isinstance(protocol, Front) else None


def _asks_for_stream(head: RequestHead) -> bool:
    return head.path.startswith("/") and head.path[1:].partition("/")[0] in STREAMING_PATHS


def _as_plain(head: RequestHead) -> bytes:
    """The same request without its upgrade, for the server that does not know the protocol."""
    kept = tuple(each for each in head.headers if each[0].lower() not in _NOT_FOR_AIOHTTP)
    return write_head(f"{head.method} {head.target} HTTP/1.1", kept)


def _name_of(transport: asyncio.BaseTransport) -> str:
    peer = transport.get_extra_info("peername")
    return peer[0] if isinstance(peer, tuple) else ""

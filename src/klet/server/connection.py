"""One client's HTTP connection: reads requests, passes them to aiohttp one by one, hands over upgraded connections.

aiohttp knows no upgrade to SPDY. The connection keeps the bytes after an upgrade request until a handler takes it over
(`take_over`). If none does, it closes and drops them: their protocol is unknown.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Final, Protocol, cast

from aiohttp import web
from aiohttp.web_protocol import RequestHandler
from msgspec import Struct

from klet.server.connection_limits import TrackedConnection
from klet.server.http1 import (
    HttpRefusal,
    MessageLimits,
    RequestHead,
    RequestMessage,
    RequestReader,
    refuse,
    write_plain,
    write_refusal,
)

logger = logging.getLogger(__name__)

_BUFFER_LIMIT: Final = 1 << 16
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class RequestLimits(Struct, frozen=True, kw_only=True):
    """Limits of one request: its bytes, and the time from the connection (or the first byte) to its end."""

    message: MessageLimits = MessageLimits()
    request_time: timedelta = timedelta(seconds=15)


class UpgradeReceiver(Protocol):
    """Receives the data of a connection that was taken over after an upgrade."""

    def client_data(self, data: bytes) -> None: ...

    def client_eof(self) -> None: ...

    def client_gone(self) -> None: ...

    def client_is_full(self, *, is_full: bool) -> None:
        """Report whether the client reads too slowly."""
        ...


class HttpConnection(asyncio.Protocol):
    """Reads the requests of one client's connection."""

    def __init__(
        self,
        *,
        make_handler: Callable[[], RequestHandler],
        limits: RequestLimits,
        track: Callable[[asyncio.Transport], TrackedConnection],
    ) -> None:
        self._make_handler = make_handler
        self._limits = limits
        self._track = track
        self._reader = RequestReader(limits.message)
        self._handler: RequestHandler | None = None
        self._tracked: TrackedConnection | None = None
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._receiver: UpgradeReceiver | None = None
        self._has_request = False
        """Whether aiohttp has a request. The next one waits: aiohttp sees no pipelining."""
        self._drops_input = False
        """Whether further bytes are dropped, since the connection is closed or about to be."""
        self._is_reading_paused = False
        """Whether reading is paused."""
        self._has_ended = False
        self._has_continued = False
        self._unsent = 0
        """Bytes of responses that the client has not read; 0 while it keeps up."""
        self.is_retired = False
        """Whether no further request is served on this connection."""
        self.upgrade: RequestHead | None = None
        """The current request, if it asks for another protocol."""
        self.upgrade_body = b""

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport

    @property
    def tracked(self) -> TrackedConnection:
        assert self._tracked is not None
        return self._tracked

    def mark_authorized(self, *, is_authenticated: bool) -> None:
        """Mark the current request as authorized, and with `is_authenticated` the client as authenticated."""
        if is_authenticated:
            self.tracked.mark_authenticated()
        else:
            self.tracked.start_request()

    def finish_request(self) -> None:
        """Go on to the next request, since the handler of the current one has returned."""
        if self._receiver is not None:
            return
        self.tracked.finish_request()
        if self.upgrade is not None:
            # The upgrade was refused, and aiohttp closes the connection after its response (`write_plain` asked for
            # that). What follows may be SPDY or WebSocket data: read as HTTP it could be a smuggled request.
            self._drops_input = True
            self._reader.take_rest()
            return
        self._has_request = False
        if not self._drops_input:
            self._advance()

    def retire(self) -> None:
        """Serve no further request: close now, or after the current response."""
        self.is_retired = True
        if not self._has_request:
            self.transport.close()

    def take_over(self, receiver: UpgradeReceiver) -> bytes:
        """Pass all data from now on to the receiver; return what has already arrived after the request."""
        self._receiver = receiver
        self.tracked.mark_authenticated()
        # A client that sent much early was paused in `_advance`, which does not run for this connection again.
        self.transport.resume_reading()
        if self._has_ended:  # the end of file came before the receiver; it gets it after the bytes returned here
            asyncio.get_running_loop().call_soon(receiver.client_eof)
        return self._reader.take_rest()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not derived from it
        self._tracked = self._track(self._transport)
        # The handshake counts: a client cannot spend its limit once for TLS and once more for the request.
        self._start_timer(self._limits.request_time - self._tracked.age)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._drops_input = True
        self.tracked.mark_closed()
        if self._receiver is not None:
            self._receiver.client_gone()
        if self._handler is not None:
            self._handler.connection_lost(exc)

    def pause_writing(self) -> None:
        self._count_unsent(self.transport.get_write_buffer_size())
        if self._handler is not None:
            self._handler.pause_writing()
        if self._receiver is not None:
            self._receiver.client_is_full(is_full=True)

    def resume_writing(self) -> None:
        self._count_unsent(0)
        if self._handler is not None:
            self._handler.resume_writing()
        if self._receiver is not None:
            self._receiver.client_is_full(is_full=False)

    def eof_received(self) -> bool | None:
        if self._receiver is not None:
            self._receiver.client_eof()
            return True
        self._has_ended = True
        if self.upgrade is not None and not self._drops_input:
            return True  # half-closed: the client may have sent everything, and wait for the response
        return None

    def data_received(self, data: bytes) -> None:
        if self._receiver is not None:
            self._receiver.client_data(data)
        elif not self._drops_input:
            self._reader.feed(data)
            self._advance()

    def _advance(self) -> None:
        """Start the next request if it is complete; pause reading from a client that sends much during another."""
        if not (self._has_request or self._drops_input):
            match self._reader.read():
                case RequestMessage() as message:
                    self._begin(message)
                case HttpRefusal() as refusal:
                    self._refuse(refusal)
                    return
                case None:
                    self._await_more()
        # Accounting may close this connection, if it holds the most bytes of all unauthenticated ones.
        self.tracked.set_bytes_kept(self._reader.size + self._unsent)
        is_much = self._reader.size > _BUFFER_LIMIT and self._has_request
        if is_much != self._is_reading_paused:
            self._is_reading_paused = is_much
            (self.transport.pause_reading if is_much else self.transport.resume_reading)()

    def _begin(self, message: RequestMessage) -> None:
        self._stop_timer()
        self._has_request = True
        self._has_continued = False
        if message.head.is_upgrade:
            self.upgrade, self.upgrade_body = message.head, message.body
        # Made with the first whole request only: an idle connection costs no aiohttp handler and task.
        if self._handler is None:
            self._handler = self._make_handler()
            self._handler.connection_made(self.transport)
        self._handler.data_received(write_plain(message))

    def _await_more(self) -> None:
        if self._reader.is_idle:
            return
        if self._timer is None:
            self._start_timer(self._limits.request_time)
        if self._reader.awaits_continue and not self._has_continued:
            self._has_continued = True
            self.transport.write(_CONTINUE)

    def _count_unsent(self, size: int) -> None:
        self._unsent = size
        self.tracked.set_bytes_kept(self._reader.size + size)

    def _refuse(self, refusal: HttpRefusal) -> None:
        logger.warning("Request refused", extra={"error": refusal.reason, "client": _name_of(self.transport)})
        self._stop_timer()
        self._drops_input = True
        self._reader.take_rest()
        self.transport.write(write_refusal(refusal))
        self.transport.close()

    def _start_timer(self, after: timedelta) -> None:
        seconds = max(0.0, after.total_seconds())
        self._timer = asyncio.get_running_loop().call_later(seconds, self._refuse, refuse(408))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def connection_of(request: web.BaseRequest) -> HttpConnection | None:
    """Return the connection of a request, if its client is still connected."""
    protocol = request.transport.get_protocol() if request.transport is not None else None
    return protocol if isinstance(protocol, HttpConnection) else None


def _name_of(transport: asyncio.BaseTransport) -> str:
    peer = transport.get_extra_info("peername")
    return peer[0] if isinstance(peer, tuple) else ""

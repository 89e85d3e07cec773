"""TLS between a TCP connection and a protocol, with half-closes.

asyncio's own TLS drops the data still to be sent to a client that has ended its half; streams need it.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, cast

from klet.server.auth.certificates import PresentedCertificate, read_presented
from klet.server.auth.identity import Rejected
from klet.server.connection import HttpConnection
from klet.server.connection_limits import ConnectionStage, TrackedConnection, UnauthenticatedConnections
from klet.server.tls.certified import CertifiedConnections
from klet.server.tls.serving import Serving

logger = logging.getLogger(__name__)

CLIENT_CERTIFICATE: Final = "client_certificate"
"""The name under which a transport gives what the client has shown."""
_PIECE: Final = 1 << 14
"""Bytes that TLS gets and gives at once: a record. Its buffers never shrink, so they must not grow."""
_LONGEST_HANDSHAKE: Final = 1 << 14
"""Bytes of a client. A chain of certificates with points that must be computed costs 3 ms a kilobyte, in one piece."""
_NO_CERTIFICATE: Final = b"\x15\x03\x03\x00\x02\x02\x50"
"""The fatal alert `internal_error`, in the clear: there is no certificate to begin a handshake with."""


class TlsStream(asyncio.BufferedProtocol):
    """The TCP side of one connection. The protocol above gets a TlsTransport once the handshake is done.

    Until the client is authenticated, its bytes wait for a time slice (`connection_limits`). All streams of a listener
    read into one buffer, which bounds what a single read brings.
    """

    def __init__(
        self,
        *,
        serving: Serving | None,
        make_protocol: Callable[[TrackedConnection], HttpConnection],
        unauthenticated: UnauthenticatedConnections,
        certified: CertifiedConnections,
        handshake: timedelta,
        buffer: bytearray,
    ) -> None:
        self._serving = serving
        self._make_protocol = make_protocol
        self._unauthenticated = unauthenticated
        self._certified = certified
        self._changes = certified.changes
        self._handshake = handshake
        self._buffer = buffer
        self._upper: HttpConnection | None = None
        self._tcp: asyncio.Transport | None = None
        self._tls: ssl.SSLObject | None = None
        self._tracked: TrackedConnection | None = None
        self._arrived = bytearray()
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._timer: asyncio.TimerHandle | None = None
        self._is_reading = True
        self._is_paused = False
        self._is_queued = False
        self._has_ended = False
        self._has_sent_close_notify = False
        self._has_tcp_ended = False
        self._handshake_left = _LONGEST_HANDSHAKE
        self.certificate: PresentedCertificate | Rejected | None = None

    @property
    def tcp(self) -> asyncio.Transport:
        assert self._tcp is not None
        return self._tcp

    @property
    def tls(self) -> ssl.SSLObject | None:
        """None before the client's first byte, and when the connection is gone."""
        return self._tls

    @property
    def tracked(self) -> TrackedConnection:
        assert self._tracked is not None
        return self._tracked

    @property
    def upper(self) -> HttpConnection | None:
        """None until the handshake is done, and when the connection is gone."""
        return self._upper

    @upper.setter
    def upper(self, protocol: HttpConnection) -> None:
        self._upper = protocol

    def retire(self) -> None:
        """Serve no further request on this connection."""
        if self._upper is not None:
            self._upper.retire()

    def abort(self) -> None:
        """End this connection at once."""
        self.tcp.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._tcp = cast(asyncio.Transport, transport)  # uvloop's are not derived from it
        self._tracked = self._unauthenticated.add(self._tcp.get_extra_info("peername"), self._tcp.abort)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._handshake.total_seconds(), self._fail, "timeout")

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._certified.discard(self)
        self.tracked.mark_closed()
        if self._upper is not None:
            self._upper.connection_lost(exc)
        # Drop the references between the objects now: the garbage collector does not know how much memory TLS has.
        self._upper = None
        self._tls = None
        self._incoming = self._outgoing = ssl.MemoryBIO()
        self._arrived.clear()

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002 - asyncio's signature
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._serving is None:
            self._refuse()
            return
        self._arrived += memoryview(self._buffer)[:nbytes]
        self._process_input()

    def _process_input(self) -> None:
        """Process what has arrived, as far as the protocol above wants it; unauthenticated clients wait their turn."""
        while not (self._is_queued or self._is_paused or self.tcp.is_closing()):
            if self.tracked.is_unauthenticated:
                self._is_queued = True
                self.tracked.set_bytes_kept(len(self._arrived))
                self.tracked.schedule(self._take_turn)
                break
            self._step()
            if not self._arrived:
                break
        self._set_reading()

    def _take_turn(self) -> None:
        self._is_queued = False
        self._step()
        if self._arrived:
            self._process_input()
        else:
            self._set_reading()

    def _set_reading(self) -> None:
        """Read from TCP, or leave what comes to the kernel, and so hold up the client.

        While an unauthenticated client waits for its turn, reading goes on for a while: so its hanging up is noticed.
        """
        is_wanted = not (self._is_paused or (self._is_queued and len(self._arrived) >= _PIECE))
        if is_wanted != self._is_reading and not (self._has_tcp_ended or self.tcp.is_closing()):
            self._is_reading = is_wanted
            (self.tcp.resume_reading if is_wanted else self.tcp.pause_reading)()

    def eof_received(self) -> bool:
        """Treat the end of TCP as a disconnect: a client that only sends no more ends its half of TLS.

        What it sent before still counts, also what the protocol above does not want yet.
        """
        self._has_tcp_ended = True
        if self._upper is None:
            return False
        self._process_input()
        return not self.tcp.is_closing()

    def pause_writing(self) -> None:
        if self._upper is not None:
            self._upper.pause_writing()

    def resume_writing(self) -> None:
        if self._upper is not None:
            self._upper.resume_writing()

    def pause(self, *, is_paused: bool) -> None:
        if is_paused == self._is_paused or self._has_ended or self.tcp.is_closing():
            return
        self._is_paused = is_paused
        self._set_reading()
        if not is_paused:
            # There may be bytes here already. Not at once: the caller may be in the middle of its own.
            asyncio.get_running_loop().call_soon(self._resume)

    def _resume(self) -> None:
        self._step()
        if self._arrived:
            self._process_input()

    def send(self, data: bytes | bytearray | memoryview) -> None:
        tls = self._tls
        if self._has_sent_close_notify or tls is None or self.tcp.is_closing():
            return
        view = memoryview(data).cast("B")
        try:
            while view:
                view = view[tls.write(view[:_PIECE]) :]
                self._flush()
        except ssl.SSLError as error:
            self._fail(error.reason or str(error))

    def send_close_notify(self) -> None:
        """Send the end of this half (close_notify)."""
        if self._has_sent_close_notify or self._tls is None or self.tcp.is_closing():
            return
        self._has_sent_close_notify = True
        # It would wait for the close_notify of the client.
        with suppress(ssl.SSLError):
            self._tls.unwrap()
        self._flush()

    def _step(self) -> None:
        """Let TLS have a piece, and give what comes out of it to the protocol above."""
        if self._serving is None or self.tcp.is_closing():
            return
        if self._tls is None:
            self._tls = self._serving.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
            self.tracked.set_stage(ConnectionStage.HANDSHAKE)
        if self._arrived and not self._is_paused:
            size = _PIECE if self._upper is not None else min(_PIECE, self._handshake_left)
            if not size:
                self._fail("the handshake is too long")
                return
            self._handshake_left -= min(size, len(self._arrived)) if self._upper is None else 0
            self._incoming.write(self._arrived[:size])
            del self._arrived[:size]
        if self._has_tcp_ended and not self._arrived:
            self._incoming.write_eof()
        try:
            if self._upper is None and not self._do_handshake(self._tls):
                return
            if self._upper is not None:
                self._read(self._tls, self._upper)
        except ssl.SSLError as error:
            self._flush()
            self._fail(error.reason or str(error))
            return
        self._flush()

    def _refuse(self) -> None:
        """Refuse the handshake, after the first bytes were read: unread ones would turn the close into a reset."""
        if not self.tcp.is_closing():
            logger.warning("TLS handshake failed", extra={"error": "no serving certificate available for the kubelet"})
            self.tcp.write(_NO_CERTIFICATE)
            self.tcp.close()

    def _do_handshake(self, tls: ssl.SSLObject) -> bool:
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        self._stop_timer()
        self._flush()
        self._upper = self._make_protocol(self.tracked)
        self._upper.connection_made(TlsTransport(self))
        self._read_certificate(tls)
        self.tracked.set_stage(ConnectionStage.SESSION)
        return True

    def _read_certificate(self, tls: ssl.SSLObject) -> None:
        assert self._serving is not None
        self.certificate = read_presented(tls, self._serving.authorities)
        if isinstance(self.certificate, PresentedCertificate):
            self.tracked.mark_authenticated()
            self._certified.add(self, self.certificate)
            if self._certified.changes != self._changes:
                self.retire()  # checked against authorities that are no longer trusted

    def _read(self, tls: ssl.SSLObject, upper: HttpConnection) -> None:
        while not (self._is_paused or self._has_ended or self.tcp.is_closing()):
            try:
                data = tls.read(_PIECE)
            except ssl.SSLWantReadError:
                return
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                data = b""
            if data:
                upper.data_received(data)
                continue
            self._has_ended = True
            if not upper.eof_received():
                self.send_close_notify()
                self.tcp.close()
        if self._has_ended and self._has_tcp_ended:
            self.tcp.close()

    def _flush(self) -> None:
        if self._outgoing.pending and not self.tcp.is_closing():
            self.tcp.write(self._outgoing.read())

    def _fail(self, reason: str) -> None:
        if self._upper is None:
            peer = self.tcp.get_extra_info("peername")
            extra = {"error": reason, "client": peer[0] if isinstance(peer, tuple) else ""}
            # Port scanners and half-configured clients do this all day.
            logger.info("TLS handshake failed", extra=extra)
        self.tcp.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class TlsTransport(asyncio.Transport):
    """What the protocol above writes to."""

    def __init__(self, stream: TlsStream) -> None:
        super().__init__()
        self._stream = stream

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == CLIENT_CERTIFICATE:
            return self._stream.certificate
        # aiohttp asks for it to know whether there is TLS.
        return self._stream.tls if name == "ssl_object" else self._stream.tcp.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._stream.tcp.is_closing()

    def close(self) -> None:
        self._stream.send_close_notify()
        self._stream.tcp.close()

    def abort(self) -> None:
        self._stream.tcp.abort()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._stream.upper = cast(HttpConnection, protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return cast(asyncio.BaseProtocol, self._stream.upper or self._stream)

    def is_reading(self) -> bool:
        return self._stream.tcp.is_reading()

    def pause_reading(self) -> None:
        self._stream.pause(is_paused=True)

    def resume_reading(self) -> None:
        self._stream.pause(is_paused=False)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._stream.send(data)

    def write_eof(self) -> None:
        self._stream.send_close_notify()

    def can_write_eof(self) -> bool:
        return True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._stream.tcp.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._stream.tcp.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._stream.tcp.get_write_buffer_limits()

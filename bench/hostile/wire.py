"""One hostile connection to the loopback, with TLS by hand: it can stop at any byte of it."""

import asyncio
import re
import socket
import ssl
import struct
from collections import Counter
from dataclasses import dataclass, field

HOST = "127.0.0.1"
"""Nobody else is attacked."""
ADDRESSES = 32
"""So many machines the attackers pretend to be; clients that are measured are another one."""
READ_SIZE = 1 << 16
LARGEST_ANSWER = 1 << 22
_STATUS = re.compile(rb"HTTP/1\.1 ([0-9]{3})")
_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]{1,9})\r\n", re.IGNORECASE)


class Closed(ConnectionError):
    """The server has ended the connection."""


@dataclass(slots=True)
class Tally:
    """What all attackers have done."""

    opened: int = 0
    """Connections that the server's kernel has taken."""
    refused: int = 0
    """Connections that could not be opened."""
    handshakes: int = 0
    sent: int = 0
    """Bytes on the wire."""
    open: int = 0
    """Connections at this moment."""
    answers: Counter[str] = field(default_factory=Counter)
    """Answered requests by their status."""


class Wire:
    """A TCP connection and the client's half of TLS on it."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, context: ssl.SSLContext, tally: Tally
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._tally = tally
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing)

    def make_client_hello(self) -> bytes:
        """The first bytes of a handshake, unsent."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return self._outgoing.read()
        raise AssertionError("a handshake without a server")

    async def shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                await self._fill()
            else:
                await self._flush()
                self._tally.handshakes += 1
                return

    async def send(self, data: bytes) -> None:
        """Send through TLS, as fast as the server takes it; other connections get their turn."""
        self._tls.write(data)
        await self._flush()
        await asyncio.sleep(0)

    async def send_raw(self, data: bytes) -> None:
        if self._writer.is_closing():
            raise Closed
        self._writer.write(data)
        self._tally.sent += len(data)
        await self._writer.drain()

    async def receive(self) -> bytes:
        """Raises Closed."""
        while True:
            try:
                if data := self._tls.read(READ_SIZE):
                    return data
            except ssl.SSLWantReadError:
                await self._fill()
                continue
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                pass
            raise Closed

    async def receive_answer(self) -> None:
        """Read one whole answer and count it. Raises Closed."""
        data = b""
        while (head := data.partition(b"\r\n\r\n"))[1] == b"":
            data = await self._receive_more(data)
        status, length = _STATUS.match(data), _LENGTH.search(head[0] + b"\r\n")
        if status is None:
            raise Closed
        self._tally.answers[status[1].decode()] += 1
        whole = len(head[0]) + 4 + (int(length[1]) if length else 0)
        while len(data) < whole:
            data = await self._receive_more(data)

    async def until_closed(self) -> None:
        """Say nothing; raises Closed once the server has had enough."""
        while True:
            await self._fill()

    def hang_up(self, *, is_rude: bool = False) -> None:
        """End it; rudely with a reset."""
        if is_rude and (sock := self._writer.get_extra_info("socket")) is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def _receive_more(self, data: bytes) -> bytes:
        if len(data) > LARGEST_ANSWER:
            raise Closed
        return data + await self.receive()

    async def _fill(self) -> None:
        data = await self._reader.read(READ_SIZE)
        if not data:
            raise Closed
        self._incoming.write(data)

    async def _flush(self) -> None:
        if self._outgoing.pending:
            await self.send_raw(self._outgoing.read())


def hostile_address(number: int) -> str:
    """Where an attacker comes from, on the loopback too."""
    return f"127.0.1.{1 + number % ADDRESSES}"


def make_context() -> ssl.SSLContext:
    """A client that trusts everybody and has no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context

"""A client's connection and one to the runtime's streaming endpoint, joined byte for byte.

Nothing that passes is looked into. Each side's end is passed on, each side waits for the other, and no time ends it.
"""

import asyncio
import ssl
from contextlib import suppress
from typing import Final, cast
from urllib.parse import urlsplit

from msgspec import Struct

from klet.errors import KletError
from klet.server.connection import HttpConnection
from klet.server.http1 import MessageLimits, RequestHead
from klet.server.streaming.answer import AnswerError, AnswerHead, AnswerReader

CONNECT_WITHIN: Final = 30.0
ERROR_WITHIN: Final = 10.0


class StreamProxyError(KletError):
    """The runtime's streaming endpoint is not there, or answers nonsense."""


class StreamEndpoint(Struct, frozen=True):
    """Where the runtime streams."""

    host: str
    port: int
    target: str
    is_tls: bool


def read_endpoint(url: str) -> StreamEndpoint:
    """Parse the URL of a streaming endpoint. Raises StreamProxyError."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise StreamProxyError(f'the runtime gave the URL "{url}": {error}') from error
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise StreamProxyError(f'the runtime gave the URL "{url}", which is not http or https')
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    is_tls = parts.scheme == "https"
    return StreamEndpoint(parts.hostname, port or (443 if is_tls else 80), target, is_tls)


class StreamProxy(asyncio.Protocol):
    """The runtime's side of a stream; it also takes over the client's side."""

    def __init__(self, client: HttpConnection) -> None:
        self._client = client
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[AnswerHead] = asyncio.get_running_loop().create_future()
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reader = AnswerReader(MessageLimits())
        self._is_joined = False
        self._is_refusal = False
        self._client_ended = False
        self._runtime_ended = False

    async def ask(self, endpoint: StreamEndpoint, head: RequestHead, body: bytes) -> AnswerHead:
        """Connect, send the request, and wait for the head of the answer. Raises StreamProxyError."""
        loop = asyncio.get_running_loop()
        context = ssl.create_default_context() if endpoint.is_tls else None
        try:
            async with asyncio.timeout(CONNECT_WITHIN):
                await loop.create_connection(lambda: self, endpoint.host, endpoint.port, ssl=context)
        except (OSError, TimeoutError) as error:
            where = f"{endpoint.host}:{endpoint.port}"
            raise StreamProxyError(f"error dialing backend: {where}: {str(error) or 'timed out'}") from error
        self._runtime.write(self._reader.write_request(head, body))
        return await self._answer

    def join(self, answer: AnswerHead, early: bytes) -> None:
        """Send each side what the other has already sent, and all further data."""
        self._is_joined = True
        if early:
            self._runtime.write(early)
        self._client.transport.write(answer.data + self._reader.take_rest())
        self._runtime.resume_reading()
        if self._runtime_ended:
            self._end_client()

    async def until_ended(self) -> None:
        """Wait until one side has disconnected, or both have sent their end of file."""
        await self._ended

    async def read_rest(self) -> bytes:
        """Return the body of an answer that refuses, as far as it comes in time."""
        self._is_refusal = True
        self._collect(b"")
        self._runtime.resume_reading()
        with suppress(TimeoutError):  # what has come is more than nothing
            async with asyncio.timeout(ERROR_WITHIN):
                await self._ended
        return bytes(self._reader.body)

    def close(self) -> None:
        """End the runtime's side."""
        if self._transport is not None:
            self._transport.close()

    @property
    def _runtime(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport

    # The runtime's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not derived from it

    def data_received(self, data: bytes) -> None:
        if self._is_joined:
            self._client.transport.write(data)
        elif self._is_refusal:
            self._collect(data)
        elif not self._answer.done():
            self._read_answer(data)
        else:
            self._reader.keep(data)

    def eof_received(self) -> bool:
        self._runtime_ended = True
        if self._is_joined:
            self._end_client()
            return True
        if self._answer.done():
            self._finish()
        return self._answer.done()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._answer.done():
            why = f": {exc}" if exc is not None else ""
            self._answer.set_exception(
                StreamProxyError(f"the runtime's streaming endpoint hung up without an answer{why}")
            )
        self._finish()

    def pause_writing(self) -> None:
        self._client.transport.pause_reading()

    def resume_writing(self) -> None:
        self._client.transport.resume_reading()

    # The client's side.

    def client_data(self, data: bytes) -> None:
        # A client may still send while the end of what it talks to is on its way to it.
        if not self._runtime.is_closing():
            self._runtime.write(data)

    def client_eof(self) -> None:
        self._client_ended = True
        if self._runtime_ended or not self._runtime.can_write_eof():
            self._finish()
        elif not self._runtime.is_closing():
            self._runtime.write_eof()

    def client_gone(self) -> None:
        self.close()
        self._finish()

    def client_is_full(self, *, is_full: bool) -> None:
        if is_full:
            self._runtime.pause_reading()
        else:
            self._runtime.resume_reading()

    def _end_client(self) -> None:
        transport = self._client.transport
        if self._client_ended or not transport.can_write_eof():
            self._finish()
        elif not transport.is_closing():
            transport.write_eof()

    def _read_answer(self, data: bytes) -> None:
        try:
            head = self._reader.read_head(data)
        except AnswerError as error:
            self._answer.set_exception(StreamProxyError(f"the runtime's streaming endpoint answered {error}"))
            self.close()
            return
        if head is not None:
            # Until it is known what becomes of it: what follows must not pile up.
            self._runtime.pause_reading()
            self._answer.set_result(head)

    def _collect(self, data: bytes) -> None:
        self._reader.read_body(data)
        if self._reader.is_complete:
            self._finish()

    def _finish(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

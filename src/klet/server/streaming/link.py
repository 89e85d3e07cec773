"""A client's connection and one to the runtime's streaming endpoint, joined byte for byte.

Nothing that passes is looked into. Each side's end is passed on, each side waits for the other, and no time ends it.
"""

import asyncio
import ssl
from dataclasses import dataclass
from typing import Final, Protocol, cast
from urllib.parse import urlsplit

from klet.errors import KletError
from klet.server.framing import HEAD_END, BodyReader, FramingError, ResponseHead, parse_response_head

CONNECT_WITHIN: Final = 30.0
ERROR_WITHIN: Final = 10.0
_ANSWER_LIMIT: Final = 1 << 16


class LinkError(KletError):
    """The runtime's streaming endpoint is not there, or answers nonsense."""


class Client(Protocol):
    """The connection that is joined to the runtime's."""

    @property
    def transport(self) -> asyncio.Transport: ...


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the runtime streams."""

    host: str
    port: int
    target: str
    is_tls: bool


def read_endpoint(url: str) -> Endpoint:
    """Raises LinkError."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise LinkError(f'the runtime gave the URL "{url}": {error}') from error
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise LinkError(f'the runtime gave the URL "{url}", which is not http or https')
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    is_tls = parts.scheme == "https"
    return Endpoint(parts.hostname, port or (443 if is_tls else 80), target, is_tls)


class Link(asyncio.Protocol):
    """The runtime's side of the link; also what takes over the client's side."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[ResponseHead] = asyncio.get_running_loop().create_future()
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._buffer = bytearray()
        self._head_size = 0
        self._refusal: BodyReader | None = None
        self._is_joined = False
        self._client_ended = False
        self._runtime_ended = False

    async def ask(self, endpoint: Endpoint, head: bytes) -> ResponseHead:
        """Connect, send the head of the request, and wait for that of the answer. Raises LinkError."""
        loop = asyncio.get_running_loop()
        context = ssl.create_default_context() if endpoint.is_tls else None
        try:
            async with asyncio.timeout(CONNECT_WITHIN):
                await loop.create_connection(lambda: self, endpoint.host, endpoint.port, ssl=context)
        except (OSError, TimeoutError) as error:
            where = f"{endpoint.host}:{endpoint.port}"
            raise LinkError(f"error dialing backend: {where}: {str(error) or 'timed out'}") from error
        self._runtime.write(head)
        return await self._answer

    def join(self, early: bytes) -> None:
        """Send each side what the other has said already, and from now on all else."""
        self._is_joined = True
        if early:
            self._runtime.write(early)
        self._drain()
        self._runtime.resume_reading()
        if self._runtime_ended:
            self._end_client()

    async def until_ended(self) -> None:
        """Wait until one side has gone, or both have said all they had to say."""
        await self._ended

    async def read_rest(self, head: ResponseHead) -> bytes:
        """The body of an answer that refuses, as far as it comes in time. Raises LinkError."""
        try:
            self._refusal = refusal = BodyReader(head)
            self._collect(bytes(self._buffer[self._head_size :]))
            self._runtime.resume_reading()
            async with asyncio.timeout(ERROR_WITHIN):
                await self._ended
        except FramingError as error:
            raise LinkError(f"the runtime's streaming endpoint answered {head.status} with {error}") from error
        except TimeoutError:
            pass  # what has come is more than nothing
        return bytes(refusal.content)

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
        elif self._refusal is not None:
            self._collect(data)
        else:
            self._buffer += data
            if not self._answer.done():
                self._read_answer()

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
            self._answer.set_exception(LinkError(f"the runtime's streaming endpoint hung up without an answer{why}"))
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

    def _read_answer(self) -> None:
        found = HEAD_END.search(self._buffer)
        if found is None:
            if len(self._buffer) > _ANSWER_LIMIT:
                self._refuse("with headers without end")
            return
        head = parse_response_head(bytes(self._buffer[: found.end()]))
        if head is None:
            self._refuse("with something that is not HTTP")
            return
        self._head_size = found.end()
        # Until it is known what becomes of it: what follows must not pile up.
        self._runtime.pause_reading()
        self._answer.set_result(head)

    def _refuse(self, how: str) -> None:
        self._answer.set_exception(LinkError(f"the runtime's streaming endpoint answered {how}"))
        self.close()

    def _collect(self, data: bytes) -> None:
        assert self._refusal is not None
        try:
            self._refusal.feed(data)
        except FramingError:
            self._finish()
            return
        if self._refusal.is_complete or len(self._refusal.content) > _ANSWER_LIMIT:
            self._finish()

    def _drain(self) -> None:
        if self._buffer:
            self._client.transport.write(bytes(self._buffer))
            self._buffer.clear()

    def _finish(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

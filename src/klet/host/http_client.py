"""A small HTTP/1.1 client for probes and lifecycle hooks: one GET, one connection, no proxy, TLS not verified.

It is a tenth of a full client and costs a fraction of its time, because a node asks up to a thousand times a second.
Errors are told in the words of Go's net/http, which users know from events.
"""

import asyncio
import errno
import os
import socket
import ssl
from datetime import timedelta
from typing import cast

from klet.errors import KletError
from klet.host.http_response import HttpResponse, ResponseError, ResponseReader
from klet.model.http_get import Address, HttpGet, follow, join_host_port, write_request

MAX_REDIRECTS = 10
_FOLLOWED = frozenset({301, 302, 303, 307, 308})
_PLAIN_ANSWER = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"})


class HttpError(KletError):
    """No answer: `Get "<url>": <why>`."""


class PlainHttpError(HttpError):
    """An HTTPS request was answered in plain HTTP."""


class BodyError(KletError):
    """An answer whose body broke off."""


class HttpClient:
    """Sends GET requests."""

    def __init__(self) -> None:
        self._unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._unverified.check_hostname = False
        self._unverified.verify_mode = ssl.CERT_NONE

    async def get(self, request: HttpGet, *, timeout: timedelta | None) -> HttpResponse:
        """The answer; redirections are followed as long as they stay on the same host. `timeout` covers it all."""
        exchanges: list[_Exchange] = []
        try:
            async with asyncio.timeout(None if timeout is None else timeout.total_seconds()):
                return await self._get(request, exchanges)
        except TimeoutError as error:
            if exchanges[-1].has_head:
                why = "context deadline exceeded (Client.Timeout or context cancellation while reading body)"
                raise BodyError(why) from error
            why = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
            raise _failed(exchanges[-1].url, why) from error

    async def _get(self, request: HttpGet, exchanges: "list[_Exchange]") -> HttpResponse:
        address, host, wire = request.address, request.host, request.wire
        while True:
            exchanges.append(_Exchange(address.url, wire))
            response = await self._exchange(address, exchanges[-1])
            location = response.location
            if response.status not in _FOLLOWED or not location:
                return response
            following = follow(address, location)
            if following is None:
                raise _failed(address.url, f'failed to parse Location header "{location}"')
            if following.host and following.host != request.address.host:
                return response
            if len(exchanges) == MAX_REDIRECTS:
                raise _failed(location, f"stopped after {MAX_REDIRECTS} redirects")
            # The name that the user gave to the server survives only a redirection that names none itself.
            host = "" if "://" in location else host
            referer = "" if (address.scheme, following.scheme) == ("https", "http") else address.url
            address = following
            wire = write_request(address, host, request.headers, referer=referer)

    async def _exchange(self, address: Address, exchange: "_Exchange") -> HttpResponse:
        if address.scheme not in {"http", "https"}:
            raise _failed(address.url, f'unsupported protocol scheme "{address.scheme}"')
        context = self._unverified if address.scheme == "https" else None
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: exchange, address.host, address.port, ssl=context)
            return await exchange.done
        except ssl.SSLError as error:
            if error.reason in _PLAIN_ANSWER:
                why = "http: server gave HTTP response to HTTPS client"
                raise PlainHttpError(f'Get "{address.url}": {why}') from error
            raise _failed(address.url, f"tls: {error.reason or error}") from error
        except (OSError, UnicodeError) as error:
            is_cut = context is not None and isinstance(error, ConnectionError) and error.errno != errno.ECONNREFUSED
            why = "EOF" if is_cut else describe_dial(address.host, address.port, error)
            raise _failed(address.url, why) from error
        finally:
            exchange.close()


def describe_dial(host: str, port: int, error: OSError | UnicodeError) -> str:
    """Why a connection was not made."""
    if isinstance(error, socket.gaierror | UnicodeError):
        return f"dial tcp: lookup {host}: no such host"
    return f"dial tcp {join_host_port(host, port)}: connect: {reason(error)}"


def reason(error: OSError) -> str:
    """`connection refused` and the like."""
    return os.strerror(error.errno).lower() if error.errno else str(error)


def _failed(url: str, why: str) -> HttpError:
    return HttpError(f'Get "{url}": {why}')


class _Exchange(asyncio.Protocol):
    """The client's end of one connection."""

    __slots__ = ("_reader", "_request", "_transport", "done", "url")

    def __init__(self, url: str, request: bytes) -> None:
        self.url = url
        self.done: asyncio.Future[HttpResponse] = asyncio.get_running_loop().create_future()
        self._request = request
        self._reader = ResponseReader()
        self._transport: asyncio.Transport | None = None

    @property
    def has_head(self) -> bool:
        return self._reader.has_head

    def close(self) -> None:
        """Be done with it at once: an orderly close would wait for the other side to end its TLS session too."""
        self.done.cancel()
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if self.done.done():
            return
        try:
            response = self._reader.feed(data)
        except ResponseError as error:
            self._fail(error)
        else:
            if response is not None:
                self.done.set_result(response)

    def eof_received(self) -> None:
        if self.done.done():
            return
        try:
            self.done.set_result(self._reader.end())
        except ResponseError as error:
            self._fail(error)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None and isinstance(exc, OSError) and exc.errno:
            ends = (self._transport.get_extra_info(name) for name in ("sockname", "peername"))
            path = "->".join(join_host_port(end[0], end[1]) for end in ends if end)
            self._fail(ResponseError(f"read tcp {path}: read: {reason(exc)}", in_body=self._reader.has_head))
        else:
            self.eof_received()

    def _fail(self, error: ResponseError) -> None:
        if not self.done.done():
            self.done.set_exception(BodyError(str(error)) if error.in_body else _failed(self.url, str(error)))
            self.done.exception()  # looked at, so that nobody complains if the caller has gone meanwhile

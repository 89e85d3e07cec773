"""A small HTTP/1.1 client for probes and lifecycle hooks: one GET, one connection, no proxy, TLS not verified.

It is a tenth of a full client and costs a fraction of its time, because a node asks up to a thousand times a second.
Errors have the words of Go's net/http, which users know from Events.
"""

import asyncio
import errno
import itertools
import os
import socket
import ssl
from datetime import timedelta
from typing import Protocol, cast

from klet.errors import KletError
from klet.host.http_response import HttpResponse, ResponseError, ResponseReader
from klet.host.plain_sockets import PlainSocket, PlainSockets, make_socket
from klet.model.foreign_text import shorten
from klet.model.http_get import Address, HttpGet, follow, join_host_port, write_request

MAX_REDIRECTS = 10
_FOLLOWED = frozenset({301, 302, 303, 307, 308})
# Bytes. A server that redirects chooses the address, and what it answers is quoted.
_LONGEST_ADDRESS = 2 * 1024
_LONGEST_REASON = 4 * 1024
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
        self._sockets: PlainSockets | None = None

    async def get(self, request: HttpGet, *, timeout: timedelta | None) -> HttpResponse:
        """Return the answer; redirections on the same host are followed. `timeout` covers it all."""
        deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout.total_seconds()
        response = await self._exchange(request.address, request.wire, deadline)
        if response.status in _FOLLOWED and response.location:
            return await self._follow(request, response, deadline)
        return response

    async def _follow(self, request: HttpGet, response: HttpResponse, deadline: float | None) -> HttpResponse:
        address, host = request.address, request.host
        for count in itertools.count(1):
            location = response.location
            if response.status not in _FOLLOWED or not location:
                break
            following = follow(address, location)
            if following is None:
                raise _failed(address.url, f'failed to parse Location header "{location}"')
            if following.host != request.address.host:
                break
            if count == MAX_REDIRECTS:
                raise _failed(location, f"stopped after {MAX_REDIRECTS} redirects")
            # The name that the user gave to the server survives only a redirection that names none itself.
            host = "" if "://" in location else host
            referer = "" if (address.scheme, following.scheme) == ("https", "http") else address.url
            address = following
            wire = write_request(address, host, request.headers, referer=referer)
            response = await self._exchange(address, wire, deadline)
        return response

    async def _exchange(self, address: Address, wire: bytes, deadline: float | None) -> HttpResponse:
        if address.scheme not in {"http", "https"}:
            raise _failed(address.url, f'unsupported protocol scheme "{address.scheme}"')
        exchange = _Exchange(address, wire)
        try:
            if address.scheme == "http" and is_ip(address.host):
                exchange.begin(self._plain_sockets(), deadline)
                return await exchange.done
            async with asyncio.timeout_at(deadline):
                await self._connect(exchange)
                return await exchange.done
        except TimeoutError as error:
            raise exchange.overdue() from error
        finally:
            exchange.close()

    async def _connect(self, exchange: "_Exchange") -> None:
        """Connect through the loop, which knows names and TLS."""
        address = exchange.address
        context = self._unverified if address.scheme == "https" else None
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: exchange, address.host, address.port, ssl=context)
        except ssl.SSLError as error:
            if error.reason in _PLAIN_ANSWER:
                why = "http: server gave HTTP response to HTTPS client"
                raise PlainHttpError(_describe(address.url, why)) from error
            raise _failed(address.url, f"tls: {error.reason or error}") from error
        except (OSError, UnicodeError) as error:
            is_cut = context is not None and isinstance(error, ConnectionError) and error.errno != errno.ECONNREFUSED
            why = "EOF" if is_cut else describe_dial(address.host, address.port, error)
            raise _failed(address.url, why) from error

    def _plain_sockets(self) -> PlainSockets:
        loop = asyncio.get_running_loop()
        if self._sockets is None or self._sockets.loop is not loop:
            self._sockets = PlainSockets.attach(loop)
        return self._sockets


def is_ip(host: str) -> bool:
    """Return whether it is an address and needs no lookup."""
    try:
        socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    except (OSError, ValueError):
        return False
    return True


def describe_dial(host: str, port: int, error: OSError | UnicodeError) -> str:
    """Return why a connection was not made."""
    if isinstance(error, socket.gaierror | UnicodeError):
        return f"dial tcp: lookup {host}: no such host"
    return f"dial tcp {join_host_port(host, port)}: connect: {reason(error)}"


def reason(error: OSError) -> str:
    """Return the reason of an error: `connection refused` and the like."""
    return os.strerror(error.errno).lower() if error.errno else str(error)


def _failed(url: str, why: str) -> HttpError:
    return HttpError(_describe(url, why))


def _describe(url: str, why: str) -> str:
    return f'Get "{shorten(url, _LONGEST_ADDRESS)}": {shorten(why, _LONGEST_REASON)}'


class _Connection(Protocol):
    """What an exchange needs of its transport."""

    def abort(self) -> None: ...

    def get_extra_info(self, name: str) -> tuple[str, int] | None: ...


class _Exchange(asyncio.Protocol):
    """The client's end of one connection."""

    __slots__ = ("_connection", "_reader", "_request", "address", "done")

    def __init__(self, address: Address, request: bytes) -> None:
        self.address = address
        self.done: asyncio.Future[HttpResponse] = asyncio.get_running_loop().create_future()
        self._request = request
        self._reader = ResponseReader()
        self._connection: _Connection | None = None

    def begin(self, sockets: PlainSockets, deadline: float | None) -> None:
        """Connect to an IP address, without a transport of the loop."""
        peer = (self.address.host, self.address.port)
        try:
            made = make_socket(peer)
        except OSError as error:
            self.not_connected(error)
            return
        connection = PlainSocket(sockets=sockets, made=made, peer=peer, listener=self, deadline=deadline)
        self._connection = connection
        connection.begin(self._request)

    def close(self) -> None:
        """Be done with it at once: an orderly close would wait for the other side to end its TLS session too."""
        self.done.cancel()
        if self._connection is not None:
            self._connection.abort()
            self._connection = None  # they know each other, and would be left to the garbage collector

    def overdue(self) -> KletError:
        """Return the error of a request that has taken too long."""
        if self._reader.has_head:
            return BodyError("context deadline exceeded (Client.Timeout or context cancellation while reading body)")
        why = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        return _failed(self.address.url, why)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        made = cast("asyncio.Transport", transport)
        self._connection = made
        made.write(self._request)

    def data_received(self, data: bytes) -> None:
        if self.done.done():
            return
        try:
            response = self._reader.feed(data)
        except ResponseError as error:
            self._fail_response(error)
        else:
            if response is not None:
                self.done.set_result(response)

    def eof_received(self) -> None:
        if self.done.done():
            return
        try:
            self.done.set_result(self._reader.end())
        except ResponseError as error:
            self._fail_response(error)

    def not_connected(self, error: OSError) -> None:
        self._fail(_failed(self.address.url, describe_dial(self.address.host, self.address.port, error)))

    def expired(self) -> None:
        self._fail(self.overdue())

    def connection_lost(self, exc: Exception | None) -> None:
        if self._connection is not None and isinstance(exc, OSError) and exc.errno:
            ends = (self._connection.get_extra_info(name) for name in ("sockname", "peername"))
            path = "->".join(join_host_port(end[0], end[1]) for end in ends if end)
            self._fail_response(ResponseError(f"read tcp {path}: read: {reason(exc)}", in_body=self._reader.has_head))
        else:
            self.eof_received()

    def _fail_response(self, error: ResponseError) -> None:
        self._fail(BodyError(str(error)) if error.in_body else _failed(self.address.url, str(error)))

    def _fail(self, error: KletError) -> None:
        if not self.done.done():
            self.done.set_exception(error)
            self.done.exception()  # retrieved, so that asyncio does not complain if the caller has gone meanwhile

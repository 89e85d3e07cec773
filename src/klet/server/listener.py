"""The HTTP server (kubelet server): on a Unix socket for its owner, with TLS for the cluster, and without TLS."""

import asyncio
import errno
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final, Protocol

from aiohttp import web
from aiohttp.typedefs import Middleware
from aiohttp.web_protocol import RequestHandler
from msgspec import Struct

from klet.aio.clock import Clock
from klet.api.validation.formats import parse_ip
from klet.errors import KletError
from klet.host.errors import FileError
from klet.host.files import remove_file
from klet.host.listening import find_listener
from klet.model.tracing import Tracer
from klet.server.accept import accept_connections
from klet.server.application import RequestAuth, build_application
from klet.server.connection import HttpConnection, RequestLimits
from klet.server.connection_limits import TrackedConnection, UnauthenticatedConnections, UnauthenticatedLimits
from klet.server.endpoint_types import HandlerSwitch, ListenerKind, Routes
from klet.server.http1 import FIELD_LIMIT, HEAD_LIMIT
from klet.server.metrics import READ_ONLY, READ_WRITE, HttpMetrics, count_requests
from klet.server.request_log import request_logger
from klet.server.tls.certified import CertifiedConnections
from klet.server.tls.serving import Serving
from klet.server.tls.stream import TlsStream

logger = logging.getLogger(__name__)

CLOSE_WITHIN: Final = 0.5
"""Seconds for requests that are being served when the agent ends; aiohttp waits for this time twice."""
BACKLOG: Final = 1024
"""How many clients may connect while the loop is busy; a Unix socket refuses the next one at once."""
IDLE: Final = 90.0
HANDSHAKE_WITHIN: Final = timedelta(seconds=10)
LISTEN_AGAIN: Final = timedelta(seconds=5)
_PLAIN: Final = UnauthenticatedLimits(connections=512)
"""Without TLS no client is authenticated: all connections count that are not being served."""
_READ_ONLY: Final = UnauthenticatedLimits(connections=512, bytes_kept=32 << 20)
"""The list of pods is sent whole: it must fit."""
_OWNER: Final = UnauthenticatedLimits(connections=512, bytes_kept=128 << 20)
"""Only root can open the socket."""
_READ_SIZE: Final = 1 << 14
_ADDED_FIELDS: Final = 8
"""More than `write_plain` adds to those that the client sent."""


class ListenError(KletError):
    """The socket cannot be served."""


class Contexts(Protocol):
    """What a new connection is served with; None while there is no certificate."""

    def current(self) -> Serving | None: ...


class ListenerLimits(Struct, frozen=True, kw_only=True):
    """What clients may take: each for a request, unauthenticated ones all together, and time for a handshake."""

    request: RequestLimits = RequestLimits()
    unauthenticated: UnauthenticatedLimits = UnauthenticatedLimits()
    handshake: timedelta = HANDSHAKE_WITHIN


class ListenerOptions(Struct, frozen=True, kw_only=True):
    """What is served, and whether it is traced."""

    has_debugging: bool = True
    """`enableDebuggingHandlers`."""
    switched_off: frozenset[HandlerSwitch] = frozenset()
    tracer: Tracer | None = None
    metrics: HttpMetrics | None = None


class ListenAddress(Struct, frozen=True, kw_only=True):
    """Where to listen; port 0 is any that is free."""

    host: str
    port: int
    name: str
    """The settings that name it, for the message if it fails."""


def listen_on(address: ListenAddress) -> socket.socket:
    """Listen on an address; `::` is every address of both families. Raises ListenError."""
    # The libraries of C read leading zeros as octal numbers: another address than the one that was checked.
    host = str(parse_ip(address.host) or address.host)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    is_dual = host == "::" and socket.has_dualstack_ipv6()
    try:
        return socket.create_server((host, address.port), family=family, backlog=BACKLOG, dualstack_ipv6=is_dual)
    except OSError as error:
        raise ListenError(f"cannot listen on {_shown(address)} ({address.name}): {_why(error, address)}") from error


class SocketListener:
    """The API on `<root>/klet.sock`, for the commands at the node."""

    def __init__(
        self,
        *,
        path: Path,
        routes: Sequence[Routes],
        clock: Clock,
        switched_off: frozenset[HandlerSwitch] = frozenset(),
    ) -> None:
        self._path = path
        self._routes = routes
        self._switched_off = switched_off
        self._clock = clock

    async def run(self) -> None:
        listener = self._bind()
        try:
            application = build_application(self._routes, kind=ListenerKind.SOCKET, switched_off=self._switched_off)
            async with _handlers(application) as make_handler:
                logger.info("Serving the agent's API", extra={"socket": str(self._path)})
                make_connection = _plain_connections(make_handler, self._clock, _OWNER)
                await accept_connections(listener, make_connection, clock=self._clock)
        finally:
            listener.close()
            self._remove()

    def _remove(self) -> None:
        try:
            remove_file(self._path)
        except FileError as error:
            logger.warning("The socket of the agent's API stays", extra={"error": str(error)})

    def _bind(self) -> socket.socket:
        """Bind with mode 0600 from the first instant, in place of the socket of a previous run.

        It appears under its name only when it listens: a client that sees it can connect.
        """
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.settimeout(0)
            coming = self._path.with_suffix(".new")
            remove_file(coming)
            # fchmod before bind sets the mode that the socket file is created with.
            os.fchmod(listener.fileno(), 0o600)
            listener.bind(str(coming))
            listener.listen(BACKLOG)
            coming.rename(self._path)
        except FileError as error:
            listener.close()
            raise ListenError(f"cannot listen on {self._path}: {error}") from error
        except OSError as error:
            listener.close()
            raise ListenError(f"cannot listen on {self._path}: {error.strerror}") from error
        return listener


class SecureListener:
    """The API with TLS, for the API server and every other authorized client (port 10250)."""

    def __init__(
        self,
        *,
        listener: socket.socket,
        contexts: Contexts,
        certified: CertifiedConnections,
        auth: RequestAuth,
        routes: Sequence[Routes],
        clock: Clock,
        options: ListenerOptions | None = None,
        limits: ListenerLimits | None = None,
    ) -> None:
        self._listener = listener
        self._contexts = contexts
        self._certified = certified
        self._auth = auth
        self._routes = routes
        self._clock = clock
        self._options = options or ListenerOptions()
        self._limits = limits or ListenerLimits()

    async def run(self) -> None:
        try:
            application = build_application(
                self._routes,
                kind=ListenerKind.API,
                auth=self._auth,
                has_debugging=self._options.has_debugging,
                switched_off=self._options.switched_off,
                tracer=self._options.tracer,
                count=_counter(self._options, READ_WRITE, self._clock),
            )
            async with _handlers(application) as make_handler:
                unauthenticated = UnauthenticatedConnections(limits=self._limits.unauthenticated, clock=self._clock)
                buffer = bytearray(_READ_SIZE)
                logger.info("Serving the kubelet API", extra=_where(self._listener))
                await accept_connections(
                    self._listener, lambda: self._connection(make_handler, unauthenticated, buffer), clock=self._clock
                )
        finally:
            self._listener.close()

    def _connection(
        self, make_handler: Callable[[], RequestHandler], unauthenticated: UnauthenticatedConnections, buffer: bytearray
    ) -> TlsStream:
        def make_protocol(tracked: TrackedConnection) -> HttpConnection:
            return HttpConnection(make_handler=make_handler, limits=self._limits.request, track=lambda _: tracked)

        return TlsStream(
            serving=self._contexts.current(),
            make_protocol=make_protocol,
            unauthenticated=unauthenticated,
            certified=self._certified,
            handshake=self._limits.handshake,
            buffer=buffer,
        )


class ReadOnlyListener:
    """What every client that can connect may read, without TLS (`readOnlyPort`)."""

    def __init__(
        self,
        *,
        listener: socket.socket,
        routes: Sequence[Routes],
        clock: Clock,
        options: ListenerOptions | None = None,
    ) -> None:
        self._listener = listener
        self._routes = routes
        self._clock = clock
        self._options = options or ListenerOptions()

    async def run(self) -> None:
        application = build_application(
            self._routes,
            kind=ListenerKind.READ_ONLY,
            has_debugging=False,
            tracer=self._options.tracer,
            count=_counter(self._options, READ_ONLY, self._clock),
        )
        logger.info("Serving the read-only kubelet API", extra=_where(self._listener))
        await _serve_plainly(self._listener, application, self._clock, _READ_ONLY)


class HealthListener:
    """`/healthz` without TLS, on a port that only the node itself should reach (port 10248)."""

    def __init__(self, *, address: ListenAddress, routes: Sequence[Routes], clock: Clock) -> None:
        self._address = address
        self._routes = routes
        self._clock = clock

    async def run(self) -> None:
        """Serve; retry while the port is taken: that is no reason not to run pods."""
        while True:
            try:
                listener = listen_on(self._address)
            except ListenError as error:
                logger.error("Failed to start healthz server", extra={"error": str(error)})
                await self._clock.sleep(LISTEN_AGAIN)
                continue
            logger.info("Serving health", extra=_where(listener))
            application = build_application(self._routes, kind=ListenerKind.HEALTH)
            await _serve_plainly(listener, application, self._clock, _PLAIN)


def _counter(options: ListenerOptions, server_type: str, clock: Clock) -> Middleware | None:
    return count_requests(options.metrics, server_type=server_type, clock=clock) if options.metrics else None


async def _serve_plainly(
    listener: socket.socket, application: web.Application, clock: Clock, limits: UnauthenticatedLimits
) -> None:
    """Serve HTTP without authentication; close the listener at the end."""
    try:
        async with _handlers(application) as make_handler:
            await accept_connections(listener, _plain_connections(make_handler, clock, limits), clock=clock)
    finally:
        listener.close()


def _plain_connections(
    make_handler: Callable[[], RequestHandler], clock: Clock, unauthenticated_limits: UnauthenticatedLimits
) -> Callable[[], HttpConnection]:
    """Make the protocol of each connection without TLS, within limits for all of them together."""
    unauthenticated = UnauthenticatedConnections(limits=unauthenticated_limits, clock=clock)
    limits = RequestLimits()

    def track(transport: asyncio.Transport) -> TrackedConnection:
        return unauthenticated.add(transport.get_extra_info("peername"), transport.abort)

    return lambda: HttpConnection(make_handler=make_handler, limits=limits, track=track)


@asynccontextmanager
async def _handlers(application: web.Application) -> AsyncIterator[Callable[[], RequestHandler]]:
    """Yield what makes aiohttp's handlers; at the end open connections get a moment, and are then closed."""
    runner = web.AppRunner(
        application,
        access_log=None,
        logger=request_logger(),
        shutdown_timeout=CLOSE_WITHIN,
        handler_cancellation=True,
        keepalive_timeout=IDLE,
        # `HttpConnection` has checked all of these: aiohttp must not check them once more.
        max_line_size=HEAD_LIMIT,
        max_field_size=HEAD_LIMIT,
        max_headers=FIELD_LIMIT + _ADDED_FIELDS,
    )
    await runner.setup()
    assert runner.server is not None
    try:
        yield runner.server
    finally:
        await runner.cleanup()


def _where(listener: socket.socket) -> dict[str, object]:
    host, port, *_ = listener.getsockname()
    return {"host": host, "port": port}


def _shown(address: ListenAddress) -> str:
    return f"[{address.host}]:{address.port}" if ":" in address.host else f"{address.host}:{address.port}"


def _why(error: OSError, address: ListenAddress) -> str:
    """Return what is wrong and what to do about it. The message of the error itself repeats the address."""
    why = error.strerror or str(error)
    if error.errno == errno.EADDRINUSE:
        holder = find_listener(address.port)
        return f"{holder or 'another process'} has the port: stop it, or set another port"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"this machine has no such address ({why.lower()}): set another one"
    return why.lower()

"""Serves the agent's HTTP API: on a Unix socket that only its owner may open, with TLS for the cluster, and plainly."""

import asyncio
import errno
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from klet.aio.clock import Clock
from klet.errors import KletError
from klet.host.listening import find_listener
from klet.server.front import HEAD_LIMIT, Front, FrontLimits
from klet.server.guard import Gatekeeper, Routes, build_application
from klet.server.places import Place, find_health, find_place
from klet.server.request_log import request_logger
from klet.server.tls.stream import TlsStream

logger = logging.getLogger(__name__)

CLOSE_WITHIN: Final = 0.5
"""For requests in hand when the agent ends; waited for twice by aiohttp."""
BACKLOG: Final = 1024
"""How many clients may come while the loop is busy; a Unix socket turns away the next at once."""
IDLE: Final = 90.0
HANDSHAKE_WITHIN: Final = timedelta(seconds=10)
LISTEN_AGAIN: Final = timedelta(seconds=5)
_LONGEST_PLAIN_LINE: Final = 8190


class ListenError(KletError):
    """The socket cannot be served."""


class Contexts(Protocol):
    """The TLS context for a new connection; None while there is no certificate."""

    def current(self) -> ssl.SSLContext | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where to listen; port 0 is any that is free."""

    host: str
    port: int
    name: str
    """The settings that say so, for the message if it fails."""


def take(address: Address) -> socket.socket:
    """Listen on an address; `::` is every address of both families. Raises ListenError."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    is_dual = address.host == "::" and socket.has_dualstack_ipv6()
    try:
        return socket.create_server(
            (address.host, address.port), family=family, backlog=BACKLOG, dualstack_ipv6=is_dual
        )
    except OSError as error:
        raise ListenError(f"cannot listen on {_shown(address)} ({address.name}): {_why(error, address)}") from error


class SocketListener:
    """The API on `<root>/klet.sock`, for the commands at the node."""

    def __init__(self, *, path: Path, routes: Sequence[Routes]) -> None:
        self._path = path
        self._routes = routes

    async def run(self) -> None:
        listener = self._bind()
        try:
            application = build_application(self._routes, gate=None, find=partial(find_place, has_debugging=True))
            async with _handlers(application, longest_line=_LONGEST_PLAIN_LINE) as make_handler:
                limits = FrontLimits()
                server = await asyncio.get_running_loop().create_unix_server(
                    lambda: Front(make_handler=make_handler, limits=limits), sock=listener, backlog=BACKLOG
                )
                logger.info("Serving the agent's API", extra={"socket": str(self._path)})
                await _until_cancelled(server)
        finally:
            listener.close()
            self._path.unlink(missing_ok=True)

    def _bind(self) -> socket.socket:
        """Bind with mode 0600 from the first instant, in place of the socket of an earlier life.

        Under its own name it appears only when it listens: whoever sees it come can connect.
        """
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.settimeout(0)
            coming = self._path.with_suffix(".new")
            coming.unlink(missing_ok=True)
            # fchmod before bind sets the mode that the socket file is created with.
            os.fchmod(listener.fileno(), 0o600)
            listener.bind(str(coming))
            listener.listen(BACKLOG)
            coming.rename(self._path)
        except OSError as error:
            listener.close()
            raise ListenError(f"cannot listen on {self._path}: {error.strerror}") from error
        return listener


class SecureListener:
    """The API with TLS, for the API server and everybody else who is allowed (port 10250)."""

    def __init__(
        self,
        *,
        listener: socket.socket,
        contexts: Contexts,
        gate: Gatekeeper,
        routes: Sequence[Routes],
        has_debugging: bool = True,
        limits: FrontLimits | None = None,
        handshake: timedelta = HANDSHAKE_WITHIN,
    ) -> None:
        self._listener = listener
        self._contexts = contexts
        self._gate = gate
        self._routes = routes
        self._has_debugging = has_debugging
        self._limits = limits or FrontLimits()
        self._handshake = handshake

    async def run(self) -> None:
        try:
            find = partial(find_place, has_debugging=self._has_debugging)
            application = build_application(self._routes, gate=self._gate, find=find)
            async with _handlers(application, longest_line=HEAD_LIMIT) as make_handler:
                server = await asyncio.get_running_loop().create_server(
                    lambda: self._connection(make_handler), sock=self._listener, backlog=BACKLOG
                )
                logger.info("Serving the kubelet API", extra=_where(self._listener))
                await _until_cancelled(server)
        finally:
            self._listener.close()

    def _connection(self, make_handler: Callable[[], RequestHandler]) -> TlsStream:
        return TlsStream(
            context=self._contexts.current(),
            make_protocol=lambda: Front(make_handler=make_handler, limits=self._limits),
            handshake=self._handshake,
        )


class ReadOnlyListener:
    """What may be read by everybody who can connect, without TLS (`readOnlyPort`)."""

    def __init__(self, *, listener: socket.socket, routes: Sequence[Routes]) -> None:
        self._listener = listener
        self._routes = routes

    async def run(self) -> None:
        async with _serving_plainly(self._listener, self._routes, partial(find_place, has_debugging=False)) as server:
            logger.info("Serving the kubelet API for readers", extra=_where(self._listener))
            await _until_cancelled(server)


class HealthListener:
    """`/healthz` without TLS, on a port that only the node itself should reach (port 10248)."""

    def __init__(self, *, address: Address, routes: Sequence[Routes], clock: Clock) -> None:
        self._address = address
        self._routes = routes
        self._clock = clock

    async def run(self) -> None:
        """A port that is taken is tried again: it is no reason not to run pods."""
        while True:
            try:
                listener = take(self._address)
            except ListenError as error:
                logger.error("Failed to start healthz server", extra={"error": str(error)})
                await self._clock.sleep(LISTEN_AGAIN)
                continue
            async with _serving_plainly(listener, self._routes, find_health) as server:
                logger.info("Serving health", extra=_where(listener))
                await _until_cancelled(server)


@asynccontextmanager
async def _serving_plainly(
    listener: socket.socket, routes: Sequence[Routes], find: Callable[[str], Place]
) -> AsyncIterator[asyncio.AbstractServer]:
    """HTTP for everybody; the listener is closed at the end."""
    try:
        application = build_application(routes, gate=None, find=find)
        async with _handlers(application, longest_line=_LONGEST_PLAIN_LINE) as make_handler:
            limits = FrontLimits()
            yield await asyncio.get_running_loop().create_server(
                lambda: Front(make_handler=make_handler, limits=limits), sock=listener, backlog=BACKLOG
            )
    finally:
        listener.close()


@asynccontextmanager
async def _handlers(application: web.Application, *, longest_line: int) -> AsyncIterator[Callable[[], RequestHandler]]:
    """What aiohttp does with the connections; at the end they get a moment, and are then cut."""
    runner = web.AppRunner(
        application,
        access_log=None,
        logger=request_logger(),
        shutdown_timeout=CLOSE_WITHIN,
        handler_cancellation=True,
        keepalive_timeout=IDLE,
        max_line_size=longest_line,
        max_field_size=longest_line,
        max_headers=longest_line,
    )
    await runner.setup()
    assert runner.server is not None
    try:
        yield runner.server
    finally:
        await runner.cleanup()


async def _until_cancelled(server: asyncio.AbstractServer) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        server.close()


def _where(listener: socket.socket) -> dict[str, object]:
    host, port, *_ = listener.getsockname()
    return {"host": host, "port": port}


def _shown(address: Address) -> str:
    return f"[{address.host}]:{address.port}" if ":" in address.host else f"{address.host}:{address.port}"


def _why(error: OSError, address: Address) -> str:
    """What is wrong and what to do about it. The message of the error itself repeats the address."""
    why = error.strerror or str(error)
    if error.errno == errno.EADDRINUSE:
        holder = find_listener(address.port)
        return f"{holder or 'another process'} has the port: stop it, or set another port"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"this machine has no such address ({why.lower()}): set another one"
    return why.lower()

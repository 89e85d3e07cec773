"""Takes in the connections of a listening socket, all that wait at once.

uvloop takes one connection in each turn of the loop. In a flood the others would wait in the kernel, in the order they
came, where no client can be preferred to another.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Final

from klet.aio.clock import Clock

logger = logging.getLogger(__name__)

_AT_ONCE: Final = 32
"""Connections in one turn of the loop."""
_RETRY: Final = timedelta(milliseconds=100)


async def accept_connections(
    listener: socket.socket, make_protocol: Callable[[], asyncio.BaseProtocol], *, clock: Clock
) -> None:
    """Give each connection a protocol, until cancelled. The caller closes the listener."""
    loop = asyncio.get_running_loop()
    listener.settimeout(0)
    is_readable = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        while True:
            loop.add_reader(listener, is_readable.set)
            try:
                await is_readable.wait()
            finally:
                loop.remove_reader(listener)
            is_readable.clear()
            try:
                for connection in _waiting(listener):
                    group.create_task(_connect(connection, make_protocol))
            except OSError as error:
                # No descriptor is left, for instance: that must not end the server.
                logger.warning("Connection not accepted", extra={"error": error.strerror or str(error)})
                await clock.sleep(_RETRY)


def _waiting(listener: socket.socket) -> Iterator[socket.socket]:
    """Yield the connections that wait. Raises OSError."""
    for _ in range(_AT_ONCE):
        try:
            connection, _address = listener.accept()
        except BlockingIOError:
            return
        except ConnectionAbortedError:
            continue
        yield connection


async def _connect(connection: socket.socket, make_protocol: Callable[[], asyncio.BaseProtocol]) -> None:
    try:
        connection.settimeout(0)
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().connect_accepted_socket(make_protocol, connection)
    except OSError as error:
        connection.close()
        logger.debug("Connection lost at once", extra={"error": error.strerror or str(error)})

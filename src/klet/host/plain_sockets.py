"""Plain TCP connections for many short exchanges: one request each, and what the peer answers.

They share one epoll, of which the loop watches only the descriptor, and one timer: cheaper than the loop's transports
and timers. On the network of a pod a connection is usually there as soon as it is asked for, so the request is sent
without waiting for a notification.
"""

import asyncio
import errno
import os
import socket
from select import EPOLLIN, EPOLLOUT, epoll
from typing import Protocol, Self, TypeAlias

SocketAddress: TypeAlias = tuple[str, int]

# Bytes that are read at once: more than any caller keeps of an answer.
_READ = 16 * 1024
# Seconds. A loop may wake that much too early.
_EARLY = 0.001
_BEGUN = frozenset({0, errno.EINPROGRESS})
# Errors that only a connection can have.
_BROKEN = frozenset({errno.ECONNRESET, errno.EPIPE})


class Listener(Protocol):
    """Receives the events of a connection, and aborts it in the end."""

    def data_received(self, data: bytes) -> None: ...

    def eof_received(self) -> None: ...

    def not_connected(self, error: OSError) -> None: ...

    def connection_lost(self, error: OSError) -> None: ...

    def expired(self) -> None: ...


class PlainSockets:
    """The connections of one loop; it ends with its loop."""

    def __init__(self, *, loop: asyncio.AbstractEventLoop, watcher: epoll) -> None:
        self.loop = loop
        self._epoll = watcher
        self._watched: dict[int, PlainSocket] = {}
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    def attach(cls, loop: asyncio.AbstractEventLoop) -> Self:
        """Let the loop watch what is to come."""
        watcher = epoll()
        sockets = cls(loop=loop, watcher=watcher)
        loop.add_reader(watcher.fileno(), sockets.on_ready)
        return sockets

    def on_ready(self) -> None:
        """Handle the connections that have events."""
        for number, _ in self._epoll.poll(0):
            if (connection := self._watched.get(number)) is not None:
                connection.on_ready()

    def watch(self, number: int, connection: "PlainSocket", *, is_sent: bool) -> None:
        events = EPOLLIN if is_sent else EPOLLIN | EPOLLOUT
        if number in self._watched:
            self._epoll.modify(number, events)
            return
        self._epoll.register(number, events)
        self._watched[number] = connection
        deadline = connection.deadline
        if deadline is not None and (self._timer is None or deadline < self._timer.when()):
            self._arm(deadline)

    def forget(self, number: int) -> None:
        if self._watched.pop(number, None) is not None:
            self._epoll.unregister(number)
            if not self._watched:
                self._arm(None)

    def _on_time(self) -> None:
        now = self.loop.time() + _EARLY
        limited = [(each.deadline, each) for each in self._watched.values() if each.deadline is not None]
        for deadline, connection in limited:
            if deadline <= now:
                connection.listener.expired()
        self._arm(min((deadline for deadline, _ in limited if deadline > now), default=None))

    def _arm(self, at: float | None) -> None:
        """Set one timer, for the earliest deadline there was: most connections end long before theirs."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if at is None else self.loop.call_at(at, self._on_time)


class PlainSocket:
    """One connection."""

    __slots__ = ("_is_connected", "_peer", "_socket", "_sockets", "_unsent", "deadline", "listener")

    def __init__(
        self,
        *,
        sockets: PlainSockets,
        made: socket.socket,
        peer: SocketAddress,
        listener: Listener,
        deadline: float | None,
    ) -> None:
        self.listener = listener
        self.deadline = deadline
        self._sockets = sockets
        self._socket = made
        self._peer = peer
        self._unsent = b""
        self._is_connected = False

    def begin(self, request: bytes) -> None:
        """Connect and send; what does not go at once goes later."""
        error = self._socket.connect_ex(self._peer)
        if error not in _BEGUN:
            self.listener.not_connected(OSError(error, os.strerror(error)))
            return
        self._unsent = request
        self._send()

    def abort(self) -> None:
        if (number := self._socket.fileno()) >= 0:
            self._sockets.forget(number)
            self._socket.close()

    def get_extra_info(self, name: str) -> tuple[str, int]:
        """Return what asyncio transports have: `sockname`, `peername`."""
        return self._peer if name == "peername" else self._socket.getsockname()[:2]

    def on_ready(self) -> None:
        if not self._unsent or self._send():
            self._receive()

    def _send(self) -> bool:
        """Say whether it goes on. That something can be sent shows that the connection is there."""
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._fail(error)
            return False
        self._is_connected = self._is_connected or sent > 0
        self._unsent = self._unsent[sent:]
        self._sockets.watch(self._socket.fileno(), self, is_sent=not self._unsent)
        return self._is_connected

    def _receive(self) -> None:
        try:
            data = self._socket.recv(_READ)
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(error)
            return
        if data:
            self.listener.data_received(data)
        else:
            self.listener.eof_received()

    def _fail(self, error: OSError) -> None:
        if self._is_connected or error.errno in _BROKEN:
            self.listener.connection_lost(error)
        else:
            self.listener.not_connected(error)


def make_socket(peer: SocketAddress) -> socket.socket:
    """Return a socket that can be connected to an IP address."""
    family = socket.AF_INET6 if ":" in peer[0] else socket.AF_INET
    return socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)

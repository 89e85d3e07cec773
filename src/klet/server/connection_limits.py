"""Limits for unauthenticated connections: their number, their memory, and their share of the event loop.

A connection no longer counts once its client has a valid certificate or token, and while a request of it is served. At
a limit the address with the most connections loses one: a flood closes its own connections, and a client with a
certificate can still connect.
"""

import asyncio
import socket
from collections import OrderedDict
from collections.abc import Callable
from datetime import timedelta
from enum import StrEnum
from typing import Final

from msgspec import Struct

from klet.aio.clock import Clock

_SLICE: Final = 0.003
"""Seconds of work for unauthenticated clients without a pause."""
_PAUSE: Final = 0.25
"""The pause after a slice, as a share of its work: a fifth of the loop stays free for the rest of the agent."""
_SHORTEST_PAUSE: Final = 0.001
_OTHERS_IN_A_SLICE: Final = 4
"""The most unauthenticated requests started in a slice: serving them goes on outside of it, unmeasured."""
_NETWORK: Final = 8
"""Bytes of an IPv6 address that name its network."""


class UnauthenticatedLimits(Struct, frozen=True, kw_only=True):
    """What all unauthenticated clients of a listener may use together."""

    connections: int = 4096
    """That have sent nothing yet: each costs about 3 KiB."""
    handshakes: int = 128
    """In the middle of the TLS handshake, as those with a certificate are at first: 20 KiB each."""
    sessions: int = 128
    """After the handshake, and without a certificate: 20 KiB each."""
    bytes_kept: int = 2 << 20


class ConnectionStage(StrEnum):
    """How far an unauthenticated connection is."""

    CONNECTED = "connected"
    HANDSHAKE = "handshake"
    SESSION = "session"


class TrackedConnection:
    """One connection of a listener, which counts while its client is unauthenticated."""

    def __init__(self, *, tracker: "UnauthenticatedConnections", address: str, close: Callable[[], None]) -> None:
        self._tracker = tracker
        self.address = address
        self.close = close
        self.bytes_kept = 0
        self.stage = ConnectionStage.CONNECTED
        self.is_waiting = False
        """Whether it waits for the agent, rather than the agent for the client."""
        self._since = tracker.clock.monotonic()
        self._is_authenticated = False
        self._is_closed = False

    @property
    def age(self) -> timedelta:
        """The time since the client connected."""
        return timedelta(seconds=self._tracker.clock.monotonic() - self._since)

    def set_stage(self, stage: ConnectionStage) -> None:
        """Move the connection to a later stage."""
        self._tracker.move(self, stage)

    def set_bytes_kept(self, size: int) -> None:
        """Account for the bytes kept for this connection."""
        self._tracker.set_bytes_kept(self, size)

    def schedule(self, work: Callable[[], None]) -> None:
        """Do work for an unauthenticated client in one of the next time slices."""
        self._tracker.schedule(self, work)

    @property
    def is_unauthenticated(self) -> bool:
        return not self._is_authenticated

    def mark_authenticated(self) -> None:
        """Stop counting the connection: its client is authenticated."""
        self._is_authenticated = True
        self._tracker.untrack(self)

    def start_request(self) -> None:
        """Count only the responses that the client does not read, until `finish_request`: a request is being served."""
        if not self._is_closed:
            self._tracker.start_request(self)

    def finish_request(self) -> None:
        """Count the connection again after its request."""
        if not (self._is_authenticated or self._is_closed):
            self._tracker.track(self)

    def mark_closed(self) -> None:
        """Forget the connection, which is closed."""
        self._is_closed = True
        self._tracker.forget(self)
        self.close = _nothing  # drops the reference cycle, so that memory is freed at once


class UnauthenticatedConnections:
    """Counts the unauthenticated connections of one listener, and closes those beyond the limits."""

    def __init__(self, *, limits: UnauthenticatedLimits, clock: Clock) -> None:
        self.clock = clock
        self._bytes_limit = limits.bytes_kept
        self._slices = TimeSlices(clock=clock)
        self._pools = {
            ConnectionStage.CONNECTED: _Pool(limits.connections),
            ConnectionStage.HANDSHAKE: _Pool(limits.handshakes),
            ConnectionStage.SESSION: _Pool(limits.sessions),
        }
        self._bytes = 0
        self._served: set[TrackedConnection] = set()
        self._served_bytes = 0

    def __len__(self) -> int:
        return sum(pool.count for pool in self._pools.values())

    def add(self, peer: object, close: Callable[[], None]) -> TrackedConnection:
        """Add a new connection. `close` ends it at once."""
        connection = TrackedConnection(tracker=self, address=_group(peer), close=close)
        self.track(connection)
        return connection

    def start_request(self, connection: TrackedConnection) -> None:
        self.untrack(connection)
        if connection.is_unauthenticated:
            self._served.add(connection)
            self._served_bytes += connection.bytes_kept

    def track(self, connection: TrackedConnection) -> None:
        self._stop_serving(connection)
        pool = self._pools[connection.stage]
        if not pool.contains(connection):
            self._bytes += connection.bytes_kept
            pool.add(connection)
            self._close(pool.surplus())

    def untrack(self, connection: TrackedConnection) -> None:
        self._stop_serving(connection)
        pool = self._pools[connection.stage]
        if pool.contains(connection):
            self._bytes -= connection.bytes_kept
            pool.remove(connection)

    def move(self, connection: TrackedConnection, stage: ConnectionStage) -> None:
        is_tracked = self._pools[connection.stage].contains(connection)
        self.untrack(connection)
        connection.stage = stage
        if is_tracked:
            self.track(connection)

    def set_bytes_kept(self, connection: TrackedConnection, size: int) -> None:
        pool = self._pools[connection.stage]
        if pool.contains(connection):
            pool.touch(connection)
            self._bytes += size - connection.bytes_kept
        elif connection in self._served:
            self._served_bytes += size - connection.bytes_kept
        connection.bytes_kept = size
        while self._bytes > self._bytes_limit and _kept(largest := self._largest()):
            self._close(largest)
        # Responses that unauthenticated clients asked for and do not read.
        while self._served_bytes > self._bytes_limit:
            self._close(max(self._served, key=_kept))

    def schedule(self, connection: TrackedConnection, work: Callable[[], None]) -> None:
        self._slices.add(connection, work, is_urgent=connection.stage is not ConnectionStage.SESSION)

    def forget(self, connection: TrackedConnection) -> None:
        """Remove a closed connection from everything."""
        self.untrack(connection)
        self._slices.discard(connection)

    def _stop_serving(self, connection: TrackedConnection) -> None:
        if connection in self._served:
            self._served.remove(connection)
            self._served_bytes -= connection.bytes_kept

    def _largest(self) -> TrackedConnection | None:
        return max((pool.largest() for pool in self._pools.values()), key=_kept)

    def _close(self, connection: TrackedConnection | None) -> None:
        if connection is not None:
            self.untrack(connection)
            connection.close()


class _Pool:
    """The connections of one stage by address, the most recently active last."""

    def __init__(self, limit: int) -> None:
        self.count = 0
        self._limit = limit
        self._connections: dict[str, OrderedDict[TrackedConnection, None]] = {}

    def contains(self, connection: TrackedConnection) -> bool:
        return connection in self._connections.get(connection.address, ())

    def add(self, connection: TrackedConnection) -> None:
        self._connections.setdefault(connection.address, OrderedDict())[connection] = None
        self.count += 1

    def remove(self, connection: TrackedConnection) -> None:
        connections = self._connections[connection.address]
        del connections[connection]
        if not connections:
            del self._connections[connection.address]
        self.count -= 1

    def touch(self, connection: TrackedConnection) -> None:
        self._connections[connection.address].move_to_end(connection)

    def largest(self) -> TrackedConnection | None:
        """Return the connection that holds the most bytes."""
        return max(
            (connection for connections in self._connections.values() for connection in connections),
            key=_kept,
            default=None,
        )

    def surplus(self) -> TrackedConnection | None:
        """Return the connection to close at the limit: of the address with the most, the one inactive for longest.

        A client that waits for the agent is not inactive.
        """
        if self.count <= self._limit:
            return None
        connections = max(self._connections.values(), key=len)
        return next((connection for connection in connections if not connection.is_waiting), next(iter(connections)))


class TimeSlices:
    """Runs work in short slices of time, one address after the other, so that no flood blocks the event loop.

    Handshakes are urgent: one of them may bring a client certificate, the rest cannot. Of one
    address the newest and the oldest alternate: if more arrive than can be served, some are served at once.
    """

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._urgent = _WaitingWork(alternates=True)
        self._others = _WaitingWork(alternates=False)
        self._is_scheduled = False

    def add(self, connection: TrackedConnection, work: Callable[[], None], *, is_urgent: bool) -> None:
        connection.is_waiting = True
        (self._urgent if is_urgent else self._others).add(connection, work)
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def discard(self, connection: TrackedConnection) -> None:
        self._urgent.discard(connection)
        self._others.discard(connection)

    def _run(self) -> None:
        started = self._clock.monotonic()
        others_left = _OTHERS_IN_A_SLICE
        try:
            while self._clock.monotonic() - started < _SLICE:
                work = self._urgent.next()
                if work is None:
                    if not others_left or (work := self._others.next()) is None:
                        break
                    others_left -= 1
                work()
            if others_left == _OTHERS_IN_A_SLICE and (work := self._others.next()) is not None:
                work()  # handshakes took all of the time: the others must not starve
        finally:
            self._is_scheduled = bool(self._urgent or self._others)
            if self._is_scheduled:
                pause = max(_SHORTEST_PAUSE, (self._clock.monotonic() - started) * _PAUSE)
                asyncio.get_running_loop().call_later(pause, self._run)


class _WaitingWork:
    """The work of connections, by address; the addresses take turns."""

    def __init__(self, *, alternates: bool) -> None:
        self._alternates = alternates
        self._is_newest_next = alternates
        self._waiting: OrderedDict[str, OrderedDict[TrackedConnection, Callable[[], None]]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, connection: TrackedConnection, work: Callable[[], None]) -> None:
        self._waiting.setdefault(connection.address, OrderedDict())[connection] = work

    def discard(self, connection: TrackedConnection) -> None:
        works = self._waiting.get(connection.address)
        if works is not None and works.pop(connection, None) is not None and not works:
            del self._waiting[connection.address]

    def next(self) -> Callable[[], None] | None:
        if not self._waiting:
            return None
        address, works = self._waiting.popitem(last=False)
        connection, work = works.popitem(last=self._is_newest_next)
        self._is_newest_next = self._alternates and not self._is_newest_next
        if works:
            self._waiting[address] = works
        connection.is_waiting = False
        return work


def _kept(connection: TrackedConnection | None) -> int:
    return connection.bytes_kept if connection is not None else 0


def _nothing() -> None:
    pass


def _group(peer: object) -> str:
    """Return the client's address, or its /64 network for IPv6, of which one client may use all addresses."""
    host = str(peer[0]).partition("%")[0] if isinstance(peer, tuple) else ""
    if ":" not in host or "." in host:
        return host
    return socket.inet_pton(socket.AF_INET6, host)[:_NETWORK].hex()

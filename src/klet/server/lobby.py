"""Limits for unauthenticated connections: their number, their memory, and their share of the event loop.

A connection leaves the lobby for good once its client has a valid certificate or token, and for as long as a request of
it is served. At a limit the address with the most connections loses one: a flood closes its own connections, and a
client with a certificate still gets in.
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


class LobbyLimits(Struct, frozen=True, kw_only=True):
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


class Visit:
    """One connection, as the lobby counts it."""

    def __init__(self, *, lobby: "Lobby", address: str, close: Callable[[], None]) -> None:
        self._lobby = lobby
        self.address = address
        self.close = close
        self.bytes_kept = 0
        self.stage = ConnectionStage.CONNECTED
        self.is_waiting = False
        """Whether it waits for the agent, rather than the agent for the client."""
        self._since = lobby.clock.monotonic()
        self._is_known = False
        self._is_over = False

    @property
    def age(self) -> timedelta:
        """The time since the client connected."""
        return timedelta(seconds=self._lobby.clock.monotonic() - self._since)

    def reach(self, stage: ConnectionStage) -> None:
        """Move the connection to a later stage."""
        self._lobby.move(self, stage)

    def keep(self, size: int) -> None:
        """Account for the bytes kept for this connection."""
        self._lobby.keep(self, size)

    def soon(self, work: Callable[[], None]) -> None:
        """Do work for an unauthenticated client when its turn comes."""
        self._lobby.soon(self, work)

    @property
    def is_unauthenticated(self) -> bool:
        return not self._is_known

    def vouch(self) -> None:
        """Take the connection out of the lobby for good: its client is authenticated."""
        self._is_known = True
        self._lobby.leave(self)

    def serve(self) -> None:
        """Close the connection only for what it does not read itself, until `rest`: a request of it is served."""
        if not self._is_over:
            self._lobby.serve(self)

    def rest(self) -> None:
        """Count the connection again after its request."""
        if not (self._is_known or self._is_over):
            self._lobby.enter(self)

    def end(self) -> None:
        """Forget the connection, which is closed."""
        self._is_over = True
        self._lobby.forget(self)
        self.close = _nothing  # drops the reference cycle, so that memory is freed at once


class Lobby:
    """The unauthenticated connections of one listener."""

    def __init__(self, *, limits: LobbyLimits, clock: Clock) -> None:
        self.clock = clock
        self._bytes_limit = limits.bytes_kept
        self._slices = Slices(clock=clock)
        self._pools = {
            ConnectionStage.CONNECTED: _Pool(limits.connections),
            ConnectionStage.HANDSHAKE: _Pool(limits.handshakes),
            ConnectionStage.SESSION: _Pool(limits.sessions),
        }
        self._bytes = 0
        self._served: set[Visit] = set()
        self._served_bytes = 0

    def __len__(self) -> int:
        return sum(pool.count for pool in self._pools.values())

    def welcome(self, peer: object, close: Callable[[], None]) -> Visit:
        """Add a new connection. `close` ends it at once."""
        visit = Visit(lobby=self, address=_group(peer), close=close)
        self.enter(visit)
        return visit

    def serve(self, visit: Visit) -> None:
        self.leave(visit)
        if visit.is_unauthenticated:
            self._served.add(visit)
            self._served_bytes += visit.bytes_kept

    def enter(self, visit: Visit) -> None:
        self._stop_serving(visit)
        pool = self._pools[visit.stage]
        if not pool.holds(visit):
            self._bytes += visit.bytes_kept
            pool.add(visit)
            self._push_out(pool.surplus())

    def leave(self, visit: Visit) -> None:
        self._stop_serving(visit)
        pool = self._pools[visit.stage]
        if pool.holds(visit):
            self._bytes -= visit.bytes_kept
            pool.remove(visit)

    def move(self, visit: Visit, stage: ConnectionStage) -> None:
        is_here = self._pools[visit.stage].holds(visit)
        self.leave(visit)
        visit.stage = stage
        if is_here:
            self.enter(visit)

    def keep(self, visit: Visit, size: int) -> None:
        pool = self._pools[visit.stage]
        if pool.holds(visit):
            pool.touch(visit)
            self._bytes += size - visit.bytes_kept
        elif visit in self._served:
            self._served_bytes += size - visit.bytes_kept
        visit.bytes_kept = size
        while self._bytes > self._bytes_limit and _kept(largest := self._largest()):
            self._push_out(largest)
        # Responses that unauthenticated clients asked for and do not read.
        while self._served_bytes > self._bytes_limit:
            self._push_out(max(self._served, key=_kept))

    def soon(self, visit: Visit, work: Callable[[], None]) -> None:
        self._slices.add(visit, work, is_urgent=visit.stage is not ConnectionStage.SESSION)

    def forget(self, visit: Visit) -> None:
        """Remove a closed connection from everything."""
        self.leave(visit)
        self._slices.discard(visit)

    def _stop_serving(self, visit: Visit) -> None:
        if visit in self._served:
            self._served.remove(visit)
            self._served_bytes -= visit.bytes_kept

    def _largest(self) -> Visit | None:
        return max((pool.largest() for pool in self._pools.values()), key=_kept)

    def _push_out(self, visit: Visit | None) -> None:
        if visit is not None:
            self.leave(visit)
            visit.close()


class _Pool:
    """The connections of one stage by address, the most recently active last."""

    def __init__(self, limit: int) -> None:
        self.count = 0
        self._limit = limit
        self._visits: dict[str, OrderedDict[Visit, None]] = {}

    def holds(self, visit: Visit) -> bool:
        return visit in self._visits.get(visit.address, ())

    def add(self, visit: Visit) -> None:
        self._visits.setdefault(visit.address, OrderedDict())[visit] = None
        self.count += 1

    def remove(self, visit: Visit) -> None:
        visits = self._visits[visit.address]
        del visits[visit]
        if not visits:
            del self._visits[visit.address]
        self.count -= 1

    def touch(self, visit: Visit) -> None:
        self._visits[visit.address].move_to_end(visit)

    def largest(self) -> Visit | None:
        """Return the connection that holds the most bytes."""
        return max((visit for visits in self._visits.values() for visit in visits), key=_kept, default=None)

    def surplus(self) -> Visit | None:
        """Return the connection to close at the limit: of the address with the most, the one inactive for longest.

        A client that waits for the agent is not inactive.
        """
        if self.count <= self._limit:
            return None
        visits = max(self._visits.values(), key=len)
        return next((visit for visit in visits if not visit.is_waiting), next(iter(visits)))


class Slices:
    """Does work in short slices, one address after the other, so that no flood holds up the loop.

    Handshakes are urgent: one of them may bring a client certificate, the rest cannot. Of one
    address the newest and the oldest alternate: if more arrive than can be served, some are served at once.
    """

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._urgent = _Turns(alternates=True)
        self._others = _Turns(alternates=False)
        self._is_scheduled = False

    def add(self, visit: Visit, work: Callable[[], None], *, is_urgent: bool) -> None:
        visit.is_waiting = True
        (self._urgent if is_urgent else self._others).add(visit, work)
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def discard(self, visit: Visit) -> None:
        self._urgent.discard(visit)
        self._others.discard(visit)

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


class _Turns:
    """Connections that wait for work, by address."""

    def __init__(self, *, alternates: bool) -> None:
        self._alternates = alternates
        self._is_newest_next = alternates
        self._waiting: OrderedDict[str, OrderedDict[Visit, Callable[[], None]]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, visit: Visit, work: Callable[[], None]) -> None:
        self._waiting.setdefault(visit.address, OrderedDict())[visit] = work

    def discard(self, visit: Visit) -> None:
        works = self._waiting.get(visit.address)
        if works is not None and works.pop(visit, None) is not None and not works:
            del self._waiting[visit.address]

    def next(self) -> Callable[[], None] | None:
        if not self._waiting:
            return None
        address, works = self._waiting.popitem(last=False)
        visit, work = works.popitem(last=self._is_newest_next)
        self._is_newest_next = self._alternates and not self._is_newest_next
        if works:
            self._waiting[address] = works
        visit.is_waiting = False
        return work


def _kept(visit: Visit | None) -> int:
    return visit.bytes_kept if visit is not None else 0


def _nothing() -> None:
    pass


def _group(peer: object) -> str:
    """Return the client's address, or its /64 network for IPv6, of which one client may use all addresses."""
    host = str(peer[0]).partition("%")[0] if isinstance(peer, tuple) else ""
    if ":" not in host or "." in host:
        return host
    return socket.inet_pton(socket.AF_INET6, host)[:_NETWORK].hex()

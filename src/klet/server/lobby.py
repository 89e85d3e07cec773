"""Connections of clients that have not proved who they are: how many, how much memory, how much of the agent's time.

A client leaves the lobby for good when it has shown a certificate or a token that counts, and for the time that a
request of its is served. Where room is needed, the address with the most connections gives it: a flood pushes out
itself, and the client with a certificate gets in behind it.
"""

import asyncio
import socket
from collections import OrderedDict, deque
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from msgspec import Struct

from klet.aio.clock import Clock

_SLICE: Final = 0.004
"""Seconds of work for strangers without a pause."""
_NETWORK: Final = 8
"""Bytes of an IPv6 address that name its network."""


class LobbyLimits(Struct, frozen=True, kw_only=True):
    """What strangers may take of a listener, all together."""

    connections: int = 4096
    sessions: int = 640
    """Connections that have begun TLS: each costs about 20 KiB."""
    bytes_kept: int = 6 << 20


class Visit:
    """One connection's place in the lobby."""

    def __init__(self, *, lobby: "Lobby", address: str, close: Callable[[], None]) -> None:
        self._lobby = lobby
        self.address = address
        self.close = close
        self.bytes_kept = 0
        self.has_session = False
        self.is_waiting = False
        """Whether it waits for work of this side, rather than this side for the client."""
        self._since = lobby.clock.monotonic()
        self._is_known = False
        self._is_over = False

    @property
    def age(self) -> timedelta:
        """The time since the client connected."""
        return timedelta(seconds=self._lobby.clock.monotonic() - self._since)

    def begin_session(self) -> None:
        """From now on the connection has TLS state."""
        self._lobby.begin_session(self)

    def keep(self, size: int) -> None:
        """Account for the bytes kept for this connection."""
        self._lobby.keep(self, size)

    def soon(self, work: Callable[[], None]) -> None:
        """Do something for a stranger when its turn comes."""
        self._lobby.soon(self, work)

    @property
    def is_stranger(self) -> bool:
        return not self._is_known

    def vouch(self) -> None:
        """The client is known: the connection leaves the lobby for good."""
        self._is_known = True
        self._lobby.leave(self)

    def serve(self) -> None:
        """A request has been admitted: until `rest` the connection cannot be pushed out."""
        self._lobby.leave(self)

    def rest(self) -> None:
        """The request has been served."""
        if not (self._is_known or self._is_over):
            self._lobby.enter(self)

    def end(self) -> None:
        """The connection is gone."""
        self._is_over = True
        self._lobby.leave(self)


class Lobby:
    """The strangers of one listener."""

    def __init__(self, *, limits: LobbyLimits, clock: Clock) -> None:
        self.clock = clock
        self._bytes_limit = limits.bytes_kept
        self._slices = Slices(clock=clock)
        self._sockets = _Room(limits.connections)
        self._sessions = _Room(limits.sessions)
        self._bytes = 0

    def __len__(self) -> int:
        return self._sockets.count + self._sessions.count

    def welcome(self, peer: object, close: Callable[[], None]) -> Visit:
        """Take in a new connection. `close` ends it at once."""
        visit = Visit(lobby=self, address=_group(peer), close=close)
        self.enter(visit)
        return visit

    def enter(self, visit: Visit) -> None:
        room = self._room(visit)
        if not room.holds(visit):
            self._bytes += visit.bytes_kept
            room.add(visit)
            self._push_out(room.surplus())

    def leave(self, visit: Visit) -> None:
        room = self._room(visit)
        if room.holds(visit):
            self._bytes -= visit.bytes_kept
            room.remove(visit)

    def begin_session(self, visit: Visit) -> None:
        is_here = self._room(visit).holds(visit)
        self.leave(visit)
        visit.has_session = True
        if is_here:
            self.enter(visit)

    def keep(self, visit: Visit, size: int) -> None:
        room = self._room(visit)
        if room.holds(visit):
            room.touch(visit)
            self._bytes += size - visit.bytes_kept
        visit.bytes_kept = size
        if self._bytes > self._bytes_limit and room.holds(visit):
            self._push_out(visit)

    def soon(self, visit: Visit, work: Callable[[], None]) -> None:
        visit.is_waiting = True

        def take_turn() -> None:
            visit.is_waiting = False
            work()

        self._slices.add(visit.address, take_turn)

    def _room(self, visit: Visit) -> "_Room":
        return self._sessions if visit.has_session else self._sockets

    def _push_out(self, visit: Visit | None) -> None:
        if visit is not None:
            self.leave(visit)
            visit.close()


class _Room:
    """Connections by address, those that were active last at the end."""

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

    def surplus(self) -> Visit | None:
        """The connection that is one too many: of the address that has most, the one that was silent for longest.

        A client that waits for this side is not silent.
        """
        if self.count <= self._limit:
            return None
        visits = max(self._visits.values(), key=len)
        return next((visit for visit in visits if not visit.is_waiting), next(iter(visits)))


class Slices:
    """Does work in short slices, one address after the other, so that no flood holds up the loop."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._waiting: OrderedDict[str, deque[Callable[[], None]]] = OrderedDict()
        self._is_scheduled = False

    def add(self, address: str, work: Callable[[], None]) -> None:
        self._waiting.setdefault(address, deque()).append(work)
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        started = self._clock.monotonic()
        try:
            while self._waiting and self._clock.monotonic() - started < _SLICE:
                self._next()()
        finally:
            self._is_scheduled = bool(self._waiting)
            if self._waiting:
                # As long a pause as the work took: half of the loop is for the rest of the agent.
                asyncio.get_running_loop().call_later(self._clock.monotonic() - started, self._run)

    def _next(self) -> Callable[[], None]:
        address, works = self._waiting.popitem(last=False)
        work = works.popleft()
        if works:
            self._waiting[address] = works
        return work


def _group(peer: object) -> str:
    """The client's address; of IPv6 its network, since one client may use all of the addresses there."""
    host = str(peer[0]).partition("%")[0] if isinstance(peer, tuple) else ""
    if ":" not in host or "." in host:
        return host
    return socket.inet_pton(socket.AF_INET6, host)[:_NETWORK].hex()

"""Connections whose client has shown a certificate: they end with it, and when the authorities change."""

import asyncio
from datetime import timedelta
from typing import Final, Protocol

from klet.aio.clock import Clock
from klet.server.auth.certificates import PresentedCertificate

_LOOK_AGAIN: Final = timedelta(hours=1)
"""The wall clock may be set: no timer is trusted for longer."""


class ClientConnection(Protocol):
    """An open connection."""

    def retire(self) -> None:
        """Serve no further request on it."""
        ...

    def abort(self) -> None:
        """End it at once, whatever it serves."""
        ...


class CertifiedConnections:
    """The open connections of clients with certificates."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._timers: dict[ClientConnection, asyncio.TimerHandle | None] = {}
        self.changes = 0
        """How often the authorities have changed."""

    def __len__(self) -> int:
        return len(self._timers)

    def add(self, connection: ClientConnection, certificate: PresentedCertificate) -> None:
        left = certificate.until - self._clock.now()
        if left <= timedelta(0):
            self._timers[connection] = None
            connection.retire()
            return
        seconds = min(left, _LOOK_AGAIN).total_seconds()
        self._timers[connection] = asyncio.get_running_loop().call_later(seconds, self.add, connection, certificate)

    def discard(self, connection: ClientConnection) -> None:
        if (timer := self._timers.pop(connection, None)) is not None:
            timer.cancel()

    def follow_change(self, *, is_distrust: bool) -> None:
        """End the connections, since other authorities count now.

        Where one is no longer trusted, streams end too: it is unknown which of them depend on it.
        """
        self.changes += 1
        for connection in tuple(self._timers):
            if is_distrust:
                connection.abort()
            else:
                connection.retire()

"""Keeps the board of registration sockets like the registry directory (upstream: the desired state populator)."""

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import timedelta
from typing import Final

from klet.aio.backoff import Backoff
from klet.aio.clock import Clock
from klet.host.errors import HostError
from klet.host.socket_watch import FileIdentity, PathRemoved, SocketChange, SocketSeen, SocketsListed
from klet.plugins.boards import DesiredPlugins

logger = logging.getLogger(__name__)

MOST_SOCKETS: Final = 1000
"""Each is a connection, and a time series; nobody has so many plugins."""
FIRST_RETRY: Final = timedelta(seconds=1)
LONGEST_RETRY: Final = timedelta(seconds=20)


class RegistryWatcher:
    """Follows the sockets of one directory."""

    def __init__(
        self,
        *,
        watch: Callable[[], AsyncGenerator[SocketChange, None]],
        desired: DesiredPlugins,
        clock: Clock,
    ) -> None:
        self._watch = watch
        self._desired = desired
        self._clock = clock
        self._files: dict[str, FileIdentity] = {}

    async def run(self) -> None:
        """Follow until cancelled. A directory that cannot be watched is tried again and again."""
        backoff = Backoff[str](first=FIRST_RETRY, longest=LONGEST_RETRY)
        while True:
            try:
                async with aclosing(self._watch()) as changes:
                    async for change in changes:
                        backoff.reset("")
                        self._apply(change)
            except HostError as error:
                logger.error("Plugins are not watched", extra={"error": str(error)})
            await self._clock.sleep(backoff.next("", now=self._clock.now()))

    def _apply(self, change: SocketChange) -> None:
        match change:
            case SocketSeen():
                self._add(change.path, change.identity)
            case PathRemoved():
                self._remove(change.path)
            case SocketsListed():
                for path in self._files.keys() - change.sockets.keys():
                    self._remove(path)
                for path, identity in change.sockets.items():
                    self._add(path, identity)

    def _add(self, path: str, identity: FileIdentity) -> None:
        if self._files.get(path) == identity:
            return  # seen twice: by a walk, and by its event
        if path not in self._files and len(self._files) >= MOST_SOCKETS:
            logger.warning("Too many plugin sockets", extra={"path": path, "most": MOST_SOCKETS})
            return
        self._files[path] = identity
        self._desired.add(path, now=self._clock.now())

    def _remove(self, path: str) -> None:
        self._files.pop(path, None)
        self._desired.remove(path)

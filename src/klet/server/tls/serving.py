"""The certificate that is served: files, loaded again when they change, or one from the certificate manager."""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from msgspec import Struct

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.errors import KletError
from klet.host.files import read_text
from klet.model.roles import Part
from klet.server.auth.certificates import ClientAuthorities, TrustedSet
from klet.server.reload import follow_files
from klet.server.tls.certified import CertifiedConnections
from klet.server.tls.context import TlsSettings, build_context

logger = logging.getLogger(__name__)

_RETRY: Final = timedelta(seconds=5)


class Serving(Struct, frozen=True):
    """A context for new connections, and the authorities that it checks clients against."""

    context: ssl.SSLContext
    authorities: TrustedSet


class _Pair(Struct, frozen=True):
    certificate_file: Path
    key_file: Path
    content: str
    until: datetime | None


class ServingContext:
    """The TLS context for new connections. None until there is a certificate, and when a requested one has expired."""

    def __init__(
        self, *, settings: TlsSettings, authorities: ClientAuthorities | None, threads: Threads, clock: Clock
    ) -> None:
        self._settings = settings
        self._authorities = authorities
        self._threads = threads
        self._clock = clock
        self._pair: _Pair | None = None
        self._serving: Serving | None = None
        self._turn = asyncio.Lock()
        """Held while a context is built: what was begun earlier must not replace what is newer."""

    def current(self) -> Serving | None:
        # With each connection: an expired one must not be shown until some loop comes round.
        until = self._pair.until if self._pair is not None else None
        return None if until is not None and self._clock.now() > until else self._serving

    async def use(self, certificate_file: Path, key_file: Path, *, until: datetime | None = None) -> None:
        """Serve with this pair from now on, if it is good and differs from the last. Raises TlsError or FileError.

        Without an end it is served for good, as given files are.
        """
        async with self._turn:
            await self._use(certificate_file, key_file, until)

    async def renew(self) -> bool:
        """Check clients against the authorities as they are now. False if that fails: then no client is served."""
        async with self._turn:
            pair = self._pair
            if pair is None:
                return True
            try:
                await self._use(pair.certificate_file, pair.key_file, pair.until)
            except KletError as error:
                self._serving = None
                message = "Nothing is served: the authorities changed and the certificate cannot be loaded"
                logger.error(message, extra={"error": str(error)})
                return False
            return True

    async def _use(self, certificate_file: Path, key_file: Path, until: datetime | None) -> None:
        content = await self._threads.run(_read_pair, certificate_file, key_file)
        trusted = self._trusted()
        serving, pair = self._serving, self._pair
        if serving is not None and pair is not None and (serving.authorities, pair.content) == (trusted, content):
            return
        context = await self._threads.run(
            build_context, self._settings, certificate_file, key_file, authorities=trusted.text
        )
        self._serving = Serving(context, trusted)
        self._pair = _Pair(certificate_file, key_file, content, until)
        logger.info("Serving with a certificate", extra={"file": str(certificate_file)})

    def _trusted(self) -> TrustedSet:
        return self._authorities.current if self._authorities is not None else TrustedSet()


class FollowedAuthorities:
    """Keeps the context and the open connections in step with the authorities of clients."""

    def __init__(
        self,
        *,
        authorities: ClientAuthorities,
        context: ServingContext,
        connections: CertifiedConnections,
        clock: Clock,
    ) -> None:
        self._authorities = authorities
        self._context = context
        self._connections = connections
        self._clock = clock

    async def run(self) -> None:
        with self._authorities.changes() as changes:
            while True:
                is_distrust = await changes.next_item()
                is_served = await self._context.renew()
                self._connections.follow_change(is_distrust=is_distrust)
                while not is_served:
                    await self._clock.sleep(_RETRY)
                    is_served = await self._context.renew()


class FollowedPair:
    """Keeps the context in step with two files."""

    def __init__(self, *, context: ServingContext, certificate_file: Path, key_file: Path, clock: Clock) -> None:
        self._context = context
        self._certificate_file = certificate_file
        self._key_file = key_file
        self._clock = clock

    async def run(self) -> None:
        await follow_files((self._certificate_file, self._key_file), self._look, clock=self._clock)

    async def _look(self) -> None:
        try:
            await self._context.use(self._certificate_file, self._key_file)
        except KletError as error:
            logger.error("The serving certificate stays as it was", extra={"error": str(error)})


class FirstPair:
    """Makes the first certificate while the node starts. Connections that come earlier wait for it."""

    def __init__(self, *, prepare: Callable[[], Awaitable[None]], parts: Sequence[Part]) -> None:
        self._prepare = prepare
        self._parts = parts

    async def run(self) -> None:
        await self._prepare()
        async with asyncio.TaskGroup() as group:
            for part in self._parts:
                group.create_task(part.run(), name=type(part).__name__)


def _read_pair(certificate_file: Path, key_file: Path) -> str:
    return read_text(certificate_file) + read_text(key_file)

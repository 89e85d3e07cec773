"""The certificate that is served: files that are loaded again when they change, or one that somebody hands over."""

import logging
import ssl
from datetime import datetime
from pathlib import Path
from typing import Protocol

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.errors import KletError
from klet.host.files import read_text
from klet.server.reload import follow_files
from klet.server.tls.context import TlsSettings, build_context
from klet.server.tls.openssl import OpenSsl

logger = logging.getLogger(__name__)


class Authorities(Protocol):
    """The authorities of clients, as PEM."""

    @property
    def text(self) -> str: ...


class ServingContext:
    """The TLS context for new connections. None until there is a certificate, and when a requested one has expired."""

    def __init__(
        self,
        *,
        settings: TlsSettings,
        authorities: Authorities | None,
        openssl: OpenSsl | None,
        threads: Threads,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._authorities = authorities
        self._openssl = openssl
        self._threads = threads
        self._clock = clock
        self._until: datetime | None = None
        self._context: ssl.SSLContext | None = None
        self._loaded: tuple[str, str] | None = None

    def current(self) -> ssl.SSLContext | None:
        # With each connection: it must not take a round of some loop until an expired one is no longer shown.
        return None if self._until is not None and self._clock.now() > self._until else self._context

    async def use(self, certificate_file: Path, key_file: Path, *, until: datetime | None = None) -> None:
        """Serve with this pair from now on, if it is good and another one than before. Raises TlsError or FileError.

        Without an end it is served for good, as files are that somebody has put there.
        """
        authorities = self._authorities.text if self._authorities is not None else ""
        content = await self._threads.run(_read_pair, certificate_file, key_file)
        # Only where the handshake itself checks clients does the context depend on their authorities.
        loaded = (content, authorities if self._openssl is None else "")
        if loaded == self._loaded:
            return
        self._context = await self._threads.run(
            build_context,
            self._settings,
            certificate_file,
            key_file,
            authorities=authorities,
            openssl=self._openssl,
        )
        self._loaded, self._until = loaded, until
        logger.info("Serving with a certificate", extra={"file": str(certificate_file)})


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


def _read_pair(certificate_file: Path, key_file: Path) -> str:
    return read_text(certificate_file) + read_text(key_file)

"""Client certificates: the user is the common name, the groups are the organizations."""

import hashlib
import logging
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from klet.aio.broadcast import Broadcast, Subscription
from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.errors import KletError
from klet.host.errors import FileError
from klet.host.files import read_text
from klet.server.auth.identity import Rejected, User, Verdict
from klet.server.reload import follow_files

logger = logging.getLogger(__name__)

_CREDENTIAL_ID: Final = "authentication.kubernetes.io/credential-id"
_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----"


class AuthoritiesError(KletError):
    """A file of certificate authorities that cannot be used."""


class TrustedSet(Struct, frozen=True):
    """Certificate authorities as PEM: those of a file at one time."""

    text: str = ""


class PresentedCertificate(Struct, frozen=True, kw_only=True):
    """A certificate that a client has shown and the handshake has checked."""

    common_names: tuple[str, ...]
    organizations: tuple[str, ...]
    fingerprint: str
    until: datetime
    authorities: TrustedSet
    """Those that it was checked against."""


class ClientAuthorities:
    """The authorities in `clientCAFile`, as they are now. Written by its own loop."""

    def __init__(self, *, file: Path, threads: Threads, clock: Clock) -> None:
        self._file = file
        self._threads = threads
        self._clock = clock
        self._text = ""
        self._certificates: tuple[str, ...] = ()
        self._current = TrustedSet()
        self._changes = Broadcast[bool]()

    @property
    def current(self) -> TrustedSet:
        return self._current

    def changes(self) -> Subscription[bool]:
        """Subscribe to changes: whether one of the authorities is no longer trusted."""
        return self._changes.subscribe()

    async def load(self) -> None:
        """Read the file for the first time. Raises AuthoritiesError."""
        await self._read()

    async def run(self) -> None:
        await follow_files((self._file,), self._look, clock=self._clock)

    async def _look(self) -> None:
        try:
            await self._read()
        except AuthoritiesError as error:
            logger.error("The authorities of clients stay as they were", extra={"error": str(error)})

    async def _read(self) -> None:
        try:
            text = await self._threads.run(read_text, self._file)
        except FileError as error:
            raise AuthoritiesError(f"authentication.x509.clientCAFile: {error}") from error
        if text == self._text:
            return
        certificates = read_authorities(text)
        if not certificates:
            raise AuthoritiesError(
                f"authentication.x509.clientCAFile: {self._file} holds no PEM certificate; put the authority's there"
            )
        self._text = text
        trusted = TrustedSet("\n".join(certificates))
        if trusted != self._current:
            is_distrust = bool(set(self._certificates).difference(certificates))
            self._current, self._certificates = trusted, certificates
            self._changes.send(is_distrust)
        extra = {"file": str(self._file), "authorities": len(certificates)}
        logger.info("Client certificates are checked", extra=extra)


class CertificateAuthenticator:
    """Knows users by the certificates that the handshake has checked."""

    def __init__(self, *, authorities: ClientAuthorities, clock: Clock) -> None:
        self._authorities = authorities
        self._clock = clock

    def authenticate(self, shown: PresentedCertificate | Rejected | None) -> Verdict:
        """Authenticate. A connection may be older than a change of the authorities, or outlive the certificate."""
        if shown is None or isinstance(shown, Rejected):
            return shown
        if shown.authorities != self._authorities.current:
            return Rejected("the authorities of clients have changed since the client connected")
        if self._clock.now() >= shown.until:
            return Rejected("the certificate has expired")
        return _user_of(shown)


def read_authorities(text: str) -> tuple[str, ...]:
    """Return the certificates of a PEM text, each once; what is none is passed over."""
    found: dict[str, None] = {}
    for block in text.split(_BEGIN)[1:]:
        body, ending, _ = block.partition(_END)
        if not ending:
            continue
        try:
            pem = ssl.DER_cert_to_PEM_cert(ssl.PEM_cert_to_DER_cert(f"{_BEGIN}{body}{_END}"))
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=pem)
        except (ValueError, ssl.SSLError):
            continue
        found[pem] = None
    return tuple(found)


def read_presented(tls: ssl.SSLObject, authorities: TrustedSet) -> PresentedCertificate | Rejected | None:
    """Return what the client of a connection has shown in the handshake."""
    if (leaf := tls.getpeercert(binary_form=True)) is None:
        return None
    try:
        facts: dict[str, Any] = tls.getpeercert() or {}
        until = datetime.fromtimestamp(ssl.cert_time_to_seconds(facts["notAfter"]), UTC)
    except (KeyError, ValueError, OverflowError, OSError) as error:
        return Rejected(f"the certificate cannot be read: {type(error).__name__}")
    parts = [pair for entry in facts.get("subject", ()) for pair in entry]
    return PresentedCertificate(
        common_names=tuple(value for name, value in parts if name == "commonName"),
        organizations=tuple(value for name, value in parts if name == "organizationName"),
        fingerprint=hashlib.sha256(leaf).hexdigest(),
        until=until,
        authorities=authorities,
    )


def _user_of(shown: PresentedCertificate) -> User | None:
    if not shown.common_names:
        return None
    # Where a subject has several common names the last one counts, as in Go.
    extra = {_CREDENTIAL_ID: (f"X509SHA256={shown.fingerprint}",)}
    return User(shown.common_names[-1], groups=shown.organizations, extra=extra)

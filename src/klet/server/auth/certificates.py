"""Client certificates: the user is the common name, the groups are the organizations."""

import hashlib
import logging
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, Protocol

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.errors import KletError
from klet.host.errors import FileError
from klet.host.files import read_text
from klet.server.auth.cache import TimedCache
from klet.server.auth.identity import Rejected, User, Verdict
from klet.server.reload import follow_files

logger = logging.getLogger(__name__)

_CREDENTIAL_ID: Final = "authentication.kubernetes.io/credential-id"
_KEEP_JUDGEMENT: Final = timedelta(seconds=10)
_KEPT_JUDGEMENTS: Final = 256


class AuthoritiesError(KletError):
    """A file of certificate authorities that cannot be used."""


@dataclass(frozen=True, slots=True)
class PresentedCertificate:
    """What a client showed: its chain in DER, the leaf first, and the names of the leaf."""

    chain: tuple[bytes, ...]
    common_names: tuple[str, ...]
    organizations: tuple[str, ...]


class Judge(Protocol):
    """Checks a chain against authorities."""

    def judge(self, chain: Sequence[bytes], authorities: Sequence[bytes], *, now: datetime) -> str | None: ...


class ClientAuthorities:
    """The authorities in `clientCAFile`, as they are now. Written by its own loop."""

    def __init__(self, *, file: Path, threads: Threads, clock: Clock) -> None:
        self._file = file
        self._threads = threads
        self._clock = clock
        self._text = ""
        self._certificates: tuple[bytes, ...] = ()

    @property
    def certificates(self) -> tuple[bytes, ...]:
        return self._certificates

    @property
    def text(self) -> str:
        return self._text

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
        self._text, self._certificates = text, certificates
        logger.info(
            "Client certificates are checked", extra={"file": str(self._file), "authorities": len(certificates)}
        )


class CertificateAuthenticator:
    """Knows users by the certificates they have shown."""

    def __init__(self, *, authorities: ClientAuthorities, judge: Judge | None, clock: Clock) -> None:
        self._authorities = authorities
        self._judge = judge
        self._clock = clock
        # A judgement takes a millisecond or two, and a client asks often.
        self._judged: TimedCache[tuple[object, ...], Rejected | str] = TimedCache(clock=clock, limit=_KEPT_JUDGEMENTS)

    def authenticate(self, shown: PresentedCertificate | None) -> Verdict:
        """Without a judge the handshake has checked the certificate."""
        if shown is None:
            return None
        key = (shown.chain, self._authorities.certificates)
        verdict = self._judged.get(key)
        if verdict is None:
            why = self._why_not(shown)
            verdict = "" if why is None else Rejected(why)
            self._judged.put(key, verdict, keep=_KEEP_JUDGEMENT)
        return verdict if isinstance(verdict, Rejected) else _user_of(shown)

    def _why_not(self, shown: PresentedCertificate) -> str | None:
        if self._judge is None:
            return None
        return self._judge.judge(shown.chain, self._authorities.certificates, now=self._clock.now())


def read_authorities(text: str) -> tuple[bytes, ...]:
    """The certificates of a PEM text in DER; what is none is passed over."""
    found = []
    for block in text.split("-----BEGIN CERTIFICATE-----")[1:]:
        body, ending, _ = block.partition("-----END CERTIFICATE-----")
        if ending:
            pem = f"-----BEGIN CERTIFICATE-----{body}-----END CERTIFICATE-----"
            try:
                found.append(ssl.PEM_cert_to_DER_cert(pem))
            except ValueError:
                continue
    return tuple(found)


def read_presented(tls: ssl.SSLObject | None) -> PresentedCertificate | Rejected | None:
    """What the client of a connection has shown."""
    if tls is None or (leaf := tls.getpeercert(binary_form=True)) is None:
        return None
    try:
        facts: dict[str, Any] = tls.getpeercert() or {}
    except (ValueError, ssl.SSLError) as error:
        return Rejected(f"the certificate cannot be read: {error}")
    parts = [pair for entry in facts.get("subject", ()) for pair in entry]
    return PresentedCertificate(
        chain=_chain(tls) or (leaf,),
        common_names=tuple(value for name, value in parts if name == "commonName"),
        organizations=tuple(value for name, value in parts if name == "organizationName"),
    )


def _chain(tls: ssl.SSLObject) -> tuple[bytes, ...]:
    """The leaf and what came with it. Python before 3.13 has no public name for that."""
    if hasattr(tls, "get_unverified_chain"):
        return tuple(tls.get_unverified_chain())
    certificates = tls._sslobj.get_unverified_chain()  # type: ignore[attr-defined]  # noqa: SLF001 - see above
    return tuple(ssl.PEM_cert_to_DER_cert(each.public_bytes()) for each in certificates or ())


def _user_of(shown: PresentedCertificate) -> User | None:
    if not shown.common_names:
        return None
    fingerprint = hashlib.sha256(shown.chain[0]).hexdigest()
    # Where a subject has several common names the last one counts, as in Go.
    extra = {_CREDENTIAL_ID: (f"X509SHA256={fingerprint}",)}
    return User(shown.common_names[-1], groups=shown.organizations, extra=extra)

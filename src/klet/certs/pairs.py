"""A certificate and its key as files, checked with the machine's own TLS library. Everything here blocks."""

import ssl
from pathlib import Path
from typing import Final

from msgspec import Struct

from klet.certs.errors import PairDamaged, PairError
from klet.certs.pem import certificate_blocks, is_encrypted, key_block
from klet.host.errors import FileError
from klet.host.files import read_text

_MISMATCH: Final = "KEY_VALUES_MISMATCH"


class CertificatePair(Struct, frozen=True, kw_only=True):
    """A pair that TLS can use. The key stays in its file."""

    certificate_file: Path
    key_file: Path
    certificate: str
    """The PEM certificates, the leaf first: compared to see a change, and given to `describe`."""


def load_pair(certificate_file: Path, key_file: Path) -> CertificatePair:
    """Read a pair and prove that the key belongs to the first certificate. Raises PairError or PairDamaged."""
    try:
        blocks = certificate_blocks(read_text(certificate_file))
        key = key_block(read_text(key_file))
    except FileError as error:
        raise PairError(str(error)) from error
    if not blocks:
        raise PairDamaged(certificate_file, "holds no PEM certificate")
    if not key:
        raise PairDamaged(key_file, "holds no PEM private key")
    if is_encrypted(key):
        raise PairDamaged(key_file, "the key is encrypted; klet needs one without a password")
    _check(certificate_file, key_file)
    return CertificatePair(certificate_file=certificate_file, key_file=key_file, certificate="".join(blocks))


def _check(certificate_file: Path, key_file: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # The empty password keeps OpenSSL from asking for one on the terminal.
        context.load_cert_chain(certificate_file, key_file, password="")
    except ssl.SSLError as error:
        is_one_file = certificate_file == key_file
        if error.reason == _MISMATCH:
            whose = "its certificate" if is_one_file else f"the certificate in {certificate_file}"
            raise PairDamaged(key_file, f"the key does not belong to {whose}") from error
        what = "the certificate or its key" if is_one_file else f"the certificate, or its key in {key_file},"
        raise PairDamaged(certificate_file, f"{what} cannot be used: {error.reason or 'damaged PEM'}") from error
    except OSError as error:
        raise PairError(f"cannot read {certificate_file} or {key_file}: {error.strerror}") from error

"""Keys and certificates from PEM text and files; what breaks a rule raises Refused with that rule."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias, TypeVar

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from klet.certs.messages import KeyAlgorithm, RefusalReason
from klet.certs.pem import certificate_blocks, is_encrypted, key_block
from klet.errors import KletError

SigningKey: TypeAlias = RSAPrivateKey | EllipticCurvePrivateKey

T = TypeVar("T")


class Refused(KletError):
    """The request breaks a rule."""

    def __init__(self, reason: RefusalReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def load_certificates(text: str, *, where: str) -> list[x509.Certificate]:
    """Return every certificate of a text, at least one."""
    blocks = certificate_blocks(text)
    if not blocks:
        raise Refused(RefusalReason.DAMAGED, f"{where}: holds no PEM certificate")
    return parse(where, "certificate", lambda: x509.load_pem_x509_certificates("".join(blocks).encode()))


def load_signing_key(text: str, *, where: str) -> SigningKey:
    """Return the private key of a text, of a kind that Kubernetes signs with."""
    key = load_key(text, where=where)
    if not isinstance(key, SigningKey):
        raise Refused(RefusalReason.BAD_VALUE, f"{where}: the key must be RSA or ECDSA")
    return key


def load_key(text: str, *, where: str) -> PrivateKeyTypes:
    """Return the private key of a text, of any kind."""
    block = key_block(text)
    if not block:
        raise Refused(RefusalReason.DAMAGED, f"{where}: holds no PEM private key")
    if is_encrypted(block):
        raise Refused(RefusalReason.BAD_VALUE, f"{where}: the key is encrypted; give one without a password")
    return parse(where, "private key", lambda: load_pem_private_key(block.encode(), None))


def read_file(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace")
    except OSError as error:
        said = os.strerror(error.errno) if error.errno is not None else str(error)
        raise Refused(RefusalReason.UNREADABLE_FILE, f"cannot read {path}: {said}") from error


def key_algorithm(key: PublicKeyTypes) -> KeyAlgorithm:
    if isinstance(key, EllipticCurvePublicKey):
        return KeyAlgorithm.ECDSA
    return KeyAlgorithm.RSA if isinstance(key, RSAPublicKey) else KeyAlgorithm.OTHER


def public_bytes(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def belongs_to(key: PrivateKeyTypes, certificate: x509.Certificate) -> bool:
    return public_bytes(key.public_key()) == public_bytes(certificate.public_key())


def parse(where: str, what: str, load: Callable[[], T]) -> T:
    """Return what the library reads, or a refusal in klet's words."""
    try:
        return load()
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise Refused(RefusalReason.DAMAGED, f"{where}: the {what} is damaged: {error}") from error

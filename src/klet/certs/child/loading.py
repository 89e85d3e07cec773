"""Keys and certificates from PEM text and files, and the facts of a certificate.

What breaks a rule raises Refused with that rule.
"""

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
from cryptography.x509.oid import NameOID, ObjectIdentifier

from klet.certs.messages import CertificateFacts, Describe, KeyAlgorithm, RefusalReason
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


def describe(request: Describe) -> CertificateFacts:
    chain = load_certificates(request.certificate, where="certificate")
    leaf = chain[0]
    names = _alternative_names(leaf)
    return CertificateFacts(
        common_name=_last(leaf.subject, NameOID.COMMON_NAME),
        organizations=_values(leaf.subject, NameOID.ORGANIZATION_NAME),
        issuer=_last(leaf.issuer, NameOID.COMMON_NAME),
        not_before=leaf.not_valid_before_utc,
        not_after=leaf.not_valid_after_utc,
        chain_not_after=min(each.not_valid_after_utc for each in chain),
        dns_names=tuple(names.get_values_for_type(x509.DNSName)) if names else (),
        ips=tuple(str(ip) for ip in names.get_values_for_type(x509.IPAddress)) if names else (),
        is_authority=is_authority(leaf),
        key_algorithm=key_algorithm(leaf.public_key()),
        key_matches=belongs_to(load_key(request.key, where="key"), leaf) if request.key else None,
    )


def is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _alternative_names(certificate: x509.Certificate) -> x509.SubjectAlternativeName | None:
    try:
        return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None


def _last(name: x509.Name, kind: ObjectIdentifier) -> str:
    """Return the last of several common names, as Go does."""
    return next(reversed(_values(name, kind)), "")


def _values(name: x509.Name, kind: ObjectIdentifier) -> tuple[str, ...]:
    return tuple(str(attribute.value) for attribute in name.get_attributes_for_oid(kind))

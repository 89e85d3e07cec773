"""Requests to the certificate child and its answers: one JSON document each way.

Keys travel on the pipes only; a `repr` never shows them.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeAlias

import msgspec

REQUEST_LIMIT = 1 << 20
ANSWER_LIMIT = 1 << 20


class Purpose(StrEnum):
    """What a certificate proves: that one is the right server, or the right client."""

    SERVER = "server"
    CLIENT = "client"


class KeyAlgorithm(StrEnum):
    ECDSA = "ecdsa"
    RSA = "rsa"
    OTHER = "other"


class RefusalReason(StrEnum):
    """Why the child did not do it."""

    BAD_REQUEST = "badRequest"
    BAD_VALUE = "badValue"
    UNREADABLE_FILE = "unreadableFile"
    DAMAGED = "damaged"
    MISMATCH = "mismatch"
    EXPIRED = "expired"


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """Whom a certificate names. Addresses are in their canonical form."""

    common_name: str
    organizations: tuple[str, ...] = ()
    dns_names: tuple[str, ...] = ()
    ips: tuple[str, ...] = ()


class _Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", forbid_unknown_fields=True):
    """One document on a pipe."""


class MakeSelfSigned(_Message, frozen=True, kw_only=True, tag="selfSigned"):
    """A serving pair signed by an authority whose key is thrown away."""

    host: str
    dns_names: tuple[str, ...] = ()
    ips: tuple[str, ...] = ()
    now: datetime


class MakeSigningRequest(_Message, frozen=True, kw_only=True, tag="signingRequest"):
    """A signing request, with a new key or with the PEM key given."""

    template: Template
    key: str = ""

    def __repr__(self) -> str:
        return f"MakeSigningRequest(template={self.template!r})"


class MakeAuthority(_Message, frozen=True, kw_only=True, tag="authority"):
    common_name: str
    lifetime: timedelta
    now: datetime


class SignLeaf(_Message, frozen=True, kw_only=True, tag="leaf"):
    """A pair signed by the authority in the files, so that the agent never holds the authority's key."""

    authority_certificate_file: str
    authority_key_file: str
    template: Template
    purpose: Purpose
    lifetime: timedelta
    now: datetime


class SignRequest(_Message, frozen=True, kw_only=True, tag="sign"):
    """A certificate for the signing request of a node, by the rules that clusters have for them."""

    authority_certificate_file: str
    authority_key_file: str
    request: str
    purpose: Purpose
    lifetime: timedelta
    now: datetime


class Describe(_Message, frozen=True, kw_only=True, tag="describe"):
    """The facts of a PEM certificate, the first one if there are several, and whether a key belongs to it."""

    certificate: str
    key: str = ""

    def __repr__(self) -> str:
        return "Describe()"


class MakePodKey(_Message, frozen=True, kw_only=True, tag="podKey"):
    """A key for a pod, of a type that Kubernetes names, and a signature that proves that we have it."""

    key_type: str
    proof_of: bytes


Request: TypeAlias = (
    MakeSelfSigned | MakeSigningRequest | MakeAuthority | SignLeaf | SignRequest | Describe | MakePodKey
)


class Pair(_Message, frozen=True, kw_only=True, tag="pair"):
    """A certificate, with those that it is signed by where that is asked for, and its key. Both are PEM."""

    certificate: str
    key: str

    def __repr__(self) -> str:
        return "Pair()"


class Signed(_Message, frozen=True, kw_only=True, tag="signed"):
    """A PEM certificate for a key that is not ours."""

    certificate: str


class KeyAndRequest(_Message, frozen=True, kw_only=True, tag="keyAndRequest"):
    """A PEM signing request, the key that signed it, and the DER public key (SubjectPublicKeyInfo)."""

    request: str
    key: str
    key_algorithm: KeyAlgorithm
    public_key: bytes

    def __repr__(self) -> str:
        return f"KeyAndRequest(key_algorithm={self.key_algorithm!r})"


class PodCertificateKey(_Message, frozen=True, kw_only=True, tag="podKeyMade"):
    """A PEM key (PKCS #8), its DER public key (SubjectPublicKeyInfo) and the signature."""

    key: str
    public_key: bytes
    proof: bytes

    def __repr__(self) -> str:
        return "PodCertificateKey()"


class CertificateFacts(_Message, frozen=True, kw_only=True, tag="facts"):
    """The contents of a certificate."""

    common_name: str = ""
    organizations: tuple[str, ...] = ()
    issuer: str = ""
    not_before: datetime
    not_after: datetime
    chain_not_after: datetime
    """The earliest end of all certificates in the text."""
    dns_names: tuple[str, ...] = ()
    ips: tuple[str, ...] = ()
    is_authority: bool = False
    key_algorithm: KeyAlgorithm
    key_matches: bool | None = None
    """Whether the key that was given belongs to it; None if none was given."""


class ChildRefusal(_Message, frozen=True, kw_only=True, tag="refusal"):
    reason: RefusalReason
    message: str


Answer: TypeAlias = Pair | Signed | KeyAndRequest | PodCertificateKey | CertificateFacts | ChildRefusal

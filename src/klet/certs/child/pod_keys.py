"""Makes the keys of pods, and signs with them what proves that their owner has them (upstream: generateKeyAndProof)."""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    SECP384R1,
    SECP521R1,
    EllipticCurvePrivateKey,
)
from cryptography.hazmat.primitives.asymmetric.ec import generate_private_key as generate_ec_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as generate_rsa_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from klet.certs.child.loading import Refused, public_bytes
from klet.certs.messages import MakePodKey, PodCertificateKey, RefusalReason

_RSA_EXPONENT: Final = 65537
_Key: TypeAlias = RSAPrivateKey | EllipticCurvePrivateKey | Ed25519PrivateKey

_TYPES: Final[Mapping[str, Callable[[], _Key]]] = {
    "RSA3072": lambda: generate_rsa_key(_RSA_EXPONENT, 3072),
    "RSA4096": lambda: generate_rsa_key(_RSA_EXPONENT, 4096),
    "ECDSAP256": lambda: generate_ec_key(SECP256R1()),
    "ECDSAP384": lambda: generate_ec_key(SECP384R1()),
    "ECDSAP521": lambda: generate_ec_key(SECP521R1()),
    "ED25519": Ed25519PrivateKey.generate,
}


def make_pod_key(request: MakePodKey) -> PodCertificateKey:
    make = _TYPES.get(request.key_type)
    if make is None:
        raise Refused(RefusalReason.BAD_VALUE, f'unknown key type "{request.key_type}"')
    key = make()
    return PodCertificateKey(
        key=key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
        public_key=public_bytes(key.public_key()),
        proof=_sign(key, request.proof_of),
    )


def _sign(key: _Key, content: bytes) -> bytes:
    """Sign as the API server verifies it: SHA-256 with every curve, and PSS with the longest salt."""
    if isinstance(key, RSAPrivateKey):
        return key.sign(content, PSS(mgf=MGF1(SHA256()), salt_length=PSS.MAX_LENGTH), SHA256())
    if isinstance(key, EllipticCurvePrivateKey):
        return key.sign(content, ECDSA(SHA256()))
    return key.sign(content)

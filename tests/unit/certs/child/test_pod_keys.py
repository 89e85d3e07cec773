"""Keys of pods: their types, their text, and the proof that somebody has them."""

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from klet.api.certificates import PodCertificateRequest, PodCertificateRequestSpec
from klet.certs.child.loading import Refused, public_bytes
from klet.certs.child.pod_keys import make_pod_key
from klet.certs.messages import MakePodKey
from klet.testing.pod_signer import check_proof

UID = "1f9c0d5e-0000-4000-8000-000000000001"


@pytest.mark.parametrize(
    ("key_type", "cls", "bits"),
    [
        pytest.param("RSA3072", RSAPrivateKey, 3072, id="RSA"),
        pytest.param("RSA4096", RSAPrivateKey, 4096, id="a long RSA key"),
        pytest.param("ECDSAP256", EllipticCurvePrivateKey, 256, id="P-256"),
        pytest.param("ECDSAP384", EllipticCurvePrivateKey, 384, id="P-384"),
        pytest.param("ECDSAP521", EllipticCurvePrivateKey, 521, id="P-521"),
        pytest.param("ED25519", Ed25519PrivateKey, None, id="Ed25519"),
    ],
)
def test_every_type_of_key(key_type, cls, bits):
    made = make_pod_key(MakePodKey(key_type=key_type, proof_of=UID.encode()))
    assert made.key.startswith("-----BEGIN PRIVATE KEY-----\n")  # PKCS #8, whatever the type
    key = load_pem_private_key(made.key.encode(), None)
    assert isinstance(key, cls)
    assert getattr(key, "key_size", None) == bits
    assert public_bytes(key.public_key()) == made.public_key
    spec = PodCertificateRequestSpec(pod_uid=UID, pkix_public_key=made.public_key, proof_of_possession=made.proof)
    check_proof(PodCertificateRequest(spec=spec))


@pytest.mark.parametrize("key_type", ["", "RSA2048", "ed25519"])
def test_a_type_that_does_not_exist(key_type):
    with pytest.raises(Refused, match=f'unknown key type "{key_type}"'):
        make_pod_key(MakePodKey(key_type=key_type, proof_of=b"x"))


def test_a_key_is_not_shown():
    made = make_pod_key(MakePodKey(key_type="ED25519", proof_of=b"x"))
    assert repr(made) == "PodCertificateKey()"

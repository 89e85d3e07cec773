from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from klet.certs.child.loading import Refused, describe
from klet.certs.messages import Describe, KeyAlgorithm, RefusalReason

NOW = datetime(2030, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def test_the_first_certificate_counts(new_pair):
    text = new_pair("first").certificate + new_pair("second").certificate
    assert describe(Describe(certificate=text)).common_name == "first"


def test_the_earliest_end_of_all_is_reported(new_pair):
    text = new_pair("long").certificate + new_pair("short", lifetime=DAY).certificate
    facts = describe(Describe(certificate=text))
    assert (facts.not_after, facts.chain_not_after) == (NOW + 365 * DAY, NOW + DAY)


def test_a_file_with_both_can_be_given_twice(pair):
    text = pair.certificate + pair.key
    assert describe(Describe(certificate=text, key=text)).key_matches is True


def test_a_key_that_does_not_belong_to_the_certificate_is_reported(pair, other_key):
    assert describe(Describe(certificate=pair.certificate, key=other_key)).key_matches is False


def test_no_key_is_no_answer(pair):
    assert describe(Describe(certificate=pair.certificate)).key_matches is None


def test_names_and_keys_that_klet_does_not_make():
    key = Ed25519PrivateKey.generate()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text) for text in ("one", "two")])
    builder = x509.CertificateBuilder(x509.Name([]), name, key.public_key(), 7, NOW, NOW + DAY)
    names = x509.SubjectAlternativeName([x509.RFC822Name("a@b"), x509.DNSName("d")])
    certificate = builder.add_extension(names, critical=False).sign(key, None).public_bytes(Encoding.PEM).decode()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    facts = describe(Describe(certificate=certificate, key=pem))
    assert (facts.common_name, facts.issuer, facts.dns_names) == ("two", "", ("d",))
    assert (facts.key_algorithm, facts.key_matches, facts.is_authority) == (KeyAlgorithm.OTHER, True, False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "certificate: holds no PEM certificate", id="nothing"),
        pytest.param(
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "certificate: the certificate is damaged",
            id="damaged",
        ),
    ],
)
def test_what_is_no_certificate_is_refused(text, message):
    with pytest.raises(Refused, match=message) as caught:
        describe(Describe(certificate=text))
    assert caught.value.reason is RefusalReason.DAMAGED

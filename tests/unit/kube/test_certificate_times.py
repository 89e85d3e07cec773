"""The times of certificates, read without a library."""

import base64
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from klet.kube.certificate_times import ValidityTimes, read_validity

KEY = ec.generate_private_key(ec.SECP256R1())
NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "n" * 64)])


def certificate(begins, ends):
    made = x509.CertificateBuilder(NAME, NAME, KEY.public_key(), x509.random_serial_number(), begins, ends)
    return made.sign(KEY, SHA256()).public_bytes(Encoding.PEM).decode()


def at(year, month=2, day=28):
    return datetime(year, month, day, 23, 59, 58, tzinfo=UTC)


@pytest.mark.parametrize(
    ("begins", "ends"),
    [
        pytest.param(at(2026), at(2027), id="two digits of the year"),
        pytest.param(at(2049), at(2050), id="four digits from 2050 on"),
        pytest.param(at(1950), at(1968), id="two digits that Python takes for years to come"),
        pytest.param(at(2026), at(9999), id="no end"),
    ],
)
def test_the_times_of_the_first_certificate(begins, ends):
    text = f"a comment\n{certificate(begins, ends)}{certificate(at(2000), at(2001))}"
    assert read_validity(text) == ValidityTimes(begins, ends)


def pem(content):
    return f"-----BEGIN CERTIFICATE-----\n{base64.b64encode(content).decode()}\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nothing",
        pem(b""),
        pem(b"\x30"),
        pem(b"\x30\x80"),
        pem(b"\x30\x84\xff\xff\xff\xff"),
        pem(b"\x30\x02\x30\x00"),
    ],
)
def test_what_is_no_certificate_has_no_times(text):
    assert read_validity(text) is None


def test_no_certificate_that_is_cut_or_changed_is_an_error():
    whole = base64.b64decode("".join(certificate(at(2026), at(2027)).splitlines()[1:-1]))
    for end in range(len(whole)):
        assert read_validity(pem(whole[:end])) is None
        read_validity(pem(whole[:end] + bytes([whole[end] ^ 0xFF]) + whole[end + 1 :]))

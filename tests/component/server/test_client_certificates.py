"""Chains of client certificates, judged by OpenSSL itself, and by the handshake where that is not to be had."""

import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from klet.aio.clock import SystemClock
from klet.aio.threads import Threads
from klet.server.auth.certificates import read_authorities
from klet.server.tls.context import TlsSettings
from klet.server.tls.openssl import find_openssl
from klet.server.tls.serving import ServingContext

NOW = datetime.now(UTC)


class Maker:
    """Makes chains as odd as a test wants them."""

    def __init__(self):
        self.key = ec.generate_private_key(ec.SECP256R1())

    def make(self, name, *, issuer, is_authority, usage=None, days=1):
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW - timedelta(days=1))
            .not_valid_after(NOW + timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )
        if usage is not None:
            builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        return builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


@pytest.fixture(scope="module")
def maker():
    return Maker()


@pytest.fixture
def chain(maker):
    root = maker.make("root", issuer="root", is_authority=True)
    middle = maker.make("middle", issuer="root", is_authority=True)
    leaf = maker.make("jane", issuer="middle", is_authority=False, usage=ExtendedKeyUsageOID.CLIENT_AUTH)
    return leaf, middle, root


def test_intermediates_come_with_the_client(chain):
    leaf, middle, root = chain
    openssl = find_openssl()
    assert openssl.judge([leaf, middle], [root], now=NOW) is None
    assert openssl.judge([leaf], [root, middle], now=NOW) is None
    assert openssl.judge([leaf], [root], now=NOW) == "unable to get local issuer certificate"
    assert openssl.judge([leaf, middle], [], now=NOW) == "unable to get local issuer certificate"


def test_times_are_those_of_the_request(chain):
    leaf, middle, root = chain
    openssl = find_openssl()
    assert openssl.judge([leaf, middle], [root], now=NOW + timedelta(days=2)) == "certificate has expired"
    assert openssl.judge([leaf, middle], [root], now=NOW - timedelta(days=2)) == "certificate is not yet valid"


def test_a_certificate_for_servers_is_none_for_clients(maker):
    root = maker.make("root", issuer="root", is_authority=True)
    leaf = maker.make("node", issuer="root", is_authority=False, usage=ExtendedKeyUsageOID.SERVER_AUTH)
    assert find_openssl().judge([leaf], [root], now=NOW) in {
        "unsupported certificate purpose",
        "unsuitable certificate purpose",
    }


def test_a_client_is_no_authority(maker, chain):
    leaf, middle, root = chain
    forged = maker.make("admin", issuer="jane", is_authority=False)
    assert find_openssl().judge([forged, leaf, middle], [root], now=NOW) is not None


@pytest.mark.parametrize("damage", [b"", b"nonsense", b"0\x82"])
def test_what_is_no_certificate(chain, damage):
    leaf, middle, root = chain
    openssl = find_openssl()
    assert openssl.judge([damage], [root], now=NOW) == "the certificate cannot be read"
    assert openssl.judge([leaf, damage], [root], now=NOW) == "the certificate cannot be read"
    assert openssl.judge([leaf, middle], [damage, root], now=NOW) is None


def test_authorities_among_other_text(pki):
    texts = [pki.pair(name)[0].read_text() for name in ("ca", "other-ca")]
    broken = "-----BEGIN CERTIFICATE-----\nabc\n"
    read = read_authorities(f"# the first\n{texts[0]}\n# the second\n{texts[1]}\n{broken}")
    assert read == tuple(ssl.PEM_cert_to_DER_cert(text) for text in texts)


class Authorities:
    def __init__(self, text):
        self.text = text


async def test_where_openssl_is_hidden_the_handshake_checks(pki):
    threads = Threads(limit=1)
    contexts = ServingContext(
        settings=TlsSettings(asks_for_certificates=True),
        authorities=Authorities(pki.pair("ca")[0].read_text()),
        openssl=None,
        threads=threads,
        clock=SystemClock(),
    )
    await contexts.use(*pki.pair("server"))
    threads.close()
    server = contexts.current()
    assert shake_hands(server, pki.client("admin"))["subject"]
    assert shake_hands(server, pki.client(None)) is None
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, pki.client("stranger"))


def shake_hands(server, client):
    """Connect two contexts in memory; what the server knows of the client's certificate."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    waiting = list(ends)
    while waiting:
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                continue
    return ends[1].getpeercert()

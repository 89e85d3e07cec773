"""The certificates do what they are for: TLS connections, judged as strictly as OpenSSL can."""

import ssl
from datetime import timedelta

import pytest

from klet.aio.clock import SystemClock
from klet.aio.threads import Threads
from klet.certs.maker import AuthorityFiles, CertificateMaker
from klet.certs.messages import Purpose, Template
from klet.certs.serving import SelfSignedFiles, ServingPair
from klet.certs.store import CLIENT_PREFIX, PairStore

DAY = timedelta(days=1)


@pytest.fixture
def maker():
    return CertificateMaker(clock=SystemClock())


@pytest.fixture
def threads():
    threads = Threads(limit=1)
    yield threads
    threads.close()


def shake_hands(server, client, *, name):
    """Connect two contexts in memory; returns what each knows of the other's certificate."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server, server_hostname=name),
    ]
    waiting = list(ends)
    for _ in range(10):
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                continue
    assert not waiting
    # In TLS 1.3 the client is done before the server has judged its certificate.
    ends[0].write(b"x")
    assert ends[1].read(1) == b"x"
    return ends[0].getpeercert(), ends[1].getpeercert()


def client_context(authorities):
    context = ssl.create_default_context(cadata=authorities)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


async def test_the_self_signed_pair_serves(maker, threads, tmp_path):
    files = SelfSignedFiles(tmp_path / "pki" / "kubelet.crt", tmp_path / "pki" / "kubelet.key")
    pair = await ServingPair(files=files, host="edge-1", signer=maker, threads=threads).prepare()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pair.certificate_file, pair.key_file)
    _, seen = shake_hands(server, client_context(pair.certificate), name="edge-1")
    assert seen["subjectAltName"] == (("DNS", "edge-1"),)


async def test_server_and_client_of_one_authority_trust_each_other(maker, tmp_path):
    authority = await maker.authority("klet-ca", lifetime=10 * DAY)
    files = AuthorityFiles(certificate_file=tmp_path / "ca.crt", key_file=tmp_path / "ca.key")
    files.certificate_file.write_text(authority.certificate)
    files.key_file.write_text(authority.key)
    names = Template(common_name="klet", dns_names=("localhost",), ips=("127.0.0.1",))
    node = Template(common_name="system:node:edge-1", organizations=("system:nodes",))
    serving = await maker.leaf(names, authority=files, purpose=Purpose.SERVER, lifetime=DAY)
    identity = await maker.leaf(node, authority=files, purpose=Purpose.CLIENT, lifetime=DAY)
    (tmp_path / "serving.pem").write_text(serving.certificate + serving.key)
    store = PairStore(prefix=CLIENT_PREFIX, directory=tmp_path / "pki", configured=None, clock=SystemClock())
    store.update(identity.certificate, identity.key)

    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=authority.certificate)
    server.verify_flags |= ssl.VERIFY_X509_STRICT
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_cert_chain(tmp_path / "serving.pem")
    client = client_context(authority.certificate)
    client.load_cert_chain(store.load().certificate_file)
    seen, _ = shake_hands(server, client, name="127.0.0.1")
    assert seen["subject"] == ((("organizationName", "system:nodes"),), (("commonName", "system:node:edge-1"),))


async def test_a_client_certificate_does_not_serve(maker, tmp_path):
    authority = await maker.authority("klet-ca", lifetime=10 * DAY)
    files = AuthorityFiles(certificate_file=tmp_path / "ca.crt", key_file=tmp_path / "ca.key")
    files.certificate_file.write_text(authority.certificate)
    files.key_file.write_text(authority.key)
    names = Template(common_name="c", dns_names=("localhost",))
    pair = await maker.leaf(names, authority=files, purpose=Purpose.CLIENT, lifetime=DAY)
    (tmp_path / "pair.pem").write_text(pair.certificate + pair.key)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "pair.pem")
    with pytest.raises(
        ssl.SSLCertVerificationError, match=r"unsuitable certificate purpose|unsupported certificate purpose"
    ):
        shake_hands(server, client_context(authority.certificate), name="localhost")

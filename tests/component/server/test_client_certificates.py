"""Client certificates: chains that the handshake checks, and connections that end with what they rest on."""

import asyncio
import ssl
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec.structs import replace

from klet.aio.threads import Threads
from klet.server.auth.certificates import (
    CertificateAuthenticator,
    PresentedCertificate,
    TrustedSet,
    read_authorities,
    read_presented,
)
from klet.server.auth.identity import Rejected
from klet.server.tls.certified import CertifiedConnections
from klet.server.tls.context import TlsSettings, build_context
from klet.server.tls.serving import ServingContext
from klet.testing.clock import ManualClock

NOW = datetime.now(UTC)


PROMPTLY = 30
GET = b"GET /healthz HTTP/1.1\r\nHost: n\r\n\r\n"


def name_of(common_name):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


class Maker:
    """Makes chains as odd as a test wants them, all with one key, in a directory."""

    def __init__(self, directory):
        self.directory = directory
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.key_file = directory / "key.pem"
        encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        self.key_file.write_bytes(self.key.private_bytes(encoding, form, serialization.NoEncryption()))

    def make(self, name, *, issuer, is_authority=False, usage=ExtendedKeyUsageOID.CLIENT_AUTH, first=-1, last=1):
        """A certificate that is good from the day `first` to the day `last`, as PEM."""
        builder = (
            x509.CertificateBuilder()
            .subject_name(name_of(name))
            .issuer_name(name_of(issuer))
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW + timedelta(days=first))
            .not_valid_after(NOW + timedelta(days=last))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )
        if not is_authority:
            builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        return builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()

    def client(self, *chain):
        file = self.directory / "chain.pem"
        file.write_text("".join(chain))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if chain:
            context.load_cert_chain(file, self.key_file)
        return context


@pytest.fixture
def maker(tmp_path):
    return Maker(tmp_path)


@pytest.fixture
def chain(maker):
    root = maker.make("root", issuer="root", is_authority=True)
    middle = maker.make("middle", issuer="root", is_authority=True)
    leaf = maker.make("jane", issuer="middle")
    return leaf, middle, root


def shown(pki, authorities, client):
    """What a server that trusts these authorities learns of a client in a handshake."""
    trusted = TrustedSet("\n".join(read_authorities("".join(authorities))))
    server = build_context(TlsSettings(asks_for_certificates=True), *pki.pair("server"), authorities=trusted.text)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)]
    waiting = list(ends)
    while waiting:
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                continue
    return read_presented(ends[1], trusted)


def test_intermediates_come_with_the_client_or_from_the_file(pki, maker, chain):
    leaf, middle, root = chain
    for sent, trusted in (((leaf, middle), (root,)), ((leaf,), (root, middle)), ((leaf,), (middle,))):
        assert shown(pki, trusted, maker.client(*sent)).common_names == ("jane",)


def test_a_client_needs_no_certificate(pki, maker, chain):
    assert shown(pki, chain[2:], maker.client()) is None


def bad(maker, kind):
    root = maker.make("root", issuer="root", is_authority=True)
    match kind:
        case "an issuer that nobody knows":
            return root, (maker.make("jane", issuer="middle"),)
        case "past its end":
            return root, (maker.make("jane", issuer="root", first=-3, last=-1),)
        case "not yet valid":
            return root, (maker.make("jane", issuer="root", first=1, last=2),)
        case "made for servers":
            return root, (maker.make("jane", issuer="root", usage=ExtendedKeyUsageOID.SERVER_AUTH),)
        case "signed by a client":
            return root, (maker.make("admin", issuer="jane"), maker.make("jane", issuer="root"))
        case _:
            raise AssertionError(kind)


@pytest.mark.parametrize(
    "kind",
    ["an issuer that nobody knows", "past its end", "not yet valid", "made for servers", "signed by a client"],
)
def test_a_bad_certificate_ends_the_handshake(pki, maker, kind):
    root, sent = bad(maker, kind)
    with pytest.raises(ssl.SSLCertVerificationError):
        shown(pki, (root,), maker.client(*sent))


def test_authorities_among_other_text(pki):
    texts = [pki.pair(name)[0].read_text() for name in ("ca", "other-ca")]
    broken = "-----BEGIN CERTIFICATE-----\nabc\n"
    damaged = "-----BEGIN CERTIFICATE-----\nYWJj\n-----END CERTIFICATE-----\n"
    read = read_authorities(f"# the first\n{texts[0]}\n{damaged}# the second\n{texts[1]}\n{texts[0]}{broken}")
    assert [ssl.PEM_cert_to_DER_cert(each) for each in read] == [ssl.PEM_cert_to_DER_cert(text) for text in texts]


async def answer(reader, writer):
    writer.write(GET)
    head = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(2)
    return head


async def test_other_authorities_end_the_connections_of_clients_with_certificates(start):
    async with start(allows_anonymous=True) as kubelet:
        async with kubelet.connected() as (reader, writer), kubelet.connected(None) as (other_reader, other_writer):
            assert (await answer(reader, writer)).startswith(b"HTTP/1.1 200 ")
            assert (await answer(other_reader, other_writer)).startswith(b"HTTP/1.1 200 ")
            kubelet.ca.write_bytes(kubelet.pki.pair("other-ca")[0].read_bytes())
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
            assert (await answer(other_reader, other_writer)).startswith(b"HTTP/1.1 200 ")
        with pytest.raises(OSError, match="ALERT"):
            await kubelet.get("/healthz")
        assert await kubelet.get("/healthz", name="stranger") == (200, "ok")


async def test_a_comment_among_the_authorities_changes_nothing(kubelet, logged):
    async with kubelet.connected() as (reader, writer):
        await answer(reader, writer)
        async with logged("Client certificates are checked"):
            kubelet.ca.write_text("# ours\n" + kubelet.ca.read_text())
        assert (await answer(reader, writer)).startswith(b"HTTP/1.1 200 ")


async def start_stream(reader, writer):
    head = b"POST /exec/default/web/main?output=1&command=sh HTTP/1.1\r\nHost: n\r\n"
    writer.write(head + b"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")


async def test_a_stream_in_progress_goes_on_when_an_authority_is_added(kubelet):
    async with kubelet.connected() as (reader, writer), kubelet.connected() as (idle, _):
        await start_stream(reader, writer)
        texts = [kubelet.pki.pair(name)[0].read_text() for name in ("other-ca", "ca")]
        kubelet.ca.write_text("".join(texts))
        assert await idle.read() == b""
        writer.write(b"still here")
        assert await reader.readexactly(10) == b"still here"


async def test_a_stream_in_progress_ends_when_an_authority_is_no_longer_trusted(kubelet):
    async with kubelet.connected() as (reader, writer):
        await start_stream(reader, writer)
        kubelet.ca.write_bytes(kubelet.pki.pair("other-ca")[0].read_bytes())
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        await asyncio.wait_for(kubelet.streamer.ended.wait(), PROMPTLY)


async def test_a_client_that_connected_before_a_change_and_shook_hands_after_it_is_not_kept(kubelet):
    """It was checked against the old authorities: on this connection it would be turned away for good."""
    async with kubelet.connected() as (witness, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", kubelet.port)
        both = [kubelet.pki.pair(name)[0].read_text() for name in ("ca", "other-ca")]
        kubelet.ca.write_text("".join(both))
        assert await witness.read() == b""
        try:
            await writer.start_tls(kubelet.pki.client("admin"), server_hostname="localhost")
            assert await reader.read() == b""
        finally:
            writer.close()
            await writer.wait_closed()
    assert await kubelet.get("/healthz") == (200, "ok")


class HeldThreads(Threads):
    """Holds up the next context that is built."""

    def __init__(self):
        super().__init__(limit=2)
        self.is_building, self.may_go_on = asyncio.Event(), asyncio.Event()

    async def run(self, function, *args, **kwargs):
        if function is build_context and not self.is_building.is_set():
            self.is_building.set()
            await self.may_go_on.wait()
        return await super().run(function, *args, **kwargs)


class Trusting:
    def __init__(self, pki, name):
        self.pki = pki
        self.trust(name)

    def trust(self, name):
        self.current = TrustedSet("\n".join(read_authorities(self.pki.pair(name)[0].read_text())))


async def test_a_new_pair_and_new_authorities_at_once_are_both_served(pki):
    threads, authorities = HeldThreads(), Trusting(pki, "ca")
    settings = TlsSettings(asks_for_certificates=True)
    context = ServingContext(settings=settings, authorities=authorities, threads=threads, clock=ManualClock(start=NOW))
    threads.is_building.set()
    await context.use(*pki.pair("server"), until=NOW + timedelta(days=1000))
    threads.is_building.clear()
    using = asyncio.create_task(context.use(*pki.pair("server-2")))
    await threads.is_building.wait()
    authorities.trust("other-ca")
    renewing = asyncio.create_task(context.renew())
    await asyncio.wait((renewing,), timeout=0.2)  # the old pair would overtake the new one
    threads.may_go_on.set()
    async with asyncio.timeout(PROMPTLY):
        await asyncio.gather(using, renewing)
    assert context.current().authorities == authorities.current
    assert context._pair.certificate_file == pki.pair("server-2")[0]
    threads.close()


async def test_with_authorities_that_cannot_be_used_no_client_is_accepted_until_they_can(kubelet, logged, tmp_path):
    for path, source in zip((tmp_path / "a", tmp_path / "b"), kubelet.pki.pair("server-2"), strict=True):
        path.write_bytes(source.read_bytes())
    await kubelet.contexts.use(tmp_path / "a", tmp_path / "b")
    (tmp_path / "b").unlink()
    async with logged("Nothing is served"):
        kubelet.ca.write_bytes(kubelet.pki.pair("other-ca")[0].read_bytes())
    for name in ("admin", "stranger", None):
        with pytest.raises(OSError, match="INTERNAL_ERROR"):
            await kubelet.connect(name)
    async with logged("Serving with a certificate"):
        (tmp_path / "b").write_bytes(kubelet.pki.pair("server-2")[1].read_bytes())
    assert await kubelet.get("/healthz", name="stranger") == (200, "ok")


class Open:
    def __init__(self):
        self.retired = asyncio.Event()

        self.is_aborted = False

    def retire(self):
        self.retired.set()

    def abort(self):
        self.is_aborted = True


def certificate(until):
    return PresentedCertificate(
        common_names=("jane",), organizations=(), fingerprint="", until=until, authorities=TrustedSet()
    )


async def test_a_connection_ends_with_the_certificate_also_when_the_clock_is_set():
    clock, connection = ManualClock(), Open()
    connections = CertifiedConnections(clock=clock)
    connections.add(connection, certificate(clock.now() + timedelta(milliseconds=20)))
    assert not connection.retired.is_set()
    clock.advance(timedelta(days=1))
    async with asyncio.timeout(PROMPTLY):
        await connection.retired.wait()
    connections.follow_change(is_distrust=True)
    assert connection.is_aborted


async def test_a_connection_that_is_gone_leaves_no_timer():
    clock, connection = ManualClock(), Open()
    connections = CertifiedConnections(clock=clock)
    connections.add(connection, certificate(clock.now() + timedelta(days=300)))
    connections.discard(connection)
    connections.discard(connection)
    assert len(connections) == 0


async def test_no_request_is_served_past_the_end_of_a_certificate(kubelet):
    """Also where no timer has noticed: each request is checked."""
    authenticator = CertificateAuthenticator(authorities=kubelet.authorities, clock=ManualClock(start=NOW))
    good = PresentedCertificate(
        common_names=("jane",),
        organizations=("people",),
        fingerprint="ab",
        until=NOW + timedelta(seconds=1),
        authorities=kubelet.authorities.current,
    )
    user = authenticator.authenticate(good)
    assert (user.name, user.groups) == ("jane", ("people",))
    assert isinstance(authenticator.authenticate(replace(good, until=NOW)), Rejected)
    assert isinstance(authenticator.authenticate(replace(good, authorities=TrustedSet())), Rejected)

"""Handshakes: versions, certificates that change or are missing, and clients that do not come to the point."""

import asyncio
import shutil
import socket
import ssl
from contextlib import suppress
from datetime import timedelta

import pytest

from klet.aio.clock import SystemClock
from klet.server.listener import ListenerLimits
from klet.server.tls.context import TlsError, TlsSettings, apply_settings, choose_ciphers
from klet.server.tls.serving import FollowedPair

PROMPTLY = 10


async def served(kubelet):
    """The certificate that a new connection is shown."""
    async with kubelet.connected() as (_, writer):
        return writer.get_extra_info("ssl_object").getpeercert(binary_form=True)


def der_of(kubelet, name):
    return ssl.PEM_cert_to_DER_cert(kubelet.pki.pair(name)[0].read_text())


async def test_without_a_certificate_the_handshake_fails_as_upstreams(start, caplog):
    async with start(certificate=None) as kubelet:
        with pytest.raises(ssl.SSLError, match="INTERNAL_ERROR"):
            await kubelet.connect()
        assert "no serving certificate available for the kubelet" in [
            getattr(record, "error", "") for record in caplog.records
        ]
        await kubelet.contexts.use(*kubelet.pki.pair("server"))
        assert await kubelet.get("/healthz") == (200, "ok")


async def test_new_files_are_served_at_once_and_damaged_ones_never(kubelet, tmp_path, logged):
    files = tmp_path / "tls.crt", tmp_path / "tls.key"
    for path, source in zip(files, kubelet.pki.pair("server"), strict=True):
        shutil.copy(source, path)
    follower = FollowedPair(context=kubelet.contexts, certificate_file=files[0], key_file=files[1], clock=SystemClock())
    async with asyncio.TaskGroup() as group:
        task = group.create_task(follower.run())
        async with kubelet.connected() as (reader, writer):
            new = kubelet.pki.pair("server-2")
            async with logged("stays as it was"):
                shutil.copy(new[1], files[1])
            assert await served(kubelet) == der_of(kubelet, "server")
            async with logged("Serving with a certificate"):
                shutil.copy(new[0], files[0])
            assert await served(kubelet) == der_of(kubelet, "server-2")
            async with logged("stays as it was"):
                files[0].write_text("nothing")
            assert await served(kubelet) == der_of(kubelet, "server-2")
            # A connection from before goes on.
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: n\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
        task.cancel()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_versions(kubelet, version):
    context = kubelet.pki.client("admin")
    context.minimum_version = context.maximum_version = version
    reader, writer = await asyncio.open_connection("127.0.0.1", kubelet.port, ssl=context)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n")
    assert (await reader.read()).endswith(b"ok")
    writer.close()
    await writer.wait_closed()


async def test_old_versions_are_not_spoken(kubelet):
    context = kubelet.pki.client("admin")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.open_connection("127.0.0.1", kubelet.port, ssl=context)


async def test_a_client_that_does_not_shake_hands_is_let_go(start):
    async with start(limits=ListenerLimits(handshake=timedelta(milliseconds=50))) as kubelet:
        reader, writer = await asyncio.open_connection("127.0.0.1", kubelet.port)
        async with asyncio.timeout(PROMPTLY):
            assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize(("copies", "is_served"), [(4, True), (60, False)])
async def test_a_chain_of_certificates_has_a_longest_length(kubelet, tmp_path, copies, is_served):
    """Whoever connects may send one, and OpenSSL looks at all of it at once."""
    certificate, key = kubelet.pki.pair("admin")
    chain = tmp_path / "chain.crt"
    chain.write_bytes(certificate.read_bytes() + kubelet.pki.pair("other-ca")[0].read_bytes() * copies)
    context = kubelet.pki.client()
    context.load_cert_chain(chain, key)
    reader, writer = await asyncio.open_connection("127.0.0.1", kubelet.port, ssl=context)
    answer = b""
    with suppress(ConnectionError, ssl.SSLError):
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
    assert answer.endswith(b"ok") == is_served
    writer.close()
    with suppress(ConnectionError, ssl.SSLError):
        await writer.wait_closed()


@pytest.mark.parametrize(
    "nonsense",
    [
        pytest.param(b"GET /healthz HTTP/1.1\r\nHost: n\r\n\r\n", id="no TLS at all"),
        pytest.param(b"\x16\x03\x01\xff\xff" + b"\x00" * 100_000, id="a hello without sense"),
        pytest.param(b"", id="nothing"),
    ],
)
async def test_nonsense_ends_the_connection_and_no_more(kubelet, nonsense):
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", kubelet.port)) as client, suppress(ConnectionError):
            client.setblocking(False)
            client.send(nonsense)
            await asyncio.sleep(0)
    assert await kubelet.get("/healthz") == (200, "ok")


@pytest.mark.parametrize(
    ("suites", "chosen"),
    [
        pytest.param(
            ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_RSA_WITH_AES_256_CBC_SHA"),
            "ECDHE-RSA-AES128-GCM-SHA256:AES256-SHA",
            id="by their names",
        ),
        pytest.param(
            ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
            "ECDHE-RSA-CHACHA20-POLY1305",
            id="two names of one",
        ),
        pytest.param(("TLS_AES_128_GCM_SHA256",), "", id="those of TLS 1.3 cannot be chosen"),
    ],
)
def test_cipher_suites(suites, chosen):
    assert choose_ciphers(suites) == chosen


def ciphers_of(settings):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    apply_settings(context, settings)
    return context, {each["name"] for each in context.get_ciphers() if each["protocol"] != "TLSv1.3"}


def test_the_suites_of_a_context():
    context, names = ciphers_of(TlsSettings(cipher_suites=("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",)))
    assert names == {"ECDHE-RSA-AES128-GCM-SHA256"}
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    _, names = ciphers_of(TlsSettings())
    assert names
    assert all(name.startswith("ECDHE-") and ("GCM" in name or "CHACHA20" in name) for name in names)
    context, _ = ciphers_of(TlsSettings(min_version="VersionTLS13"))
    assert context.minimum_version == ssl.TLSVersion.TLSv1_3
    context, _ = ciphers_of(TlsSettings(min_version="VersionTLS10"))
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_suites_that_this_machine_lacks():
    with pytest.raises(TlsError, match=r"^tlsCipherSuites: .* none of TLS_RSA_WITH_RC4_128_SHA; name others$"):
        apply_settings(
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), TlsSettings(cipher_suites=("TLS_RSA_WITH_RC4_128_SHA",))
        )

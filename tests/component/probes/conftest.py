"""Loopback servers that answer with fixed bytes, and targets that point at them."""

import asyncio
import socket
import ssl
import subprocess
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from klet.host.http_client import HttpClient
from klet.model.runtime import ContainerId
from klet.probes.handler import ProbeTarget
from klet.probes.prober import Prober
from klet.testing.builders import make_container, make_pod

LOOPBACK = "127.0.0.1"


class Server(asyncio.Protocol):
    """Answers whatever comes; keeps what came."""

    def __init__(self, reply, seen, *, holds):
        self._reply, self._seen, self._holds = reply, seen, holds

    def connection_made(self, transport):
        self._transport = transport

    def data_received(self, data):
        self._seen.append(data)
        self._transport.write(self._reply(data) if callable(self._reply) else self._reply)
        if not self._holds:
            self._transport.close()


@pytest.fixture
def serve():
    """A context: (port, list of requests)."""

    @asynccontextmanager
    async def run(reply, *, holds=False, tls=None):
        seen = []
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Server(reply, seen, holds=holds), LOOPBACK, 0, ssl=tls)
        try:
            yield server.sockets[0].getsockname()[1], seen
        finally:
            server.close()
            await server.wait_closed()

    return run


@pytest.fixture
def full_backlog():
    """A port on which connections are neither accepted nor refused."""
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        listener.listen(0)
        waiting = []
        for _ in range(3):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
            waiting.append(client)
        yield listener.getsockname()[1]
        for client in waiting:
            client.close()


@pytest.fixture
def closed_port():
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        yield listener.getsockname()[1]  # bound but not listening: connections are refused


class NoRuntime:
    async def exec_sync(self, _request):
        raise AssertionError("no command was expected")


@pytest.fixture
def prober():
    return Prober(runtime=NoRuntime(), http=HttpClient())


@pytest.fixture
def target():
    def make(probe, *, container=None, timeout=timedelta(seconds=5)):
        container = container or make_container("main")
        return ProbeTarget(
            pod=make_pod(container),
            container=container,
            id=ContainerId("main-0"),
            probe=probe,
            pod_ip=LOOPBACK,
            timeout=timeout,
        )

    return make


@pytest.fixture(scope="module")
def server_tls(tmp_path_factory):
    """A server's context with a certificate that nobody should trust."""
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-keyout", key, "-out", certificate, "-subj", "/CN=nobody", "-days", "1"),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context

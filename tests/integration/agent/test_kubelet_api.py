"""The kubelet API of `klet run` with TLS and client certificates, on a real containerd: exec, attach, ports, logs."""

import asyncio
import json
import os
import ssl
import struct
import zlib
from contextlib import asynccontextmanager, suppress

import aiohttp
import pytest
import pytest_asyncio

from klet.aio.clock import SystemClock
from klet.certs.maker import AuthorityFiles, CertificateMaker
from klet.certs.messages import Purpose, Template
from klet.cli.node.identities import LIFETIME, ensure_identities
from klet.cri.client import connect
from klet.testing.containerd import REQUEST_TIMEOUT, remove_pods
from klet.testing.free_ports import find_free_ports

# One loop for all: connections with TLS are closed a moment after their tests.
pytestmark = [pytest.mark.root, pytest.mark.containerd, pytest.mark.asyncio(loop_scope="module")]

PATIENCE = 20
FATAL_INTERNAL_ERROR = bytes([2, 80])
SCRIPT = 'nc -ll -p 8080 -e cat & echo started; while read line; do echo "heard $line"; done; sleep 1000'


def settings_for(pki, *ports):
    """An API on the loopback for whoever has a certificate of the authority."""
    port, healthz_port, read_only_port = ports
    return {
        "enableServer": True,
        "address": "127.0.0.1",
        "port": port,
        "healthzPort": healthz_port,
        "readOnlyPort": read_only_port,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": str(pki / "ca.crt")},
        },
    }


class Client:
    """A client of the API: WebSockets by a library, SPDY by hand."""

    def __init__(self, pki, socket, *ports):
        self.pki, self.socket = pki, socket
        self.port, self.healthz_port, self.read_only_port = ports

    def context(self, name="owner"):
        """Trusts the pair that the agent has made for itself, and shows a certificate."""
        context = ssl.create_default_context(cafile=self.pki / "kubelet.crt")
        context.check_hostname = False  # the certificate is for the name of the node
        if name is not None:
            context.load_cert_chain(self.pki / f"{name}.crt", self.pki / f"{name}.key")
        return context

    @asynccontextmanager
    async def session(self, name="owner"):
        async with aiohttp.ClientSession(
            f"https://127.0.0.1:{self.port}",
            connector=aiohttp.TCPConnector(ssl=self.context(name)),
            timeout=aiohttp.ClientTimeout(PATIENCE),
        ) as session:
            yield session

    async def get(self, path, name="owner"):
        async with self.session(name) as session, session.get(path) as answer:
            return answer.status, await answer.text()

    async def get_plainly(self, port, path):
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
            return answer.status, await answer.text()

    @asynccontextmanager
    async def websocket(self, path, protocol="v4.channel.k8s.io"):
        async with self.session() as session, session.ws_connect(path, protocols=(protocol,)) as socket:
            assert socket.protocol == protocol
            yield socket

    @asynccontextmanager
    async def spdy(self, path, *protocols):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.context())
        head = (
            f"POST {path} HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n"
        )
        head += "".join(f"X-Stream-Protocol-Version: {each}\r\n" for each in protocols)
        try:
            async with asyncio.timeout(PATIENCE):
                writer.write(head.encode() + b"\r\n")
                answer = (await reader.readuntil(b"\r\n\r\n")).decode()
                yield answer, Spdy(reader, writer)
        finally:
            writer.close()
            # What the server still had to say may cross with the end.
            with suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()


class Spdy:
    """As much of SPDY/3.1 as it takes to open streams and to exchange bytes on them."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self.compressor = zlib.compressobj()
        self.next_id = 1
        self.received = {}

    def open(self, **headers):
        stream, self.next_id = self.next_id, self.next_id + 2
        block = struct.pack(">I", len(headers))
        for name, value in headers.items():
            for text in (name.lower().encode(), value.encode()):
                block += struct.pack(">I", len(text)) + text
        packed = self.compressor.compress(block) + self.compressor.flush(zlib.Z_SYNC_FLUSH)
        body = struct.pack(">IIBB", stream, 0, 0, 0) + packed
        self.writer.write(struct.pack(">HHI", 0x8003, 1, len(body)) + body)
        self.received[stream] = b""
        return stream

    def send(self, stream, data=b"", *, is_last=False):
        self.writer.write(struct.pack(">II", stream, (1 << 24 if is_last else 0) | len(data)) + data)

    async def until(self, condition):
        while not condition():
            first, second = struct.unpack(">II", await self.reader.readexactly(8))
            data = await self.reader.readexactly(second & 0xFFFFFF)
            if not first >> 31:
                self.received[first] += data


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(new_node, manifest, containerd, tmp_path_factory):
    """A client of one agent for all tests, with a pod that listens and one that has ended."""
    directory = tmp_path_factory.mktemp("api")
    pki, ports = directory / "pki", find_free_ports(3)
    maker = CertificateMaker(clock=SystemClock())
    await ensure_identities(pki, node="node", maker=maker)
    node = new_node(directory, containerd)
    with_input = {"name": "main", "image": "klet.local/busybox:1", "command": ["sh", "-c", SCRIPT], "stdin": True}
    node.write("api", manifest("api", spec={"containers": [with_input]}))
    node.write("ended", manifest("ended", main="echo over", spec={"restartPolicy": "Never"}))
    async with node.run(f"--cert-dir={pki}", **settings_for(pki, *ports)) as agent:
        await agent.recorded("api", "Ready")
        await agent.until(lambda pods: pods["ended"].status.phase == "Succeeded", what="the end of the pod")
        # Who comes before the certificate is made waits for it.
        await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", ports[0]))
        yield Client(pki, node.root / "klet.sock", *ports)
        assert await agent.stop() == 0
    async with connect(runtime_endpoint=containerd.endpoint, timeout=REQUEST_TIMEOUT) as cri:
        await remove_pods(cri, clock=SystemClock())


@pytest.fixture
def idle(new_node, containerd, tmp_path):
    """Another node, which has no pods: those of the client's agent stay."""
    return new_node(tmp_path, containerd)


async def answer_to_hello(port):
    """What the server says to the first message of a TLS client, without its head."""
    sent = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), sent, server_hostname="node").do_handshake()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent.read())
        return (await asyncio.wait_for(reader.read(), PATIENCE))[5:]
    finally:
        writer.close()
        await writer.wait_closed()


async def test_which_clients_are_accepted(client):
    other = AuthorityFiles(certificate_file=client.pki / "other-ca.crt", key_file=client.pki / "other-ca.key")
    maker = CertificateMaker(clock=SystemClock())
    stranger = await maker.authority("other-ca", lifetime=LIFETIME)
    other.certificate_file.write_text(stranger.certificate)
    other.key_file.write_text(stranger.key)
    pair = await maker.leaf(Template(common_name="x"), authority=other, purpose=Purpose.CLIENT, lifetime=LIFETIME)
    (client.pki / "stranger.crt").write_text(pair.certificate)
    (client.pki / "stranger.key").write_text(pair.key)
    assert await client.get("/healthz") == (200, "ok")
    assert await client.get("/healthz", name=None) == (401, "Unauthorized")
    with pytest.raises(aiohttp.ClientError, match="ALERT"):
        await client.get("/healthz", name="stranger")


async def test_what_needs_no_certificate(client):
    assert await client.get_plainly(client.healthz_port, "/healthz") == (200, "ok")
    assert (await client.get_plainly(client.healthz_port, "/pods"))[0] == 404
    status, body = await client.get_plainly(client.read_only_port, "/pods")
    assert status == 200
    assert {item["metadata"]["name"] for item in json.loads(body)["items"]} == {"api-node", "ended-node"}
    path = "/containerLogs/default/api-node/main"
    assert await client.get_plainly(client.read_only_port, path) == (405, "Debug endpoints are disabled.\n")


async def test_the_node_is_shown(client):
    _, body = await client.get("/configz")
    shown = json.loads(body)["kubeletconfig"]
    assert (shown["port"], shown["authentication"]["anonymous"]) == (client.port, {"enabled": False})
    _, body = await client.get("/runningpods/")
    assert {item["metadata"]["name"] for item in json.loads(body)["items"]} == {"api-node"}
    status, metrics = await client.get("/metrics")
    assert (status, "kubelet_running_pods 1\n" in metrics) == (200, True)


async def test_exec_over_a_websocket(client):
    path = "/exec/default/api-node/main?command=sh&command=-c&command=echo+out;echo+err>%262;exit+3&output=1&error=1"
    said = {1: b"", 2: b"", 3: b""}
    async with client.websocket(path) as socket:
        async for message in socket:
            said[message.data[0]] += message.data[1:]
    assert (said[1], said[2]) == (b"out\n", b"err\n")
    status = json.loads(said[3])
    assert (status["status"], status["reason"]) == ("Failure", "NonZeroExitCode")


async def test_exec_over_spdy_with_input_that_ends(client):
    path = "/exec/default/api-node/main?command=cat&input=1&output=1"
    async with client.spdy(path, "v5.channel.k8s.io", "v4.channel.k8s.io") as (answer, spdy):
        assert answer.startswith("HTTP/1.1 101 ")
        assert "X-Stream-Protocol-Version: v4.channel.k8s.io" in answer
        errors, stdin, stdout = (spdy.open(streamType=name) for name in ("error", "stdin", "stdout"))
        content = bytes(range(256)) * 4096
        for start in range(0, len(content), 1 << 15):
            spdy.send(stdin, content[start : start + (1 << 15)])
        spdy.send(stdin, is_last=True)
        # The runtime ends the connection when all is said.
        with pytest.raises(asyncio.IncompleteReadError, match=r"^0 bytes read"):
            await spdy.until(lambda: False)
    assert spdy.received[stdout] == content
    assert json.loads(spdy.received[errors])["status"] == "Success"


async def test_the_runtimes_refusal_reaches_the_client(client):
    async with client.spdy("/exec/default/api-node/main?command=cat&output=1") as (answer, _):
        assert answer.startswith("HTTP/1.1 400 ")
    async with client.spdy("/exec/default/api-node/main?command=cat&output=1", "v9.channel.k8s.io") as (answer, _):
        assert answer.startswith("HTTP/1.1 403 ")


async def test_attach(client):
    async with asyncio.timeout(PATIENCE), client.websocket("/attach/default/api-node/main?input=1&output=1") as socket:
        await socket.send_bytes(b"\x00you\n")
        said = b""
        while b"heard you\n" not in said:
            message = await socket.receive_bytes()
            said += message[1:]


async def test_port_forwarding_over_spdy(client):
    async with client.spdy("/portForward/default/api-node", "portforward.k8s.io") as (answer, spdy):
        assert answer.startswith("HTTP/1.1 101 ")
        errors = spdy.open(streamType="error", port="8080", requestID="0")
        spdy.send(errors, is_last=True)
        data = spdy.open(streamType="data", port="8080", requestID="0")
        spdy.send(data, b"through the pod")
        await spdy.until(lambda: spdy.received[data] == b"through the pod")
    assert spdy.received[errors] == b""


async def test_port_forwarding_over_a_websocket(client):
    async with asyncio.timeout(PATIENCE), client.websocket("/portForward/default/api-node?port=8080") as socket:
        await socket.send_bytes(b"\x00hello")
        said = b""
        while said != struct.pack("<H", 8080) + b"hello":
            message = await socket.receive_bytes()
            said += message[1:] if message[0] == 0 else b""


async def test_run(client):
    async with client.session() as session:
        async with session.post("/run/default/api-node/main?cmd=echo+hi") as answer:
            assert (answer.status, await answer.text()) == (200, "hi\n")
        async with session.post("/run/default/api-node/main?cmd=cat+/nowhere") as answer:
            assert answer.status == 500
            assert (await answer.text()).startswith("command 'cat /nowhere' exited with 1: cat: can't open '/nowhere'")


async def test_logs_are_followed(client):
    async with client.session() as session:
        async with session.get("/containerLogs/default/api-node/main?follow=true&tailLines=1") as answer:
            await answer.content.readline()
            async with client.websocket("/attach/default/api-node/main?input=1&output=1") as socket:
                await socket.send_bytes(b"\x00more\n")
                assert await answer.content.readline() == b"heard more\n"
        async with session.get("/containerLogs/default/api-node/main?tailLines=1") as answer:
            assert await answer.text() == "heard more\n"


async def test_a_container_that_is_gone(client):
    path = "/exec/default/ended-node/main?command=cat&output=1"
    async with client.spdy(path, "v4.channel.k8s.io") as (answer, spdy):
        assert answer.startswith("HTTP/1.1 500 ")
        assert await spdy.reader.readexactly(len('container not found ("main")')) == b'container not found ("main")'
    assert await client.get("/containerLogs/default/ended-node/main") == (200, "over\n")


async def test_the_agents_own_socket_reaches_into_pods_too(client):
    connector = aiohttp.UnixConnector(path=str(client.socket))
    async with aiohttp.ClientSession("http://agent", connector=connector) as session:
        path = "/exec/default/api-node/main?command=echo&command=hi&output=1"
        async with session.ws_connect(path, protocols=("v4.channel.k8s.io",)) as socket:
            said = [message.data async for message in socket]
        assert b"\x01hi\n" in said
        async with session.get("/configz") as answer:
            assert answer.status == 200


async def test_without_a_certificate_handshakes_fail(tmp_path, idle):
    """As long as the cluster has signed none: `serverTLSBootstrap`."""
    pki, ports = tmp_path / "pki", find_free_ports(3)
    await ensure_identities(pki, node="node", maker=CertificateMaker(clock=SystemClock()))
    settings = settings_for(pki, *ports) | {"serverTLSBootstrap": True}
    async with idle.run(f"--cert-dir={pki}", **settings) as agent:
        assert await answer_to_hello(ports[0]) == FATAL_INTERNAL_ERROR
        assert "no serving certificate available for the kubelet" in agent.log
        assert await agent.text("/healthz") == "ok"
    assert not (pki / "kubelet.crt").exists()


async def test_a_damaged_certificate_ends_the_agent(tmp_path, idle):
    pki, ports = tmp_path / "pki", find_free_ports(3)
    await ensure_identities(pki, node="node", maker=CertificateMaker(clock=SystemClock()))
    given = {"tlsCertFile": str(pki / "owner.crt"), "tlsPrivateKeyFile": str(pki / "ca.key")}
    async with idle.started(f"--cert-dir={pki}", **settings_for(pki, *ports), **given) as process:
        assert await asyncio.wait_for(process.wait(), PATIENCE) == 1
    assert f"the key does not belong to the certificate in {pki / 'owner.crt'}" in idle.log.read_text()


async def test_a_port_that_is_taken_ends_the_agent_before_anything_is_made(tmp_path, idle):
    pki, ports = tmp_path / "pki", find_free_ports(3)
    await ensure_identities(pki, node="node", maker=CertificateMaker(clock=SystemClock()))
    holder = await asyncio.start_server(lambda *_: None, "127.0.0.1", ports[0])
    async with holder, idle.started(f"--cert-dir={pki}", **settings_for(pki, *ports)) as process:
        assert await asyncio.wait_for(process.wait(), PATIENCE) == 1
    said = idle.log.read_text()
    assert f"cannot listen on 127.0.0.1:{ports[0]} (address (--address), port (--port)): " in said
    assert f"(pid {os.getpid()}) has the port: stop it, or set another port" in said
    assert not idle.root.exists()

"""exec, attach, port forwarding and logs through the kubelet API with TLS, on a real containerd."""

import asyncio
import json
import ssl
import struct
import zlib
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import aiohttp
import pytest
from msgspec.structs import replace

from klet.aio.clock import SystemClock
from klet.aio.threads import Threads
from klet.api.container_status import ContainerState, ContainerStateRunning, ContainerStatus
from klet.api.pod import PodStatus
from klet.app.views import RuntimeLogs
from klet.certs.maker import CertificateMaker
from klet.certs.serving import SelfSignedFiles, ServingPair
from klet.server.auth.access import AlwaysAllow
from klet.server.auth.gate import Gate
from klet.server.listener import Address, SecureListener, take
from klet.server.routes.pods import PodRoutes
from klet.server.routes.streams import StreamRoutes
from klet.server.runtime_pods import RuntimePods
from klet.server.tls.context import TlsSettings
from klet.server.tls.openssl import find_openssl
from klet.server.tls.serving import ServingContext
from klet.testing.builders import make_pod
from klet.testing.cri_configs import build_container_config, build_sandbox_config
from klet.wire import cri_v1_pb2 as pb

pytestmark = [pytest.mark.root, pytest.mark.containerd]

PATIENCE = 20
SCRIPT = 'nc -ll -p 8080 -e cat & echo started; while read line; do echo "heard $line"; done; sleep 1000'


class OnePod:
    """A pod as the agent would show it."""

    def __init__(self, container_id):
        status = ContainerStatus(
            name="main",
            state=ContainerState(running=ContainerStateRunning()),
            container_id=f"containerd://{container_id}",
        )
        pod = make_pod("main", name="api")
        self.pod = replace(
            pod,
            metadata=replace(pod.metadata, uid="api-uid"),
            status=PodStatus(phase="Running", container_statuses=(status,)),
        )

    def pods(self):
        return (self.pod,)

    def terminating(self):
        return ()

    def find(self, namespace, name):
        return self.pod if (namespace, name) == ("default", "api") else None


async def start_container(cri, containerd, directory):
    config = build_sandbox_config(name="api", log_directory=directory, cgroup_parent=containerd.cgroup_parent)
    sandbox = (await cri.run_pod_sandbox(pb.RunPodSandboxRequest(config=config))).pod_sandbox_id
    wanted = build_container_config(name="main", command=("sh", "-c", SCRIPT))
    wanted.stdin = True
    wanted.labels.update({"io.kubernetes.pod.uid": "api-uid", "io.kubernetes.container.name": "main"})
    request = pb.CreateContainerRequest(pod_sandbox_id=sandbox, config=wanted, sandbox_config=config)
    container = (await cri.create_container(request)).container_id
    await cri.start_container(pb.StartContainerRequest(container_id=container))
    return container


@asynccontextmanager
async def serving(cri, pods, directory):
    """The API with a certificate of its own, for everybody; gives the port."""
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        threads = Threads(limit=2)
        stack.callback(threads.close)
        files = SelfSignedFiles(directory / "pki" / "kubelet.crt", directory / "pki" / "kubelet.key")
        pair = await ServingPair(
            files=files, host="127.0.0.1", signer=CertificateMaker(clock=clock), threads=threads
        ).prepare()
        contexts = ServingContext(settings=TlsSettings(), authorities=None, openssl=find_openssl(), threads=threads)
        await contexts.use(pair.certificate_file, pair.key_file)
        gate = Gate(
            certificates=None, tokens=None, authorizer=AlwaysAllow(), allows_anonymous=True, is_fine_grained=True
        )
        taken = take(Address(host="127.0.0.1", port=0, name="address, port"))
        listener = SecureListener(
            listener=taken,
            contexts=contexts,
            gate=gate,
            routes=(
                PodRoutes(pods=pods, logs=RuntimeLogs(runtime=cri, clock=clock)),
                StreamRoutes(pods=pods, running=RuntimePods(runtime=cri), runtime=cri),
            ),
        )
        group = await stack.enter_async_context(asyncio.TaskGroup())
        task = group.create_task(listener.run())
        try:
            yield taken.getsockname()[1], pair.certificate_file
        finally:
            task.cancel()


class Client:
    """A client of the API: WebSockets by a library, SPDY by hand."""

    def __init__(self, port, certificate, container):
        self.port, self.container = port, container
        self.context = ssl.create_default_context(cafile=certificate)

    @asynccontextmanager
    async def session(self):
        async with aiohttp.ClientSession(
            f"https://127.0.0.1:{self.port}",
            connector=aiohttp.TCPConnector(ssl=self.context),
            timeout=aiohttp.ClientTimeout(PATIENCE),
        ) as session:
            yield session

    @asynccontextmanager
    async def websocket(self, path, protocol="v4.channel.k8s.io"):
        async with self.session() as session, session.ws_connect(path, protocols=(protocol,)) as socket:
            assert socket.protocol == protocol
            yield socket

    @asynccontextmanager
    async def spdy(self, path, *protocols):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.context)
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
            with suppress(ConnectionError):
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


@pytest.fixture
async def client(cri, containerd, tmp_path):
    container = await start_container(cri, containerd, tmp_path)
    async with serving(cri, OnePod(container), tmp_path) as (port, certificate):
        yield Client(port, certificate, container)


async def test_exec_over_a_websocket(client):
    path = "/exec/default/api/main?command=sh&command=-c&command=echo+out;echo+err>%262;exit+3&output=1&error=1"
    said = {1: b"", 2: b"", 3: b""}
    async with client.websocket(path) as socket:
        async for message in socket:
            said[message.data[0]] += message.data[1:]
    assert (said[1], said[2]) == (b"out\n", b"err\n")
    status = json.loads(said[3])
    assert (status["status"], status["reason"]) == ("Failure", "NonZeroExitCode")


async def test_exec_over_spdy_with_input_that_ends(client):
    path = "/exec/default/api/main?command=cat&input=1&output=1"
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
    async with client.spdy("/exec/default/api/main?command=cat&output=1") as (answer, _):
        assert answer.startswith("HTTP/1.1 400 ")
    async with client.spdy("/exec/default/api/main?command=cat&output=1", "v9.channel.k8s.io") as (answer, _):
        assert answer.startswith("HTTP/1.1 403 ")


async def test_attach(client):
    async with asyncio.timeout(PATIENCE), client.websocket("/attach/default/api/main?input=1&output=1") as socket:
        await socket.send_bytes(b"\x00you\n")
        said = b""
        while b"heard you\n" not in said:
            message = await socket.receive_bytes()
            said += message[1:]


async def test_port_forwarding_over_spdy(client):
    async with client.spdy("/portForward/default/api", "portforward.k8s.io") as (answer, spdy):
        assert answer.startswith("HTTP/1.1 101 ")
        errors = spdy.open(streamType="error", port="8080", requestID="0")
        spdy.send(errors, is_last=True)
        data = spdy.open(streamType="data", port="8080", requestID="0")
        spdy.send(data, b"through the pod")
        await spdy.until(lambda: spdy.received[data] == b"through the pod")
    assert spdy.received[errors] == b""


async def test_port_forwarding_over_a_websocket(client):
    async with asyncio.timeout(PATIENCE), client.websocket("/portForward/default/api?port=8080") as socket:
        await socket.send_bytes(b"\x00hello")
        said = b""
        while said != struct.pack("<H", 8080) + b"hello":
            message = await socket.receive_bytes()
            said += message[1:] if message[0] == 0 else b""


async def test_run(client):
    async with client.session() as session:
        async with session.post("/run/default/api/main?cmd=echo+hi") as answer:
            assert (answer.status, await answer.text()) == (200, "hi\n")
        async with session.post("/run/default/api/main?cmd=cat+/nowhere") as answer:
            assert answer.status == 500
            assert (await answer.text()).startswith("command 'cat /nowhere' exited with 1: cat: can't open '/nowhere'")


async def test_logs_are_followed(client):
    async with client.session() as session:
        async with session.get("/containerLogs/default/api/main?follow=true") as answer:
            assert await answer.content.readline() == b"started\n"
            async with client.websocket("/attach/default/api/main?input=1&output=1") as socket:
                await socket.send_bytes(b"\x00more\n")
                assert await answer.content.readline() == b"heard more\n"
        async with session.get("/containerLogs/default/api/main?tailLines=1") as answer:
            assert await answer.text() == "heard more\n"


async def test_a_container_that_is_gone(client, cri):
    await cri.stop_container(pb.StopContainerRequest(container_id=client.container, timeout=0))
    async with client.spdy("/exec/default/api/main?command=cat&output=1", "v4.channel.k8s.io") as (answer, spdy):
        assert answer.startswith("HTTP/1.1 500 ")
        assert await spdy.reader.readexactly(len('container not found ("main")')) == b'container not found ("main")'

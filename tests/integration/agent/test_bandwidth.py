"""Bandwidth annotations, measured: how many bytes a second go between a pod and the node's bridge."""

import asyncio
import socket
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

import pytest

from klet.aio.clock import SystemClock

INGRESS, EGRESS = "kubernetes.io/ingress-bandwidth", "kubernetes.io/egress-bandwidth"
LIMIT, RATE = "1M", 125_000
"""In bits, and in bytes a second."""
WINDOW = timedelta(seconds=3)
DEADLINE = 150
"""At first bytes go at any speed: containerd gives the network plugin the largest burst that it can write, 512 MiB."""
PORT = 7171
SEND = "while true; do nc {gateway} {port} < /dev/zero; sleep 0.2; done"
RECEIVE = "while true; do nc -l -p {port} > /dev/null; done"
CHUNK = bytes(1 << 14)


class Transfer:
    """Counts the bytes that go."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._seen = 0
        self._goes = asyncio.Event()

    def count(self, size: int) -> None:
        self._seen += size
        self._goes.set()

    async def rate(self, *, until_below: float = 1 << 40) -> float:
        """Return the bytes a second of the first window in which they are less than that."""
        await self._goes.wait()
        while True:
            began, before = self._clock.monotonic(), self._seen
            await self._clock.sleep(WINDOW)
            rate = (self._seen - before) / (self._clock.monotonic() - began)
            if rate < until_below:
                return rate


@asynccontextmanager
async def received(gateway: str, transfer: Transfer):
    """Take what pods send."""

    open_ones: set[asyncio.StreamWriter] = set()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_ones.add(writer)
        with suppress(ConnectionError):
            while chunk := await reader.read(1 << 16):
                transfer.count(len(chunk))
        writer.transport.abort()
        open_ones.discard(writer)

    server = await asyncio.start_server(take, gateway, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in open_ones:
            writer.transport.abort()
        while open_ones:  # noqa: ASYNC110 - the loop closes them in its next turns
            await asyncio.sleep(0)


async def send(address: str, transfer: Transfer) -> None:
    """Send until the end of the test; the pod may not listen yet."""
    clock, loop = SystemClock(), asyncio.get_running_loop()
    while True:
        connection = socket.socket()
        connection.setblocking(False)
        # A large buffer would be filled in leaps, with long pauses in between.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, len(CHUNK))
        try:
            await loop.sock_connect(connection, (address, PORT))
        except ConnectionError:
            connection.close()
            await clock.sleep(timedelta(milliseconds=100))
            continue
        _, writer = await asyncio.open_connection(sock=connection)
        try:
            while True:
                writer.write(CHUNK)
                await writer.drain()
                transfer.count(len(CHUNK))
        finally:
            writer.transport.abort()


def with_annotations(pod: dict, annotations: dict[str, str]) -> dict:
    pod["metadata"]["annotations"] = annotations
    return pod


@pytest.fixture
async def bridge(node, manifest, containerd):
    """The address of the node's bridge, which is there once a pod is."""
    node.write("first", manifest("first", main="sleep 1000"))
    async with node.run() as agent:
        await agent.recorded("first", "Ready")
        yield agent, str(next(containerd.subnet.hosts()))


@pytest.mark.deadline(DEADLINE + 60)
async def test_what_a_pod_sends_is_limited(node, manifest, bridge):
    agent, gateway = bridge
    transfer = Transfer()
    async with received(gateway, transfer) as port, asyncio.timeout(DEADLINE):
        script = SEND.format(gateway=gateway, port=port)
        node.write("pod", with_annotations(manifest("pod", main=script), {EGRESS: LIMIT}))
        await agent.recorded("pod", "Ready")
        assert await transfer.rate(until_below=1.3 * RATE) > 0.6 * RATE


@pytest.mark.deadline(DEADLINE + 60)
async def test_what_a_pod_receives_is_limited(node, manifest, bridge):
    agent, _ = bridge
    transfer = Transfer()
    node.write("pod", with_annotations(manifest("pod", main=RECEIVE.format(port=PORT)), {INGRESS: LIMIT}))
    await agent.recorded("pod", "Ready")
    address = (await agent.pod("pod")).status.pod_ip
    async with asyncio.timeout(DEADLINE), asyncio.TaskGroup() as group:
        sender = group.create_task(send(address, transfer))
        assert await transfer.rate(until_below=1.3 * RATE) > 0.6 * RATE
        sender.cancel()


async def test_a_limit_of_one_direction_leaves_the_other_alone(node, manifest, bridge):
    agent, gateway = bridge
    transfer = Transfer()
    async with received(gateway, transfer) as port, asyncio.timeout(60):
        script = SEND.format(gateway=gateway, port=port)
        node.write("pod", with_annotations(manifest("pod", main=script), {INGRESS: LIMIT}))
        await agent.recorded("pod", "Ready")
        assert await transfer.rate() > 8 * RATE


async def test_a_limit_that_is_none_keeps_a_pod_from_starting_and_is_named(node, manifest):
    node.write("pod", with_annotations(manifest("pod", main="sleep 1000"), {EGRESS: "80"}))
    async with node.run() as agent:
        [record] = await agent.recorded("pod", "FailedCreatePodSandBox")
    assert record["message"] == (
        f'Failed to create pod sandbox: reading pod bandwidth annotations: {EGRESS} "80": '
        "resource is unreasonably small (< 1kbit)"
    )

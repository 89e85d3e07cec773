"""exec, attach and port forwarding: bytes of both sides pass through unread, and ends and errors are passed on."""

import asyncio
import hashlib
import os
import resource
import socket
import ssl
from contextlib import suppress

import pytest

from klet.testing.fake_runtime.calls import CallRecord

PROMPTLY = 30
EXEC = "/exec/default/web/main?command=sh&command=-c&input=1&output=1"
SPDY = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n"
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"


def upgrade(path=EXEC, *, method="POST", headers=SPDY):
    return f"{method} {path} HTTP/1.1\r\nHost: node:10250\r\n{headers}\r\n".encode()


async def answer_of(reader):
    """Status, headers and body of a plain answer."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return int(head.split(" ")[1]), headers, body.decode()


def asked(kubelet, rpc):
    return [each.request for each in kubelet.runtime.calls if isinstance(each, CallRecord) and each.rpc == rpc]


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_an_exec_is_spliced(kubelet, method):
    async with kubelet.connected() as (reader, writer):
        writer.write(upgrade(method=method))
        assert await reader.readexactly(len(SWITCHED)) == SWITCHED
        writer.write(b"\x80\x03\x00\x01 not for the kubelet")
        assert await reader.readexactly(24) == b"\x80\x03\x00\x01 not for the kubelet"
    [head] = kubelet.streamer.heads
    first, *headers = head.decode().rstrip("\r\n").split("\r\n")
    assert first.startswith(f"{method} /exec/")
    assert first.endswith(" HTTP/1.1")
    assert "command" not in first
    assert headers == [
        "Host: node:10250",
        "Connection: Upgrade",
        "Upgrade: SPDY/3.1",
        "X-Stream-Protocol-Version: v4.channel.k8s.io",
        "X-Forwarded-For: 127.0.0.1",
    ]
    [wanted] = asked(kubelet, "Exec")
    assert (tuple(wanted.cmd), wanted.stdin, wanted.stdout, wanted.stderr, wanted.tty) == (
        ("sh", "-c"),
        *(True, True, False, False),
    )


@pytest.mark.parametrize(
    "path",
    [
        "/attach/default/web/main?output=1",
        "/attach/default/web/web-uid/main?output=1",
        "/attach/default/web/web-mirror-uid/main?output=1",
        "/exec/default/web/web-uid/main?output=1&command=ls",
        "/exec/default/web/web-mirror-uid/main?output=1&command=ls",
        "/portForward/default/web",
        "/portForward/default/web/web-uid",
        "/portForward/default/web/web-mirror-uid",
        "/%65xec/default/web/main?output=1&command=ls",
    ],
)
async def test_the_others_are_spliced_too(kubelet, path):
    async with kubelet.connected() as (reader, writer):
        writer.write(upgrade(path) + b"early")
        assert await reader.readexactly(len(SWITCHED) + 5) == SWITCHED + b"early"


async def test_credentials_stay_here(kubelet):
    headers = (
        SPDY + "Authorization: Bearer secret\r\nX-Forwarded-For: 10.0.0.1\r\n"
        "Sec-WebSocket-Protocol: v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0\r\n"
    )
    async with kubelet.connected() as (reader, writer):
        writer.write(upgrade(headers=headers))
        await reader.readexactly(len(SWITCHED))
    [head] = kubelet.streamer.heads
    assert b"secret" not in head.lower()
    assert b"c2VjcmV0" not in head
    assert b"Sec-WebSocket-Protocol: v4.channel.k8s.io\r\n" in head
    assert b"X-Forwarded-For: 10.0.0.1, 127.0.0.1\r\n" in head


async def test_an_upgrade_after_plain_requests_on_the_same_connection(kubelet):
    async with kubelet.connected() as (reader, writer):
        chunked = b"POST /stats/x HTTP/1.1\r\nHost: n\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
        sized = b"PUT /pods HTTP/1.1\r\nHost: n\r\nContent-Length: 4\r\n\r\nbody"
        plain = b"GET /healthz HTTP/1.1\r\nHost: n\r\n\r\n"
        for request, status in ((plain, 200), (sized, 405), (chunked, 404), (plain, 200)):
            writer.write(request)
            assert (await answer_of(reader))[0] == status
        writer.write(plain + sized + plain + upgrade() + b"early")
        assert [(await answer_of(reader))[0] for _ in range(3)] == [200, 405, 200]
        assert await reader.readexactly(len(SWITCHED) + 5) == SWITCHED + b"early"


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("/exec/default/gone/main?output=1", id="the kubelet refuses"),
        pytest.param("/healthz", id="there is nothing to upgrade to"),
        pytest.param(EXEC, id="the runtime refuses"),
    ],
)
async def test_a_refused_upgrade_closes_the_connection_and_drops_what_followed(kubelet, path):
    kubelet.streamer.behave = refuse_sized
    async with kubelet.connected() as (reader, writer):
        writer.write(upgrade(path) + b"GET /healthz HTTP/1.1\r\nHost: n\r\n\r\n")
        status, headers, _ = await answer_of(reader)
        assert (status in {200, 403, 404}, headers["connection"]) == (True, "close")
        assert await reader.read() == b""


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("/exec/default/web/main?command=ls", 400, "you must specify at least 1 of stdin, stdout, stderr"),
        ("/exec/default/web/main?error=1&tty=1", 400, "you must specify at least 1 of stdin, stdout, stderr"),
        ("/exec/default/gone/main?output=1", 404, "pod does not exist"),
        ("/exec/default/web/gone?output=1", 500, 'container not found ("gone")'),
        ("/exec/default/web/other-uid/main?output=1", 500, 'container not found ("main")'),
        ("/attach/default/web/gone?output=1", 500, "container gone not found in pod web_default"),
        ("/portForward/default/gone", 404, "pod does not exist"),
        ("/portForward/default/web/other-uid", 404, "pod not found"),
        ("/exec/default", 404, "404: Page Not Found"),
        ("/exec/", 404, "404: Page Not Found"),
    ],
)
async def test_what_cannot_be_streamed(kubelet, path, status, body):
    async with kubelet.connected() as (reader, writer):
        writer.write(upgrade(path))
        got, _, text = await answer_of(reader)
        assert (got, text) == (status, body)
    assert kubelet.streamer.heads == []


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("/exec/default/web/vault-uid/main?output=1", 500, 'container not found ("main")'),
        ("/attach/default/web/vault-uid/main?output=1", 500, "container main not found in pod web_default"),
        ("/portForward/default/web/vault-uid", 404, "pod not found"),
        ("/run/default/web/vault-uid/main?cmd=true", 500, 'container not found ("main")'),
    ],
)
async def test_the_uid_of_another_pod_does_not_lead_there(start, path, status, body):
    async with start(with_vault=True) as kubelet, kubelet.connected() as (reader, writer):
        writer.write(upgrade(path))
        got, _, text = await answer_of(reader)
        assert (got, text) == (status, body)
        assert not any(asked(kubelet, rpc) for rpc in ("Exec", "Attach", "PortForward", "ExecSync"))


async def test_without_an_upgrade_there_is_no_stream(kubelet):
    assert await kubelet.get(EXEC) == (500, "Upgrade request required\n")
    assert await kubelet.get("/portForward/default/web", method="POST") == (500, "Upgrade request required\n")
    assert await kubelet.get(EXEC, method="DELETE") == (405, "405: Method Not Allowed")


async def test_an_attached_client_gets_the_terminal_of_the_container(kubelet):
    async with kubelet.connected() as (reader, writer):
        writer.write(upgrade("/attach/default/web/main?output=1&tty=1"))
        await reader.readexactly(len(SWITCHED))
    [wanted] = asked(kubelet, "Attach")
    assert not wanted.tty


WEBSOCKET = "Connection: Upgrade\r\nUpgrade: websocket\r\n"


@pytest.mark.parametrize(
    ("query", "body"),
    [
        ("", 'query parameter "port" is required'),
        ("?port=0", 'port "0" must be > 0'),
    ],
)
async def test_a_websocket_names_its_ports(kubelet, query, body):
    async with kubelet.connected() as (reader, writer):
        writer.write(upgrade(f"/portForward/default/web{query}", method="GET", headers=WEBSOCKET))
        assert (await answer_of(reader))[::2] == (400, body)
    async with kubelet.connected() as (reader, writer):
        writer.write(upgrade("/portForward/default/web?port=80,81&port=90", method="GET", headers=WEBSOCKET))
        assert await reader.readexactly(len(SWITCHED)) == SWITCHED
    assert [list(each.port) for each in asked(kubelet, "PortForward")] == [[80, 81, 90]]


async def refuse_sized(_reader, writer):
    writer.write(b"HTTP/1.1 403 Forbidden\r\nX-Accepted: v4\r\nContent-Length: 9\r\n\r\nnot today")
    await asyncio.Event().wait()


async def refuse_chunked(_reader, writer):
    writer.write(b"HTTP/1.1 403 Forbidden\r\nX-Accepted: v4\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nnot\r\n")
    await writer.drain()
    writer.write(b"6\r\n today\r\n0\r\n\r\n")
    await asyncio.Event().wait()


async def refuse_until_the_end(_reader, writer):
    writer.write(b"HTTP/1.1 403 Forbidden\r\nX-Accepted: v4\r\n\r\nnot today")


@pytest.mark.parametrize("behave", [refuse_sized, refuse_chunked, refuse_until_the_end])
async def test_the_runtimes_refusal_is_the_answer(kubelet, behave):
    kubelet.streamer.behave = behave
    async with kubelet.connected() as (reader, writer):
        writer.write(upgrade())
        status, headers, body = await answer_of(reader)
        assert (status, headers["x-accepted"], body) == (403, "v4", "not today")


async def agree_in_plain(_reader, writer):
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


async def talk_nonsense(_reader, writer):
    writer.write(b"what?\r\n\r\n")


async def never_end_the_head(_reader, writer):
    with suppress(ConnectionError):
        while True:
            writer.write(b"HTTP/1.1 101 x" * 1000)
            await writer.drain()


async def hang_up(_reader, _writer):
    pass


@pytest.mark.parametrize(
    ("behave", "body"),
    [
        (agree_in_plain, "invalid upgrade response: status code 200\n"),
        (talk_nonsense, "the runtime's streaming endpoint answered with something that is not HTTP\n"),
        (never_end_the_head, "the runtime's streaming endpoint answered with headers without end\n"),
        (hang_up, "the runtime's streaming endpoint hung up without an answer\n"),
    ],
)
async def test_a_streaming_endpoint_that_does_not_stream(kubelet, behave, body):
    kubelet.streamer.behave = behave
    async with kubelet.connected() as (reader, writer):
        writer.write(upgrade())
        assert (await answer_of(reader))[::2] == (500, body)


async def test_no_streaming_endpoint_at_all(kubelet):
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{reserved.getsockname()[1]}"
        kubelet.runtime._world.features = kubelet.runtime._world.features.__class__(streaming_url=url)
        async with kubelet.connected() as (reader, writer):
            writer.write(upgrade())
            status, _, body = await answer_of(reader)
    assert status == 500
    assert body.startswith("error dialing backend: ")


async def say_after_the_end(reader, writer):
    writer.write(SWITCHED)
    data = await reader.read()
    writer.write(b"heard %d" % len(data))


async def test_a_client_that_has_sent_all_still_gets_the_rest(kubelet):
    kubelet.streamer.behave = say_after_the_end
    reader, writer = await asyncio.open_unix_connection(str(kubelet.socket))
    async with asyncio.timeout(PROMPTLY):
        writer.write(upgrade() + b"x" * 100_000)
        writer.write_eof()
        assert await reader.read() == SWITCHED + b"heard 100000"
    writer.close()
    await writer.wait_closed()


class TlsClient:
    """A client that can end its own half of TLS, which asyncio's cannot."""

    def __init__(self, reader, writer, context):
        self.reader, self.writer = reader, writer
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="127.0.0.1")
        self.has_fin = False

    async def do(self, step, *arguments):
        while True:
            try:
                return step(*arguments)
            except ssl.SSLWantReadError:
                await self.flush()
                data = await self.reader.read(1 << 16)
                if not data:
                    self.has_fin = True
                    self.incoming.write_eof()
                self.incoming.write(data)
            finally:
                await self.flush()

    async def flush(self):
        self.writer.write(self.outgoing.read())
        await self.writer.drain()

    async def read_all(self):
        pieces = []
        while True:
            try:
                piece = await self.do(self.tls.read, 1 << 16)
            except ssl.SSLZeroReturnError:
                break
            if not piece:
                break
            pieces.append(piece)
        return b"".join(pieces)

    async def end_own_half(self):
        with suppress(ssl.SSLWantReadError):
            self.tls.unwrap()
        await self.flush()


@pytest.fixture
async def half_closing(kubelet):
    reader, writer = await asyncio.open_connection("127.0.0.1", kubelet.port)
    client = TlsClient(reader, writer, kubelet.pki.client("admin"))
    async with asyncio.timeout(PROMPTLY):
        await client.do(client.tls.do_handshake)
        yield client
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def test_half_closes_over_tls(kubelet, half_closing):
    kubelet.streamer.behave = say_after_the_end
    await half_closing.do(half_closing.tls.write, upgrade() + b"x" * 100_000)
    await half_closing.end_own_half()
    assert await half_closing.read_all() == SWITCHED + b"heard 100000"
    assert not half_closing.has_fin


async def listen_after_the_end(reader, writer):
    writer.write(SWITCHED + b"that was all")
    writer.write_eof()
    heard.append(await reader.read())


heard: list[bytes] = []


async def test_a_runtime_that_has_sent_all_still_gets_the_rest(kubelet, half_closing):
    heard.clear()
    kubelet.streamer.behave = listen_after_the_end
    await half_closing.do(half_closing.tls.write, upgrade())
    assert await half_closing.read_all() == SWITCHED + b"that was all"
    await half_closing.do(half_closing.tls.write, b"one more thing")
    await half_closing.end_own_half()
    await kubelet.streamer.ended.wait()
    assert heard == [b"one more thing"]


async def test_a_client_that_goes_ends_the_stream(kubelet):
    async with kubelet.connected() as (reader, writer):
        writer.write(upgrade())
        await reader.readexactly(len(SWITCHED))
        writer.transport.abort()
        await kubelet.streamer.ended.wait()


async def test_a_client_that_goes_while_the_runtime_thinks_ends_the_request(kubelet):
    async def think(reader, _writer):
        thinking.set()
        await reader.read()

    thinking = asyncio.Event()
    kubelet.streamer.behave = think
    async with kubelet.connected() as (_, writer):
        writer.write(upgrade())
        await thinking.wait()
        writer.transport.abort()
        await kubelet.streamer.ended.wait()


async def test_a_runtime_that_goes_ends_the_stream(kubelet):
    async def reset(_reader, writer):
        writer.write(SWITCHED + b"x" * 1000)
        await writer.drain()

    kubelet.streamer.behave = reset
    async with kubelet.connected() as (reader, writer):
        writer.write(upgrade())
        assert await reader.read() == SWITCHED + b"x" * 1000


async def test_much_passes_both_ways_and_nothing_piles_up(kubelet):
    size = 48 << 20
    piece = os.urandom(1 << 16)
    sent, got = hashlib.sha256(), hashlib.sha256()

    async def send(writer):
        for _ in range(size // len(piece)):
            writer.write(piece)
            sent.update(piece)
            await writer.drain()

    async with kubelet.connected() as (reader, writer):
        writer.write(upgrade())
        await reader.readexactly(len(SWITCHED))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        async with asyncio.TaskGroup() as group:
            group.create_task(send(writer))
            left = size
            while left:
                data = await reader.read(min(left, 1 << 18))
                got.update(data)
                left -= len(data)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert got.digest() == sent.digest()
    assert grown < 8 << 10, f"{grown} KiB more than before"


async def test_a_runtime_that_does_not_listen_holds_up_its_client_alone(kubelet):
    async def ignore(_reader, writer):
        writer.write(SWITCHED)
        await writer.drain()
        await asyncio.Event().wait()

    kubelet.streamer.behave = ignore
    async with kubelet.connected() as (reader, writer):
        writer.write(upgrade())
        await reader.readexactly(len(SWITCHED))
        sent = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                while sent < 256 << 20:
                    writer.write(b"x" * (1 << 16))
                    await writer.drain()
                    sent += 1 << 16
        assert sent < 64 << 20  # what the kernel's buffers and ours hold
        assert await kubelet.get("/healthz") == (200, "ok")
        writer.transport.abort()


async def refuse_after_body(reader, writer):
    """As a Go server does: an answer that refuses comes when the body was read."""
    await reader.readexactly(4)
    writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")


async def test_a_body_before_an_upgrade_reaches_the_runtime(kubelet):
    kubelet.streamer.behave = refuse_after_body
    async with asyncio.timeout(PROMPTLY), kubelet.connected() as (reader, writer):
        writer.write(upgrade(headers=SPDY + "Content-Length: 4\r\nExpect: 100-continue\r\n"))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"body" + b"GET /healthz HTTP/1.1\r\nHost: n\r\n\r\n")
        assert (await answer_of(reader))[::2] == (403, "no")
        assert await reader.read() == b""
    [head] = kubelet.streamer.heads
    assert b"Content-Length: 4\r\n" in head
    assert b"Expect" not in head


@pytest.mark.parametrize(
    ("header", "body"),
    [
        pytest.param("Content-Length: 4", b"body", id="sized"),
        pytest.param("Transfer-Encoding: chunked", b"4\r\nbody\r\n0\r\n\r\n", id="chunked"),
    ],
)
async def test_an_upgrade_with_a_body_is_spliced(kubelet, header, body):
    async with asyncio.timeout(PROMPTLY), kubelet.connected() as (reader, writer):
        writer.write(upgrade(headers=f"{SPDY}{header}\r\n") + body + b"early")
        assert await reader.readexactly(len(SWITCHED) + 9) == SWITCHED + b"bodyearly"
    assert b"Content-Length: 4\r\n" in kubelet.streamer.heads[0]


async def test_the_body_of_a_refused_upgrade_is_no_request(kubelet):
    smuggled = b"GET /pods HTTP/1.1\r\nHost: n\r\n\r\n"
    async with asyncio.timeout(PROMPTLY), kubelet.connected() as (reader, writer):
        gone = upgrade("/exec/default/gone/main?output=1", headers=f"{SPDY}Content-Length: {len(smuggled)}\r\n")
        writer.write(gone + smuggled + b"GET /healthz HTTP/1.1\r\nHost: n\r\n\r\n")
        assert (await answer_of(reader))[::2] == (404, "pod does not exist")
        assert await reader.read() == b""

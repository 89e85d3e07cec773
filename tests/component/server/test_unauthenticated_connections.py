"""Floods of unauthenticated clients close their own connections, and none of a client with a certificate or token."""

import asyncio
import itertools
from contextlib import suppress

import pytest
from msgspec.structs import replace

from klet.api.authentication import TokenReviewStatus, UserInfo
from klet.server.connection_limits import UnauthenticatedLimits
from klet.server.listener import ListenerLimits

PROMPTLY = 10
FEW = ListenerLimits(unauthenticated=UnauthenticatedLimits(connections=8, sessions=4))
GET = b"GET /healthz HTTP/1.1\r\nHost: n\r\n%s\r\n"


class Api:
    """Knows one token."""

    async def review(self, _path, body):
        user = UserInfo(username="jane") if body.spec.token == "good" else UserInfo()
        return replace(body, status=TokenReviewStatus(authenticated=bool(user.username), user=user))


async def status_of(connection, header=b""):
    reader, writer = connection
    writer.write(GET % header)
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    await reader.readexactly(length)
    return int(head.split(b" ")[1])


async def close(*connections):
    for _, writer in connections:
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()


@pytest.mark.parametrize("has_handshake", [True, False])
async def test_a_flood_closes_its_own_connections(start, has_handshake):
    async with start(limits=FEW, reviewer=Api()) as kubelet, asyncio.timeout(PROMPTLY):
        admin, jane = await kubelet.connect(), await kubelet.connect(None)
        assert await status_of(admin) == 200
        assert await status_of(jane, b"Authorization: Bearer good\r\n") == 200
        flood = []
        for _ in range(40):
            if has_handshake:
                flood.append(await kubelet.connect(None))
            else:
                flood.append(await asyncio.open_connection("127.0.0.1", kubelet.port))
        assert await kubelet.get("/healthz") == (200, "ok")
        assert await status_of(admin) == 200
        assert await status_of(jane, b"Authorization: Bearer good\r\n") == 200
        limit = FEW.unauthenticated.sessions if has_handshake else FEW.unauthenticated.connections
        for reader, _ in flood[: -2 * limit]:
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
        await close(*flood, admin, jane)


async def test_a_refused_client_stays_unauthenticated(start):
    async with start(limits=FEW, reviewer=Api()) as kubelet, asyncio.timeout(PROMPTLY):
        first = await kubelet.connect(None)
        assert await status_of(first, b"Authorization: Bearer bad\r\n") == 401
        flood = [await kubelet.connect(None) for _ in range(8)]
        with suppress(ConnectionResetError):
            assert await first[0].read() == b""
        await close(first, *flood)


async def test_an_anonymous_stream_in_progress_is_not_closed(start):
    async with start(limits=FEW, allows_anonymous=True) as kubelet, asyncio.timeout(PROMPTLY):
        reader, writer = await kubelet.connect(None)
        head = b"POST /exec/default/web/main?output=1&command=sh HTTP/1.1\r\nHost: n\r\n"
        writer.write(head + b"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        flood = [await kubelet.connect(None) for _ in range(12)]
        writer.write(b"still here")
        assert await reader.readexactly(10) == b"still here"
        await close((reader, writer), *flood)


async def test_many_heads_at_once_take_bounded_memory(start):
    limits = ListenerLimits(unauthenticated=UnauthenticatedLimits(bytes_kept=200_000))
    async with start(limits=limits) as kubelet, asyncio.timeout(PROMPTLY):
        flood = [await kubelet.connect(None) for _ in range(10)]
        for _, writer in flood:
            writer.write(b"GET / HTTP/1.1\r\nX: " + b"a" * 40_000)
            await writer.drain()
        ends = [asyncio.ensure_future(reader.read()) for reader, _ in flood]
        for end in itertools.islice(asyncio.as_completed(ends), 5):
            with suppress(ConnectionResetError):
                assert await end == b""
        assert await kubelet.get("/healthz") == (200, "ok")
        await close(*flood)
        await asyncio.gather(*ends, return_exceptions=True)

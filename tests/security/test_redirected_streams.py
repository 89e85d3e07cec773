"""Streams that are redirected (CVE-2020-8559): to follow would send credentials or commands somewhere else."""

import asyncio

import pytest

from klet.testing.fake_runtime.world import Features

pytestmark = pytest.mark.asyncio(loop_scope="session")

EXEC = "/exec/default/web/main?command=id&output=1"
UPGRADE = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"


class Elsewhere:
    """A place to which nobody should connect."""

    def __init__(self):
        self.visits = 0

    async def answer(self, _reader, writer):
        self.visits += 1
        writer.close()


@pytest.fixture
async def elsewhere(node_api):
    place = Elsewhere()
    server = await asyncio.start_server(place.answer, "127.0.0.1", 0)
    place.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/taken"
    yield place
    server.close()


def upgrade(path=EXEC):
    return f"POST {path} HTTP/1.1\r\nHost: n\r\n{UPGRADE}\r\n".encode()


@pytest.mark.parametrize("status", ["301", "302", "303", "307", "308", "304", "200", "102"])
async def test_a_redirect_of_the_runtime_is_neither_followed_nor_passed_on(node_api, elsewhere, status):
    async def redirect(_reader, writer):
        writer.write(f"HTTP/1.1 {status} Moved\r\nLocation: {elsewhere.url}\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()

    node_api.streamer.behave = redirect
    said = await node_api.send(upgrade())
    assert said.startswith(b"HTTP/1.1 500 ")
    assert b"location" not in said.lower()
    assert b"/taken" not in said
    assert elsewhere.visits == 0


@pytest.mark.parametrize(
    "url", ["file:///etc/hostname", "unix:///run/x.sock", "ftp://127.0.0.1/x", "//127.0.0.1/x", ""]
)
async def test_an_address_that_is_no_streaming_endpoint_is_refused(node_api, url):
    world = node_api.runtime._world
    world.features, before = Features(streaming_url=url), world.features
    try:
        said = await node_api.send(upgrade())
    finally:
        world.features = before
    assert said.startswith(b"HTTP/1.1 500 ")


async def test_credentials_do_not_reach_the_runtime(node_api):
    upgrade_head = upgrade().replace(b"\r\n\r\n", b"\r\nAuthorization: Bearer client-token\r\n\r\n")
    websocket = upgrade_head.replace(b"SPDY/3.1", b"websocket").replace(
        b"Authorization: Bearer client-token",
        b"Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.Y2xpZW50LXRva2Vu, v4.channel.k8s.io",
    )

    async def end(_reader, _writer):
        return

    node_api.streamer.behave = end
    for head in (upgrade_head, websocket):
        await node_api.send(head)
    assert len(node_api.streamer.heads) == 2
    assert not any(b"client-token" in head or b"Y2xpZW50" in head for head in node_api.streamer.heads)


async def test_paths_of_the_client_lead_nowhere_else(node_api):
    """A doubled slash or a whole URL as the target must not become a `Location` to another host."""
    for target in (
        "//evil.example/pods",
        "///evil.example/",
        "http://evil.example/pods",
        "/\\evil.example/runningpods",
    ):
        said = await node_api.send(f"GET {target} HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n".encode())
        assert b"evil.example" not in said

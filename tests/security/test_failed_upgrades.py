"""Requests behind an upgrade that failed (CVE-2018-1002105): a proxy that believes in it passes them on unchecked."""

import pytest

pytestmark = pytest.mark.asyncio(loop_scope="session")

HIDDEN = b"POST /run/default/web/main?cmd=behind HTTP/1.1\r\nHost: n\r\nContent-Length: 0\r\n\r\n"
UPGRADE = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n"


def upgrade(path):
    return f"POST {path} HTTP/1.1\r\nHost: n\r\n{UPGRADE}\r\n".encode()


async def refuse(_reader, writer):
    writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
    await writer.drain()


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("/exec/default/web/main?command=id", id="no stream is asked for"),
        pytest.param("/exec/default/gone/main?command=id&output=1", id="no such pod"),
        pytest.param("/exec/default/web/gone?command=id&output=1", id="no such container"),
        pytest.param("/exec/default/web/main?command=id&output=1", id="the runtime refuses"),
        pytest.param("/portForward/default/gone", id="no such pod to forward to"),
        pytest.param("/healthz", id="nothing to upgrade to"),
        pytest.param("/pods", id="a path of another method"),
        pytest.param("/nothing", id="no path at all"),
    ],
)
async def test_the_connection_ends_and_what_follows_is_dropped(node_api, path):
    node_api.streamer.behave = refuse
    said = await node_api.send(upgrade(path) + HIDDEN)
    assert said.count(b"HTTP/1.1 ") == 1
    assert b"HTTP/1.1 101" not in said
    assert b"connection: close" in said.lower()
    assert node_api.calls("ExecSync") == []
    assert not any(b"behind" in head for head in node_api.streamer.heads)

"""Metric labels, log lines and memory from request paths: clients choose as many as they like."""

import pytest

pytestmark = pytest.mark.asyncio(loop_scope="session")

PATHS, LINES = 1000, 60


def requests(prefix):
    """All on one connection, the last one ends it."""
    heads = [f"GET /{prefix}-{number}/{'x' * 200} HTTP/1.1\r\nHost: n\r\n" for number in range(PATHS)]
    return ("\r\n".join(heads) + "Connection: close\r\n\r\n").encode()


async def test_paths_leave_nothing_behind(node_api):
    await node_api.send(requests("first"), who=None, port=node_api.healthz_port)
    lines, memory = len(node_api.agent.log.splitlines()), node_api.memory()
    said = await node_api.send(requests("second"), who=None, port=node_api.healthz_port)
    said += await node_api.send(requests("third"), who="admin")
    assert said.count(b"HTTP/1.1 404") >= 2 * PATHS - 1
    assert len(node_api.agent.log.splitlines()) - lines < LINES
    assert node_api.memory() - memory < 4 << 20
    # Requests that are refused are worth a line each, but only so many.
    heads = [f"GET /pods?{n} HTTP/1.1\r\nHost: n\r\nAuthorization: Bearer bad\r\n" for n in range(2 * LINES)]
    said = await node_api.send(("\r\n".join(heads) + "Connection: close\r\n\r\n").encode(), who=None)
    assert said.count(b"HTTP/1.1 401") == 2 * LINES
    assert len(node_api.agent.log.splitlines()) - lines < LINES
    # Where there are metrics one day, no path is in them.
    assert "third-1" not in (await node_api.ask("/metrics"))[1]

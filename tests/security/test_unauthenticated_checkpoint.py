"""Checkpoints of containers from a port without a check (CVE-2025-0426): each writes the memory of one to disk."""

import pytest

pytestmark = pytest.mark.asyncio(loop_scope="session")

PATH = "/checkpoint/default/web/main"


@pytest.mark.parametrize("method", ["POST", "GET", "PUT"])
async def test_nobody_makes_the_runtime_write_one(node_api, method):
    for port in (node_api.port, node_api.healthz_port, node_api.read_only_port):
        status, _ = await node_api.ask(PATH, who=None, method=method, port=port)
        assert status in {401, 404, 405}
    assert node_api.calls("CheckpointContainer") == []


async def test_a_reader_does_not_either(node_api):
    status, _ = await node_api.ask(PATH, who=None, method="POST", headers={"Authorization": "Bearer reader-token"})
    assert status in {403, 404}
    assert node_api.calls("CheckpointContainer") == []

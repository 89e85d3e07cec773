"""A node whose API server accepts connections and sends nothing, or refuses: signals are handled all the same."""

import asyncio
import json

import pytest

pytestmark = [pytest.mark.root, pytest.mark.containerd]


def kubeconfig(path, port):
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(json.dumps(config))
    return f"--kubeconfig={path}"


@pytest.fixture
async def silent_port():
    """Somebody who listens and never answers."""
    held = []

    async def hold(reader, writer):
        held.append(writer)
        await reader.read()

    async with await asyncio.start_server(hold, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
        for writer in held:
            writer.close()


@pytest.mark.parametrize("offline", [[], ["--klet-offline"]], ids=["as upstream", "offline"])
async def test_a_signal_while_the_node_registers_ends_the_agent_in_good_order(node, silent_port, tmp_path, offline):
    async with node.run(kubeconfig(tmp_path / "kubeconfig", silent_port), *offline) as agent:
        async with asyncio.timeout(30):  # less than any request to the API server may take
            assert await agent.stop() == 0
        assert "Stopping; pods keep running" in agent.log
        assert "Traceback" not in agent.log
    assert not (node.root / "klet.sock").exists()

"""The client against a real HTTP server on a Unix socket."""

import asyncio
import json

import pytest
from aiohttp import web

from klet.aio.clock import SystemClock
from klet.cli.client import AgentClient, AgentError, AgentUnavailable
from klet.cli.explain import print_explanation
from klet.cli.journal_feed import JournalFeed
from klet.cli.names import UnclearName

POD = b'{"metadata":{"name":"web-node","namespace":"default","uid":"u"},"spec":{"nodeName":"node","containers":[]}}'
RECORD = (
    b'{"id":"1","at":"2030-01-01T00:00:00Z","subject":{"namespace":"default","name":"web-node"},"decision":"Start"}\n'
)

NODE = b'{"node":{"name":"n1"},"now":"2030-01-01T00:00:00Z","ready":true,"summary":"nothing is wrong"}'


class FakeAgent:
    """The agent's paths with scripted answers."""

    def __init__(self):
        self.queries = []
        self.release = asyncio.Event()

    def application(self):
        application = web.Application()
        application.router.add_get("/healthz", self.health)
        application.router.add_get("/pods", self.pods)
        application.router.add_get("/klet/v1/pods", self.pods)
        application.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self.logs)
        application.router.add_get("/klet/v1/explain/{namespace}/{pod}", self.explain)
        application.router.add_get("/klet/v1/node", self.node)
        application.router.add_get("/klet/v1/journal", self.journal)
        return application

    async def health(self, _request):
        return web.Response(text="ok")

    async def pods(self, _request):
        return web.Response(body=b'{"items":[' + POD + b"]}", content_type="application/json")

    async def explain(self, _request):
        return web.Response(status=404, text="nothing is recorded")

    async def node(self, _request):
        return web.Response(body=NODE, content_type="application/json")

    async def logs(self, request):
        self.queries.append((request.path, dict(request.query)))
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"first\n")
        await self.release.wait()
        await response.write(b"second\n")
        await response.write_eof()
        return response

    async def journal(self, request):
        self.queries.append((request.path, dict(request.query)))
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(RECORD[:20])
        await response.write(RECORD[20:] + RECORD[:10])
        await self.release.wait()
        return response


@pytest.fixture
async def agent(tmp_path):
    fake = FakeAgent()
    runner = web.AppRunner(fake.application(), shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.UnixSite(runner, str(tmp_path / "klet.sock")).start()
    yield fake
    await runner.cleanup()


@pytest.fixture
def client(tmp_path):
    return AgentClient(socket_path=tmp_path / "klet.sock", is_supervised=lambda: False)


async def test_pods_and_health(agent, client):
    assert await asyncio.to_thread(client.is_healthy)
    (pod,) = await asyncio.to_thread(client.pods)
    assert pod.metadata.name == "web-node"
    assert await asyncio.to_thread(client.all_pods) == (pod,)


async def test_an_error_carries_the_agents_words(agent, client):
    with pytest.raises(AgentError, match="nothing is recorded") as caught:
        await asyncio.to_thread(client.explain, "default", "x")
    assert caught.value.status == 404


async def test_logs_come_piece_by_piece(agent, client):
    pieces = client.logs("default", "web-node", "a", {"follow": "true"})
    assert await asyncio.to_thread(next, pieces) == b"first\n"
    agent.release.set()
    assert await asyncio.to_thread(next, pieces) == b"second\n"
    assert await asyncio.to_thread(next, pieces, None) is None
    assert agent.queries == [("/containerLogs/default/web-node/a", {"follow": "true"})]


async def test_the_journal_is_followed_and_let_go(agent, client):
    since = SystemClock().now()

    def follow():
        with JournalFeed(client=client, since=since) as feed:
            return feed.wait(5)

    (record,) = await asyncio.to_thread(follow)
    assert (record.decision, record.subject.name) == ("Start", "web-node")
    (path, query) = agent.queries[0]
    assert path == "/klet/v1/journal"
    assert query["follow"] == "true"
    assert query["since"].endswith("Z")


def test_no_agent_is_a_clear_error(client):
    assert not client.is_healthy()
    with pytest.raises(AgentUnavailable, match=r"no agent answers at .*klet.sock.*`klet up` starts one"):
        client.pods()


def test_an_agent_that_the_supervisor_will_start_again_is_said_to_come_back(tmp_path):
    client = AgentClient(socket_path=tmp_path / "klet.sock", is_supervised=lambda: True)
    with pytest.raises(AgentUnavailable, match="its supervisor starts the agent again"):
        client.pods()


@pytest.mark.parametrize("text", ["node", "node/n1"])
async def test_the_node_is_explained(agent, client, capsys, text):
    await asyncio.to_thread(print_explanation, client, text, namespace=None, as_json=False)
    assert capsys.readouterr().out.startswith("node/n1: ready\n\nWell    nothing is wrong\n")
    await asyncio.to_thread(print_explanation, client, text, namespace=None, as_json=True)
    assert json.loads(capsys.readouterr().out) == json.loads(NODE)


async def test_another_node_is_not_this_one(agent, client):
    with pytest.raises(UnclearName, match="this agent's node is 'n1', not 'n2'"):
        await asyncio.to_thread(print_explanation, client, "node/n2", namespace=None, as_json=False)

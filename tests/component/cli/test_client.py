"""The client against a real HTTP server on a Unix socket."""

import asyncio
import json
import re

import pytest
import yaml
from aiohttp import web

from klet.aio.clock import SystemClock
from klet.api.klet_v1 import CauseRecord, NodeExplanation, PodListing
from klet.cli.client import AgentClient, AgentError, AgentUnavailable, OtherVersion
from klet.cli.explain import print_explanation
from klet.cli.journal_feed import JournalFeed
from klet.cli.keepers import SUPERVISED
from klet.cli.names import UnclearName
from klet.cli.pod_commands import PodFormat, print_pods
from klet.testing.strict import decode_strictly

POD = b'{"metadata":{"name":"web-node","namespace":"default","uid":"u"},"spec":{"nodeName":"node","containers":[]}}'
PODS = b'{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[' + POD + b"]}"
RECORD = (
    b'{"id":"1","parent":null,"at":"2030-01-01T00:00:00Z",'
    b'"subject":{"namespace":"default","name":"web-node","uid":"u","container":""},"decider":"test","decision":"Start",'
    b'"message":"","measurements":{},"since":null,"next":"","nextAt":null}\n'
)

NODE = (
    b'{"node":{"name":"n1"},"now":"2030-01-01T00:00:00+00:00","ready":true,"conditions":[],'
    b'"summary":"nothing is wrong","why":[],"timeline":[]}'
)


def test_the_answers_of_the_fake_agent_are_those_of_the_schema():
    decode_strictly(PodListing, PODS)
    decode_strictly(CauseRecord, RECORD)
    decode_strictly(NodeExplanation, NODE)


class FakeAgent:
    """The agent's paths with scripted answers."""

    def __init__(self):
        self.queries = []
        self.release = asyncio.Event()
        self.node_body = NODE
        self.record = RECORD

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
        return web.Response(body=PODS, content_type="application/json")

    async def explain(self, _request):
        return web.Response(status=404, text="nothing is recorded")

    async def node(self, _request):
        return web.Response(body=self.node_body, content_type="application/json")

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
        await response.write(self.record[:20])
        await response.write(self.record[20:] + self.record[:10])
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
    return AgentClient(socket_path=tmp_path / "klet.sock", advise=lambda: None)


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
    client = AgentClient(socket_path=tmp_path / "klet.sock", advise=lambda: SUPERVISED)
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


@pytest.mark.parametrize("form", [PodFormat.JSON, PodFormat.YAML])
@pytest.mark.parametrize(("namespace", "names"), [(None, ["web-node"]), ("default", ["web-node"]), ("other", [])])
async def test_pods_are_printed_as_the_agent_sends_them(agent, client, capsys, form, namespace, names):
    await asyncio.to_thread(print_pods, client, namespace=namespace, form=form, clock=SystemClock())
    printed = yaml.safe_load(capsys.readouterr().out)
    assert printed == {**json.loads(PODS), "items": json.loads(PODS)["items"] if names else []}
    assert list(printed) == ["kind", "apiVersion", "metadata", "items"]


async def test_fields_of_a_newer_agent_are_ignored(agent, client):
    agent.node_body = b'{"more":1,' + NODE[1:]
    agent.record = b'{"more":{"x":1},' + RECORD[1:]
    assert (await asyncio.to_thread(client.explain_node)).node.name == "n1"
    assert (await asyncio.to_thread(follow, client))[0].decision == "Start"


async def test_fields_that_an_older_agent_does_not_send_have_defaults(agent, client):
    agent.node_body = b'{"now":"2030-01-01T00:00:00Z"}'
    assert (await asyncio.to_thread(client.explain_node)).why == ()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        pytest.param(b"{}", "missing required field `now`", id="a field that nothing replaces"),
        pytest.param(b'{"now":"2030-01-01T00:00:00Z","ready":"yes"}', "ready: Expected `bool`", id="another type"),
        pytest.param(b"[+]ping ok", "invalid JSON", id="no JSON"),
        pytest.param(b"\xff", "invalid JSON", id="no text"),
    ],
)
async def test_an_agent_that_speaks_another_version_is_a_clear_error(agent, client, body, said):
    agent.node_body = body
    with pytest.raises(OtherVersion, match=re.escape("the agent's answer to /klet/v1/node is not one that")) as caught:
        await asyncio.to_thread(client.explain_node)
    assert said in str(caught.value)
    assert "restart the agent" in str(caught.value)


async def test_a_path_that_the_agent_does_not_have_is_another_version_too(agent, client):
    with pytest.raises(OtherVersion, match=r"/klet/v1/explain .*there is no such path"):
        await asyncio.to_thread(client.recorded_pods)


async def test_a_journal_that_cannot_be_read_is_a_clear_error(agent, client):
    agent.record = b'{"decision":"Start","padding":"................"}\n'
    with pytest.raises(OtherVersion, match=r"/klet/v1/journal .*missing required field `at`"):
        await asyncio.to_thread(follow, client)


def follow(client):
    with JournalFeed(client=client, since=SystemClock().now()) as feed:
        return feed.wait(5)

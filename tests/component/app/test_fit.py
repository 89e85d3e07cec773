"""`klet fit` of the wired agent: what it answers is what happens when the pod comes."""

import asyncio
import io
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from klet.aio.clock import SystemClock
from klet.cli.client import AgentClient, AgentError
from klet.cli.explain import render_explanation
from klet.cli.fit import print_fit
from klet.model.pods import FILE_SOURCE
from klet.simulation import DrivenPodSource, SimulatedNode
from klet.sources.manifest_preview import ManifestPreview
from klet.testing.builders import IMAGE
from klet.testing.fake_runtime import FakeImage, FakeRuntime

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))
DECODER = ManifestPreview(node_name="node", has_api=False)


def manifest(name, cpu):
    container = f"{{name: c, image: {IMAGE}, resources: {{requests: {{cpu: {cpu}}}}}}}"
    text = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{containers: [{container}]}}\n"
    return text.encode()


class LiveNode:
    """A wired agent on a machine of two CPUs, and its command line."""

    def __init__(self, agent, wanted, client):
        self.agent, self._wanted, self._client = agent, wanted, client

    async def add(self, data, *, source=FILE_SOURCE, before=("Pending",)):
        """Give the agent the pod of a manifest; return its status once it runs or has been rejected."""
        pod = DECODER.read(data, source=source)
        self._wanted.add(pod)
        with self.agent.statuses.changes() as changes:
            while (status := self.agent.statuses.get(pod.metadata.uid)) is None or status.phase in before:
                await changes.get()
        return status

    async def fit(self, data, *, source=""):
        return await asyncio.to_thread(self._client.fit, data, source=source)

    async def print_fit(self, data):
        return await asyncio.to_thread(print_fit, self._client, ["-"], source="", as_json=False, stdin=io.BytesIO(data))

    async def explain(self, name):
        return await asyncio.to_thread(self._client.explain, "default", name)


@pytest.fixture
def live(tmp_path):
    @asynccontextmanager
    async def run():
        machine = SimulatedNode(
            clock=SystemClock(), runtime=FakeRuntime(start=SystemClock().now(), images=(FakeImage(name=IMAGE),))
        )
        wanted, socket = DrivenPodSource(), tmp_path / "klet.sock"
        async with machine.run_agent(wanted, socket=socket) as running, asyncio.timeout(60):
            live = LiveNode(running.agent, wanted, AgentClient(socket_path=socket, advise=lambda: None))
            await live.add(manifest("earlier", "0"))  # once it runs, the socket is there, too
            yield live

    return run


async def test_what_is_foretold_happens(live):
    async with live() as node:
        for name, cpu in (("first", "1500m"), ("second", "1"), ("third", "500m")):
            foretold = await node.fit(manifest(name, cpu), source="api")
            status = await node.add(manifest(name, cpu), source="api")
            assert foretold.fits is (status.phase == "Running")
            if not foretold.fits:
                assert (foretold.reasons[0].reason, f"Pod was rejected: {foretold.reasons[0].message}") == (
                    status.reason,
                    status.message,
                )
        assert (await node.fit(manifest("fourth", "1m"), source="api")).reasons[0].reason == "OutOfcpu"


async def test_the_victims_that_are_named_have_to_go(live):
    async with live() as node:
        await node.add(manifest("small", "600m"), source="api")
        await node.add(manifest("large", "1200m"), source="api")
        foretold = await node.fit(manifest("critical", "1"))
        assert [victim.name for victim in foretold.victims] == ["large"]
        assert {status.phase for status in node.agent.statuses.all().values()} == {"Running"}
        await node.add(manifest("critical", "1"))
        gone = [status.reason for status in node.agent.statuses.all().values() if status.phase == "Failed"]
        assert gone == ["Preempting"]


async def test_a_static_pod_that_does_not_fit_is_explained(live, capsys):
    async with live() as node:
        await node.add(manifest("first", "1500m"))
        assert await node.print_fit(manifest("second", "1")) == 1
        assert (
            "the pod requests 1 of cpu; the node has 2 for pods, of which others have 1500m" in capsys.readouterr().out
        )
        await node.add(manifest("second", "1"))
        shown = render_explanation(await node.explain("second-node"), width=400, is_whole=False)
        assert "the pod requests 1 of cpu; the node has 2 for pods, of which others have 1500m" in shown


async def test_a_manifest_that_is_wrong_is_an_error_with_its_field(live):
    async with live() as node:
        with pytest.raises(AgentError, match=r"spec\.containers") as raised:
            await node.fit(b"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {}\n")
        assert raised.value.status == 400


async def test_the_examples_fit_together_on_a_machine_of_two_cpus(live):
    assert EXAMPLES
    async with live() as node:
        for path in EXAMPLES:
            answer = await node.fit(path.read_bytes())
            assert (answer.fits, answer.victims) == (True, ()), path
            status = await node.add(path.read_bytes(), before=())
            assert status.phase == "Pending"

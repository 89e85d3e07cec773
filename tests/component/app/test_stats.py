"""The summary of the wired agent, read over its socket."""

import asyncio
import json
import os
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from klet.aio.clock import SystemClock
from klet.app.settings import cut_settings
from klet.config.command_line import Settings, parse_command_line
from klet.model.stats import CpuCounters, MemoryCounters
from klet.simulation import DrivenPodSource, SimulatedNode
from klet.testing.builders import IMAGE, make_pod
from klet.testing.fake_runtime import FakeImage, FakeRuntime

SCHEMA = json.loads((Path(__file__).parents[2] / "data/stats_summary_schema.json").read_text())
KEYS = SCHEMA["only_cpu_and_memory_keys"]


@pytest.fixture
def machine():
    clock = SystemClock()
    return SimulatedNode(clock=clock, runtime=FakeRuntime(start=clock.now(), images=(FakeImage(name=IMAGE),)))


@asynccontextmanager
async def serving(machine, socket):
    """A node with one running pod, and a client of its socket."""
    wanted = DrivenPodSource()
    wanted.add(make_pod("main", name="web", uid="u-1"))
    async with machine.run_agent(wanted, socket=socket) as running, asyncio.timeout(30):
        with running.agent.statuses.changes() as changes:
            while {status.phase for status in running.agent.statuses.all().values()} != {"Running"}:
                await changes.get()
        async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(path=str(socket))) as session:
            yield session


async def ask(session, method="GET", query="", **rest):
    async with session.request(method, f"http://agent/stats/summary{query}", **rest) as answer:
        return answer.status, await answer.text()


def paths_of(value, prefix=""):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from paths_of(inner, f"{prefix}.{key}" if prefix else key)
    elif isinstance(value, list):
        yield f"{prefix}[]"
        for inner in value:
            yield from paths_of(inner, f"{prefix}[]")
    else:
        yield prefix


async def test_an_answer_has_only_paths_of_the_schema(machine, tmp_path):
    machine.usage.put("/kubepods", cpu=CpuCounters(5), memory=MemoryCounters(2, 1))
    machine.usage.put("/kubepods/besteffort/podu-1", cpu=CpuCounters(5), memory=MemoryCounters(2, 1))
    async with serving(machine, tmp_path / "klet.sock") as session:
        status, text = await ask(session)
    assert status == 200, text
    summary = json.loads(text)
    assert set(paths_of(summary)) <= SCHEMA["paths"].keys()
    assert text.startswith('{\n "node": {\n  "nodeName": "node"')
    [pod] = summary["pods"]
    assert pod["podRef"] == {"name": "web", "namespace": "default", "uid": "u-1"}
    assert pod["memory"]["workingSetBytes"] == 1
    assert [each["name"] for each in pod["containers"]] == ["main"]
    assert [each["name"] for each in summary["node"]["systemContainers"]] == ["pods"]


@pytest.mark.parametrize(
    ("method", "query", "rest"),
    [
        pytest.param("GET", "?only_cpu_and_memory=true", {}, id="by query"),
        pytest.param("POST", "/?only_cpu_and_memory=true", {}, id="by the query of a form"),
        pytest.param("POST", "", {"data": {"only_cpu_and_memory": "true"}}, id="by a form"),
    ],
)
async def test_cpu_and_memory_alone_are_shown_if_asked_for(machine, tmp_path, method, query, rest):
    async with serving(machine, tmp_path / "klet.sock") as session:
        status, text = await ask(session, method, query, **rest)
    assert status == 200, text
    summary = json.loads(text)
    assert summary["node"].keys() <= set(KEYS["node"])
    [pod] = summary["pods"]
    assert pod.keys() <= set(KEYS["pod"])
    assert pod["containers"][0].keys() <= set(KEYS["container"])


@pytest.mark.parametrize(
    ("interval", "reads"),
    [pytest.param("1h", 1, id="one that is young enough"), pytest.param("1us", 2, id="a new one")],
)
async def test_the_housekeeping_interval_says_which_snapshot_is_handed_out(machine, tmp_path, interval, reads):
    arguments = ("--address=127.0.0.1", "--hostname-override=node", f"--housekeeping-interval={interval}")
    given = parse_command_line(arguments, read_file=Path.read_text, list_dir=os.listdir)
    assert isinstance(given, Settings)
    machine.stats = cut_settings(given, machine.machine.info()).stats
    async with serving(machine, tmp_path / "klet.sock") as session:
        for _ in range(2):
            status, text = await ask(session)
            assert status == 200, text
    assert machine.usage.reads == reads


async def test_without_the_root_cgroup_there_is_no_summary(machine, tmp_path):
    machine.usage.readings.clear()
    async with serving(machine, tmp_path / "klet.sock") as session:
        answer = await ask(session)
    assert answer == (500, 'Internal Error: failed to get root cgroup stats: failed to get cgroup stats for "/"')


async def test_a_client_must_take_json(machine, tmp_path):
    async with serving(machine, tmp_path / "klet.sock") as session:
        status, _ = await ask(session, headers={"Accept": "text/plain"})
    assert status == 406

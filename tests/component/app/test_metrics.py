"""The metrics of the wired agent, read over its socket."""

import asyncio
import json
from pathlib import Path

import aiohttp

from klet.aio.clock import SystemClock
from klet.simulation import DrivenPodSource, SimulatedNode
from klet.testing.builders import IMAGE, make_pod
from klet.testing.fake_runtime import FakeImage, FakeRuntime


async def read_metrics(socket) -> dict[str, float]:
    connector = aiohttp.UnixConnector(path=str(socket))
    async with aiohttp.ClientSession(connector=connector) as session, session.get("http://agent/metrics") as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"
        lines = (await answer.text()).splitlines()
    samples = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in samples}


async def test_running_pods_and_started_sandboxes_are_counted(tmp_path):
    clock, wanted = SystemClock(), DrivenPodSource()
    machine = SimulatedNode(clock=clock, runtime=FakeRuntime(start=clock.now(), images=(FakeImage(name=IMAGE),)))
    wanted.add(make_pod("main", name="one", uid="u-1"), make_pod("main", name="two", uid="u-2"))
    async with machine.run_agent(wanted, socket=tmp_path / "klet.sock") as running, asyncio.timeout(30):
        with running.agent.statuses.changes() as changes:
            while {status.phase for status in running.agent.statuses.all().values()} != {"Running"} or (
                len(running.agent.statuses.all()) != 2
            ):
                await changes.get()
        metrics = await read_metrics(tmp_path / "klet.sock")
    assert metrics['kubelet_running_containers{container_state="running"}'] == 2
    assert metrics["kubelet_running_pods"] == 2
    assert metrics["kubelet_started_pods_errors_total"] == 0
    assert metrics["kubelet_started_pods_total"] == 2
    assert metrics['kubelet_runtime_operations_total{operation_type="run_podsandbox"}'] == 2
    assert metrics["kubelet_pod_start_sli_duration_seconds_count"] == 0
    assert metrics['kubelet_restarted_pods_total{static="true"}'] == 0
    assert metrics['workqueue_depth{name="kubelet_log_rotate_manager"}'] == 0
    assert metrics['klet_pod_preparation_step_duration_seconds_count{step="cgroup"}'] == 2


def upstream_families() -> dict[str, tuple[str, tuple[str, ...]]]:
    found = json.loads((Path(__file__).parents[2] / "data/upstream_metrics.json").read_text())["/metrics"]
    return {name: (family["type"], tuple(family["labels"])) for name, family in found.items()}


async def test_what_upstream_has_too_has_its_type_and_labels(tmp_path):
    clock = SystemClock()
    machine = SimulatedNode(clock=clock, runtime=FakeRuntime(start=clock.now()))
    async with machine.run_agent(DrivenPodSource(), socket=tmp_path / "klet.sock") as running:
        own = {name: (kind, labels) for name, kind, labels in running.agent.metrics.agent.families()}
    theirs = upstream_families()
    both = own.keys() & theirs.keys()
    assert {name: own[name] for name in both} == {name: theirs[name] for name in both}
    assert {name for name in own.keys() - both if not name.startswith("klet_")} == set()
    assert len(both) >= 80

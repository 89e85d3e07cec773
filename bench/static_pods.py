"""Starting, ending and idling of static pods, beside the floor: the same CRI calls with no kubelet at all.

Run as root: .venv/bin/python bench/static_pods.py [--pods 1,30,100] [--idle SECONDS]
Both sides use one private containerd in the same run. Latencies are from writing the manifests (or the first call) to
the container running; the agent's are read from the times in its own journal, which share the machine's clock.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import aiohttp

from klet.aio.clock import SystemClock
from klet.cri.client import CriClient, connect
from klet.testing.containerd import REQUEST_TIMEOUT, PrivateContainerd, remove_pods, run_containerd
from klet.testing.cri_configs import build_container_config, build_sandbox_config
from klet.wire import cri_v1_pb2 as pb

IMAGE = "klet.local/busybox:1"
SCRIPT = "trap 'exit 0' TERM; while true; do sleep 1000 & wait $!; done"
FLOOR_CONCURRENCY = 8
DEADLINE = 180


@dataclass(frozen=True)
class Times:
    """Seconds from the beginning to each pod."""

    each: tuple[float, ...]

    @property
    def p50(self) -> float:
        return statistics.median(self.each)

    @property
    def last(self) -> float:
        return max(self.each)


async def measure_floor(client: CriClient, containerd: PrivateContainerd, count: int) -> Times:
    """Sandbox, create and start of `count` pods with the concurrency that suits containerd best."""
    gate = asyncio.Semaphore(FLOOR_CONCURRENCY)
    started = time.perf_counter()

    async def start(number: int) -> float:
        async with gate:
            sandbox = build_sandbox_config(
                name=f"floor-{number}",
                log_directory=containerd.directory / "floor-logs" / str(number),
                cgroup_parent=containerd.cgroup_parent,
            )
            made = await client.run_pod_sandbox(pb.RunPodSandboxRequest(config=sandbox))
            container = build_container_config(name="main", command=["sh", "-c", SCRIPT])
            request = pb.CreateContainerRequest(
                pod_sandbox_id=made.pod_sandbox_id, config=container, sandbox_config=sandbox
            )
            created = await client.create_container(request)
            await client.start_container(pb.StartContainerRequest(container_id=created.container_id))
            return time.perf_counter() - started

    times = await asyncio.gather(*(start(number) for number in range(count)))
    await remove_pods(client, clock=SystemClock())
    return Times(tuple(times))


@dataclass
class AgentUnderTest:
    """`klet run` as a process of its own."""

    process: asyncio.subprocess.Process
    session: aiohttp.ClientSession
    manifests: Path

    def write(self, name: str, script: str, *, policy: str = "Always") -> None:
        manifest = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "restartPolicy": policy,
                "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "main", "image": IMAGE, "command": ["sh", "-c", script]}],
            },
        }
        temporary = self.manifests / f".{name}"
        temporary.write_text(json.dumps(manifest))
        temporary.rename(self.manifests / f"{name}.json")

    async def clear(self) -> None:
        """Remove every pod and wait until each is gone."""
        names = {path.stem for path in self.manifests.glob("*.json")}
        since = datetime.now(UTC)
        for name in names:
            (self.manifests / f"{name}.json").unlink()
        await self.heard(names, {"Removed"}, since)

    async def heard(self, names: set[str], decisions: set[str], since: datetime) -> dict[str, datetime]:
        """When each pod first reached one of the decisions."""
        found: dict[str, datetime] = {}
        query = {"follow": "true", "since": since.isoformat()}
        async with asyncio.timeout(DEADLINE), self.session.get("http://agent/klet/v1/journal", params=query) as answer:
            async for line in answer.content:
                record = json.loads(line)
                name = record["subject"]["name"].removesuffix("-bench")
                what = record["decision"], f"{record['decision']} {record['message']}"
                if name in names and name not in found and decisions.intersection(what):
                    found[name] = datetime.fromisoformat(record["at"])
                    if len(found) == len(names):
                        return found
        raise TimeoutError

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_mib(self) -> float:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        return 0.0


@asynccontextmanager
async def run_agent(directory: Path, containerd: PrivateContainerd) -> AsyncIterator[AgentUnderTest]:
    manifests = directory / "manifests"
    manifests.mkdir()
    config = directory / "config.json"
    config.write_text(
        json.dumps(
            {
                "apiVersion": "kubelet.config.k8s.io/v1beta1",
                "kind": "KubeletConfiguration",
                "staticPodPath": str(manifests),
                "podLogsDir": str(directory / "logs"),
                "containerRuntimeEndpoint": containerd.endpoint,
                "cgroupDriver": "cgroupfs",
                "cgroupRoot": containerd.cgroup_parent,
                "failCgroupV1": False,
                "failSwapOn": False,
                "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": False}},
                "authorization": {"mode": "AlwaysAllow"},
            }
        )
    )
    root = directory / "root"
    arguments = [f"--config={config}", f"--root-dir={root}", "--hostname-override=bench"]
    with (directory / "agent.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "klet", "run", *arguments, stdout=log, stderr=log
        )
    connector = aiohttp.UnixConnector(path=str(root / "klet.sock"))
    try:
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout()) as session:
            for _ in range(500):
                try:
                    async with session.get("http://agent/healthz") as answer:
                        if answer.status == 200:
                            break
                except aiohttp.ClientConnectionError:
                    pass
                await asyncio.sleep(0.02)
            yield AgentUnderTest(process=process, session=session, manifests=manifests)
    finally:
        process.terminate()
        await process.wait()


async def measure_starts(agent: AgentUnderTest, count: int) -> Times:
    since = datetime.now(UTC)
    names = {f"pod-{number}" for number in range(count)}
    for name in sorted(names):
        agent.write(name, SCRIPT)
    found = await agent.heard(names, {"PhaseChanged Pending -> Running"}, since)
    return Times(tuple((at - since).total_seconds() for at in found.values()))


async def measure_exits(agent: AgentUnderTest, client: CriClient, count: int = 10) -> Times:
    """From the end of the container, as containerd dates it, to the terminal phase."""
    since = datetime.now(UTC)
    names = {f"exit-{number}" for number in range(count)}
    for name in sorted(names):
        agent.write(name, "sleep 3", policy="Never")
    found = await agent.heard(names, {"PhaseChanged Running -> Succeeded"}, since)
    delays = []
    listed = await client.list_containers(pb.ListContainersRequest())
    for container in listed.containers:
        name = container.labels["io.kubernetes.pod.name"].removesuffix("-bench")
        if name in found:
            status = await client.container_status(pb.ContainerStatusRequest(container_id=container.id))
            delays.append(found[name].timestamp() - status.status.finished_at / 1e9)
    return Times(tuple(delays))


async def measure_idle(agent: AgentUnderTest, seconds: float) -> tuple[float, float]:
    """Share of a core in percent, and resident memory in MiB."""
    await asyncio.sleep(2)
    before = agent.cpu_seconds()
    await asyncio.sleep(seconds)
    return 100 * (agent.cpu_seconds() - before) / seconds, agent.rss_mib()


async def main(counts: list[int], idle: float) -> None:
    rows: list[tuple[str, str, str, str]] = []
    with tempfile.TemporaryDirectory(prefix="klet-bench-") as name:
        directory = Path(name)
        async with (
            run_containerd(directory / "c") as containerd,
            connect(runtime_endpoint=containerd.endpoint, timeout=REQUEST_TIMEOUT) as client,
        ):
            floors = {count: await measure_floor(client, containerd, count) for count in counts}
            async with run_agent(directory, containerd) as agent:
                cpu, rss = await measure_idle(agent, idle)
                rows.append(("idle, 0 pods", "-", f"{cpu:.2f} % of a core", f"{rss:.0f} MiB"))
                for count in counts:
                    ours, floor = await measure_starts(agent, count), floors[count]
                    rows.append(
                        (
                            f"{count} pods at once, p50 / all",
                            f"{floor.p50:.2f} / {floor.last:.2f} s",
                            f"{ours.p50:.2f} / {ours.last:.2f} s",
                            f"{ours.p50 / floor.p50:.2f}x / {ours.last / floor.last:.2f}x",
                        )
                    )
                    if count == max(counts):
                        cpu, rss = await measure_idle(agent, idle)
                        rows.append((f"idle, {count} pods", "-", f"{cpu:.2f} % of a core", f"{rss:.0f} MiB"))
                    await agent.clear()
                exits = await measure_exits(agent, client)
                rows.append(("exit to terminal phase, p50", "-", f"{1000 * exits.p50:.0f} ms", ""))
                await agent.clear()
    print(f"{'':34} {'floor (raw CRI)':>20} {'klet':>20} {'':>16}")
    for what, floor_text, ours_text, note in rows:
        print(f"{what:34} {floor_text:>20} {ours_text:>20} {note:>16}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", default="1,30,100", help="how many pods to start at once, separated by commas")
    parser.add_argument("--idle", type=float, default=20.0, help="seconds to measure an idle agent for")
    options = parser.parse_args()
    asyncio.run(main([int(count) for count in options.pods.split(",")], options.idle))

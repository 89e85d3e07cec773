"""`klet run` as a process of its own, on the session's containerd, with everything else in a directory of the test."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest

from klet.aio.clock import SystemClock
from klet.aio.tasks import first_of
from klet.aio.threads import Threads
from klet.api.codec import decode
from klet.api.pod import Pod, PodList, PodStatus
from klet.host.cgroups.discover import find_hierarchy
from klet.host.cgroups.manager import CgroupManager, NoUnits
from klet.host.cgroups.metrics import register_cgroups
from klet.host.inotify import ChangeKind, watch_directory
from klet.host.mounts import unmount_tree
from klet.metrics import MetricRegistry
from klet.status.checkpoint import SavedStateFormat

DEADLINE = 40 if "KLET_VM" not in os.environ else 300  # an emulated machine is slow

MEMORY, SOCKET = "klet-memory.json", "klet.sock"


class RunningAgent:
    """One life of the agent."""

    def __init__(
        self, *, process: asyncio.subprocess.Process, session: aiohttp.ClientSession, root: Path, log: Path
    ) -> None:
        self.process = process
        self.session = session
        self._root = root
        self._log = log
        self._since = datetime.now(UTC).isoformat()

    @property
    def log(self) -> str:
        return self._log.read_text()

    async def pods(self) -> dict[str, Pod]:
        """The pods by the name in their manifests."""
        async with self.session.get("http://agent/pods") as answer:
            pods = decode(PodList, await answer.read()).items or ()
        return {pod.metadata.name.removesuffix("-node"): pod for pod in pods}

    async def pod(self, name: str) -> Pod:
        return (await self.pods())[name]

    async def text(self, path: str) -> str:
        async with self.session.get(f"http://agent{path}") as answer:
            return await answer.text()

    async def first_line(self, name: str, container: str) -> str:
        """What a container says first, waiting for it: Ready only means that its process runs."""
        return await self.said(name, container, until="\n")

    async def said(self, name: str, container: str, *, until: str) -> str:
        """What a container has said, line by line, once it has come to that."""
        path = f"http://agent/containerLogs/default/{name}-node/{container}"
        said = ""
        async with asyncio.timeout(DEADLINE), self.session.get(path, params={"follow": "true"}) as answer:
            while until not in said and (line := await answer.content.readline()):
                said += line.decode()
        return said

    async def recorded(self, name: str, *decisions: str, uid: str = "") -> list[dict]:
        """Wait until this run of the agent has recorded these decisions about a pod, in this order; return them."""
        found = []
        wanted = list(decisions)
        try:
            async with asyncio.timeout(DEADLINE), aclosing(self.records(name=f"{name}-node")) as records:
                async for record in records:
                    if uid and record["subject"]["uid"] != uid:
                        continue
                    if record["decision"] == wanted[0]:
                        found.append(record)
                        wanted.pop(0)
                        if not wanted:
                            return found
        except TimeoutError:
            pass
        story = await self.text(f"/klet/v1/journal?name={name}-node")
        pytest.fail(f"{name}: {wanted} never came; the journal says:\n{story}\nthe agent says:\n{self.log}")

    async def records(self, **query: str) -> AsyncGenerator[dict, None]:
        """Yield the records of this run, from its beginning, as they are made."""
        query = {"follow": "true", "since": self._since} | query
        async with self.session.get("http://agent/klet/v1/journal", params=query) as answer:
            async for line in answer.content:
                yield json.loads(line)

    async def until(self, condition: Callable[[dict[str, Pod]], bool], *, what: str) -> None:
        """Wait for a state that no single decision shows. Every change of a status is in the memory at once."""
        try:
            async with asyncio.timeout(DEADLINE), aclosing(changes_of(self._root / MEMORY)) as changes:
                async for _ in changes:
                    if condition(await self.pods()):
                        return
        except TimeoutError:
            pytest.fail(f"{what} never came; the agent says:\n{self.log}\n{await self.text('/pods')}")

    async def until_recorded(self, condition: Callable[[], Awaitable[bool]], *, what: str) -> None:
        """Wait for a state of the machine that comes with one of the agent's decisions."""
        try:
            async with asyncio.timeout(DEADLINE), aclosing(self.records()) as records:
                while not await condition():
                    await anext(records)
        except TimeoutError:
            pytest.fail(f"{what} never came; the journal says:\n{await self.text('/klet/v1/journal')}\n{self.log}")

    async def kill(self) -> None:
        """The end without warning."""
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()

    async def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return await asyncio.wait_for(self.process.wait(), DEADLINE)


class Node:
    """What outlives the agent: its directories and configuration."""

    def __init__(self, *, directory: Path, containerd) -> None:
        self.root = directory / "root"
        self.manifests = directory / "manifests"
        self.logs = directory / "logs"
        self.log = directory / "agent.log"
        self.config = directory / "config.yaml"
        self.manifests.mkdir()
        self.settings = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "staticPodPath": str(self.manifests),
            "podLogsDir": str(self.logs),
            "containerRuntimeEndpoint": containerd.endpoint,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": containerd.cgroup_parent,
            "failCgroupV1": False,
            "failSwapOn": False,
            # Agents of tests live side by side: only those that are asked over the network have ports.
            "enableServer": False,
            "healthzPort": 0,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
        }

    def write(self, name: str, manifest: dict | str) -> None:
        """Put a manifest in place in one step, as an editor would."""
        text = manifest if isinstance(manifest, str) else json.dumps(manifest)
        temporary = self.manifests / f".{name}"
        temporary.write_text(text)
        temporary.rename(self.manifests / f"{name}.yaml")

    def remove(self, name: str) -> None:
        (self.manifests / f"{name}.yaml").unlink()

    async def remembers(self, statuses: dict[str, PodStatus]) -> None:
        """Wait until what was reported is on disk: that is so some milliseconds later."""
        file = self.root / MEMORY
        async with asyncio.timeout(DEADLINE), aclosing(changes_of(file)) as changes:
            async for _ in changes:
                known = list(SavedStateFormat().decode(file.read_bytes()).statuses.values()) if file.exists() else []
                if all(status in known for status in statuses.values()):
                    return

    @asynccontextmanager
    async def run(self, *arguments: str, **settings):
        """Run the agent until the end of the block; it is killed there unless it ended before."""
        async with self.started(*arguments, **settings) as process, self.answering(process) as agent:
            yield agent

    @asynccontextmanager
    async def answering(self, process: asyncio.subprocess.Process):
        """The agent of a process, once it answers."""
        connector = aiohttp.UnixConnector(path=str(self.root / "klet.sock"))
        async with aiohttp.ClientSession(connector=connector) as session:
            agent = RunningAgent(process=process, session=session, root=self.root, log=self.log)
            await self._until_it_answers(agent)
            yield agent

    @asynccontextmanager
    async def started(self, *arguments: str, killed_before: int = 0, below: Sequence[Path] = (), **settings):
        """The agent's process, which may not answer yet; it is killed at the end of the block.

        With a number it is killed before its change of that number to files and mounts of pods, or below directories.
        """
        self.config.write_text(json.dumps(self.settings | settings))
        places = os.pathsep.join(map(str, below or (self.root / "pods",)))
        program = ["klet.testing.killed_agent", str(killed_before), places] * bool(killed_before)
        command = [sys.executable, "-P", "-m", *(program or ["klet"]), "run", f"--config={self.config}"]
        command.append(f"--root-dir={self.root}")
        command.append("--klet-leave-kernel-tunables")
        with self.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *command, "--hostname-override=node", *arguments, stdout=log, stderr=log, env=os.environ | {"TZ": "UTC"}
            )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def run_to_end(self, *arguments: str) -> tuple[int, str]:
        """Run the agent that is expected to refuse; its exit code and what it said."""
        command = [sys.executable, "-P", "-m", "klet", "run", f"--root-dir={self.root}", *arguments]
        command.append("--klet-leave-kernel-tunables")
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        try:
            output, _ = await asyncio.wait_for(process.communicate(), DEADLINE)
        finally:
            # One that does not refuse is not left running: it may be open to the whole network.
            if process.returncode is None:
                process.kill()
                await process.wait()
        return process.returncode or 0, output.decode()

    async def _until_it_answers(self, agent: RunningAgent) -> None:
        try:
            async with asyncio.timeout(DEADLINE):
                await first_of(self._until_listening(agent), agent.process.wait())
        except TimeoutError:
            pytest.fail(f"the agent does not answer:\n{agent.log}")
        if agent.process.returncode is not None:
            pytest.fail(f"the agent did not come up:\n{agent.log}")

    async def _until_listening(self, agent: RunningAgent) -> None:
        """The socket appears when the agent listens on it; one that a previous run left does not answer."""
        async with aclosing(changes_of(self.root / SOCKET)) as changes:
            async for _ in changes:
                try:
                    await agent.text("/healthz/ping")
                except aiohttp.ClientConnectionError:
                    continue
                return


async def changes_of(file: Path) -> AsyncGenerator[None, None]:
    """Yield once for what the file is now, and again whenever another is in its place."""
    async with aclosing(watch_directory(file.parent)) as changes:
        async for change in changes:
            if change.kind is ChangeKind.RESCAN or change.name == file.name:
                yield


@pytest.fixture
def node(tmp_path, containerd, cri):
    yield Node(directory=tmp_path, containerd=containerd)
    unmount_tree(tmp_path, lazy=True)


@pytest.fixture
def build_node(tmp_path):
    """A node on a containerd of the test's own."""

    def build(containerd) -> Node:
        return Node(directory=tmp_path, containerd=containerd)

    yield build
    unmount_tree(tmp_path, lazy=True)


@pytest.fixture
def cgroups():
    """The cgroups of this machine."""
    threads = Threads(limit=1)
    yield CgroupManager(
        hierarchy=find_hierarchy(),
        units=NoUnits(),
        threads=threads,
        clock=SystemClock(),
        durations=register_cgroups(MetricRegistry()),
    )
    threads.close()


@pytest.fixture(scope="session")
def new_node():
    """Builds a node in a directory: for fixtures that outlive a test."""
    directories = []

    def build(directory: Path, containerd) -> Node:
        directories.append(directory)
        return Node(directory=directory, containerd=containerd)

    yield build
    for directory in directories:
        unmount_tree(directory, lazy=True)


@pytest.fixture(scope="session")
def manifest():
    """A pod of busybox shells: `manifest("web", main="sleep 1000")`."""

    def build(name: str, *, init: dict[str, str] | None = None, spec: dict | None = None, **scripts: str) -> dict:
        def containers(given: dict[str, str]) -> list[dict]:
            return [
                {"name": key, "image": "klet.local/busybox:1", "command": ["sh", "-c", script]}
                for key, script in given.items()
            ]

        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "terminationGracePeriodSeconds": 2,
                "initContainers": containers(init or {}),
                "containers": containers(scripts),
                **(spec or {}),
            },
        }

    return build

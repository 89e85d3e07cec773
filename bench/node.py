"""A private containerd, and `klet run` on it as a process of its own, watched through its socket."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import msgspec

from bench.manifests import IMAGE, SCRIPT, make_manifest
from bench.process import KLET, AgentProcess
from klet.cri.client import CriClient
from klet.cri.errors import CriError
from klet.testing.containerd import PrivateContainerd
from klet.testing.free_ports import find_free_ports
from klet.testing.leftovers import undo_mounts
from klet.wire import cri_v1_pb2 as cri

PATIENCE = 180
SETTLE = 2.0
_REMOVALS = 8


class FindingSubject(msgspec.Struct, frozen=True):
    name: str = ""


class Record(msgspec.Struct, frozen=True):
    """The part of a cause record that counts here."""

    subject: FindingSubject
    decision: str
    message: str


class Watch:
    """What the agent reports to a client, dated when the client has it."""

    def __init__(self, lines: aiohttp.StreamReader) -> None:
        self._lines = lines
        self._decoder = msgspec.json.Decoder(Record)

    async def until(self, names: Iterable[str], decision: str, message: str = "") -> dict[str, float]:
        """When each pod was first reported to be so far, in seconds since 1970."""
        missing = set(names)
        found: dict[str, float] = {}
        async with asyncio.timeout(PATIENCE):
            async for line in self._lines:
                now = time.time()
                record = self._decoder.decode(line)
                name = record.subject.name.removesuffix("-bench")
                if name in missing and record.decision == decision and message in record.message:
                    found[name] = now
                    missing.discard(name)
                    if not missing:
                        return found
        raise TimeoutError(f"{len(missing)} pods were never reported to be {decision} {message}")


class AgentUnderTest:
    """`klet run` with its manifests. It can be killed and started again."""

    def __init__(
        self, *, directory: Path, containerd: PrivateContainerd, more: Mapping[str, object] | None = None
    ) -> None:
        self._directory = directory
        self._more = more or {}
        """More of the configuration."""
        self._manifests = directory / "manifests"
        self._root = directory / "root"
        self._containerd = containerd
        self.process = AgentProcess(log=directory / "agent.log")
        self._session: aiohttp.ClientSession | None = None

    async def prepare(self) -> None:
        self._manifests.mkdir(parents=True)
        port, healthz_port = find_free_ports(2)
        (self._directory / "config.json").write_text(
            json.dumps(
                {
                    "apiVersion": "kubelet.config.k8s.io/v1beta1",
                    "kind": "KubeletConfiguration",
                    "staticPodPath": str(self._manifests),
                    "podLogsDir": str(self._containerd.directory.parent / "logs"),
                    "containerRuntimeEndpoint": self._containerd.endpoint,
                    "cgroupDriver": "cgroupfs",
                    "cgroupRoot": self._containerd.cgroup_parent,
                    "failCgroupV1": False,
                    "failSwapOn": False,
                    # It listens as any node does, on ports that are free, but serves no exec, attach or logs.
                    "address": "127.0.0.1",
                    "port": port,
                    "healthzPort": healthz_port,
                    "enableDebuggingHandlers": False,
                    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
                    "authorization": {"mode": "AlwaysAllow"},
                    **self._more,
                }
            )
        )

    async def start(self) -> None:
        """Start the process; it may not answer yet."""
        arguments = [f"--config={self._directory / 'config.json'}", f"--root-dir={self._root}"]
        arguments.append(f"--cert-dir={self._directory / 'pki'}")
        await self.process.start((*KLET, *arguments, "--hostname-override=bench"))
        connector = aiohttp.UnixConnector(path=str(self._root / "klet.sock"))
        self._session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout())

    async def until_answering(self) -> None:
        async with asyncio.timeout(PATIENCE):
            while True:
                with suppress(aiohttp.ClientConnectionError):
                    async with self._open.get("http://agent/healthz") as answer:
                        if answer.status == 200:
                            return
                self.process.check()
                await asyncio.sleep(0.01)

    async def end(self, *, kill: bool = False) -> None:
        await self.process.end(kill=kill)
        await self._open.close()

    @asynccontextmanager
    async def watch(self, *, since: float | None = None) -> AsyncIterator[Watch]:
        """What the agent reports from now on, or since an instant."""
        query = {"follow": "true", "since": _rfc3339(since or time.time())}
        # An agent that has ended says why in its log.
        self.process.check()
        async with self._open.get("http://agent/klet/v1/journal", params=query) as answer:
            yield Watch(answer.content)

    async def pods(self) -> dict[str, dict[str, object]]:
        """The status of each pod by its name, as the agent serves it."""
        async with self._open.get("http://agent/pods") as answer:
            items = (await answer.json())["items"] or []
        return {item["metadata"]["name"].removesuffix("-bench"): item["status"] for item in items}

    def write(
        self,
        name: str,
        script: str = SCRIPT,
        *,
        policy: str = "Always",
        probe: dict[str, object] | None = None,
        image: str = IMAGE,
    ) -> None:
        temporary = self._manifests / f".{name}"
        temporary.write_text(json.dumps(make_manifest(name, script, policy=policy, probe=probe, image=image)))
        temporary.rename(self._manifests / f"{name}.json")

    async def clear(self) -> None:
        """Remove every pod and wait until each is gone."""
        names = {path.stem for path in self._manifests.glob("*.json")}
        if not names:
            return
        async with self.watch() as watch:
            for name in names:
                (self._manifests / f"{name}.json").unlink()
            await watch.until(names, "Removed")

    @property
    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("the agent was never started")
        return self._session


class Node:
    """Makes agents on one containerd; each has a root directory of its own."""

    def __init__(self, *, directory: Path, containerd: PrivateContainerd, client: CriClient) -> None:
        self._directory = directory
        self._containerd = containerd
        self._client = client
        self._agents = 0

    @asynccontextmanager
    async def agent(self, more: Mapping[str, object] | None = None) -> AsyncIterator[AgentUnderTest]:
        """An agent that answers and has come to rest; all its pods are gone afterwards."""
        self._agents += 1
        directory = self._directory / f"agent-{self._agents}"
        agent = AgentUnderTest(directory=directory, containerd=self._containerd, more=more)
        await agent.prepare()
        await agent.start()
        try:
            await agent.until_answering()
            await asyncio.sleep(SETTLE)
            yield agent
            await agent.clear()
        finally:
            await agent.end()
            await remove_all(self._client)
            undo_mounts(directory)


async def remove_all(client: CriClient) -> None:
    """Remove every sandbox with its containers."""
    turn = asyncio.Semaphore(_REMOVALS)

    async def at_once(call: Callable[[str], Coroutine[None, None, None]], identifier: str) -> None:
        async with turn:
            await call(identifier)

    async def stop(container: str) -> None:
        with suppress(CriError):
            await client.stop_container(cri.StopContainerRequest(container_id=container, timeout=0))

    async def remove(sandbox: str) -> None:
        for _ in range(10):
            with suppress(CriError):  # containerd fails to stop what is just ending by itself
                await client.stop_pod_sandbox(cri.StopPodSandboxRequest(pod_sandbox_id=sandbox))
                await client.remove_pod_sandbox(cri.RemovePodSandboxRequest(pod_sandbox_id=sandbox))
                return

    containers = (await client.list_containers(cri.ListContainersRequest())).containers
    await asyncio.gather(*(at_once(stop, container.id) for container in containers))
    sandboxes = (await client.list_pod_sandbox(cri.ListPodSandboxRequest())).items
    await asyncio.gather(*(at_once(remove, sandbox.id) for sandbox in sandboxes))


def _rfc3339(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds % 1 * 1e6):06}+00:00"

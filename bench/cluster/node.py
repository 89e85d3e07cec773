"""Nodes of one control plane on one containerd: each an agent of either kind with a name and a directory of its own."""

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import aiohttp

from bench.cluster.programs import Ports, Program, write_configuration
from bench.cluster.watch import PATIENCE, Watch, is_ready, open_watch
from bench.node import remove_all
from bench.process import AgentProcess
from klet.cri.client import CriClient
from klet.kube.transport import HttpRequest, Transport
from klet.testing.containerd import PrivateContainerd
from klet.testing.control_plane.identities import ADMINS, ControlPlaneIdentities, node_user
from klet.testing.leftovers import undo_mounts

SETTLE = 3.0
CONNECTIONS = 4
"""A handshake for every pod would be work that no controller makes for the API server."""
PODS = "/api/v1/namespaces/default/pods"
_TIMEOUT = timedelta(seconds=60)


class Api:
    """Asks the API server, as a user who may do everything."""

    def __init__(self, *, transport: Transport) -> None:
        self._transport = transport

    async def send(
        self,
        method: str,
        path: str,
        body: object = None,
        content_type: str = "application/json",
        *,
        accepted: Collection[int] = (),
    ) -> None:
        """`accepted`: refusals that are as good as success."""
        data = None if body is None else json.dumps(body).encode()
        request = HttpRequest(method, path, body=data, content_type=content_type)
        answer = await self._transport.send(request, timeout=_TIMEOUT)
        if answer.code >= 400 and answer.code not in accepted:
            raise RuntimeError(f"{method} {path}: {answer.code} {answer.body.decode()}")

    async def remove_now(self, path: str) -> None:
        """Delete what may be there, without waiting for a node."""
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        await self.send("DELETE", path, options, accepted=(404,))


@dataclass(frozen=True, slots=True)
class NodeUnderTest:
    """An agent that is a node, and the pods that are bound to it."""

    name: str
    root: Path
    command: tuple[str, ...]
    ports: Ports
    process: AgentProcess
    api: Api
    pods: Watch
    ready_after: float
    """Seconds from the start of the process to the moment a client saw that the new node is ready."""
    tls: ssl.SSLContext
    """For the agent's own API, as an administrator."""

    def open_session(self) -> aiohttp.ClientSession:
        """Return a client of the agent's own API."""
        connector = aiohttp.TCPConnector(ssl=self.tls)
        base = f"https://127.0.0.1:{self.ports.api}"
        return aiohttp.ClientSession(base, connector=connector, timeout=aiohttp.ClientTimeout())

    async def create(self, manifests: Sequence[dict[str, object]]) -> list[float]:
        """Bind pods to the node, all at once; when each was asked for."""
        turn = asyncio.Semaphore(CONNECTIONS)

        async def create(manifest: dict[str, object]) -> float:
            async with turn:
                began = time.time()
                await self.api.send("POST", PODS, self._bound(manifest))
                return began

        return await asyncio.gather(*map(create, manifests))

    def volume(self, pod: str, plugin: str, name: str) -> Path:
        """Where the agent keeps a volume of a pod."""
        return self.root / "pods" / self.pods.last(pod).uid / "volumes" / plugin / name

    async def start_again(self) -> None:
        await self.process.start(self.command)

    def _bound(self, manifest: dict[str, object]) -> dict[str, object]:
        spec = manifest["spec"]
        assert isinstance(spec, dict)
        return {**manifest, "spec": {"nodeName": self.name, "automountServiceAccountToken": False, **spec}}


class Cluster:
    """Makes nodes, one at a time."""

    def __init__(
        self,
        *,
        directory: Path,
        identities: ControlPlaneIdentities,
        transport: Transport,
        containerd: PrivateContainerd,
    ) -> None:
        self._directory = directory
        self._identities = identities
        self.transport = transport
        self._containerd = containerd
        self.api = Api(transport=transport)
        self._nodes = 0

    def scraper(self) -> tuple[Path, Path]:
        """Return the certificate and the key of a client that may read everything of a node."""
        return self._identities.client("scraper", ADMINS)

    @asynccontextmanager
    async def node(self, program: Program, client: CriClient) -> AsyncIterator[NodeUnderTest]:
        """A node that is ready and has come to rest; afterwards its pods are gone from the API and the runtime."""
        self._nodes += 1
        name = f"{program.name}-{self._nodes}"
        directory = self._directory / name
        directory.mkdir()
        command, ports = self._prepare(program, name, directory)
        process = AgentProcess(log=directory / "agent.log")
        async with AsyncExitStack() as stack:
            pods = await stack.enter_async_context(open_watch(self.transport, "pods"))
            nodes = await stack.enter_async_context(open_watch(self.transport, "nodes"))
            began = time.time()
            await process.start(command)
            try:
                ready = await _until_ready(nodes, name, process)
                await asyncio.sleep(SETTLE)
                yield NodeUnderTest(
                    name=name,
                    root=directory / "root",
                    command=command,
                    ports=ports,
                    process=process,
                    api=self.api,
                    pods=pods,
                    ready_after=ready - began,
                    tls=self._admin_tls(),
                )
            finally:
                await process.end(kill=True)
                # One by one: the embedded API deletes no collections.
                for left in pods.left():
                    await self.api.remove_now(f"{PODS}/{left}")
                await self.api.remove_now(f"/api/v1/nodes/{name}")
                await remove_all(client)
                undo_mounts(directory)

    def _admin_tls(self) -> ssl.SSLContext:
        tls = ssl.create_default_context()
        # Each agent signs the certificate of its API itself.
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
        tls.load_cert_chain(*self._identities.client("scraper", ADMINS))
        return tls

    def _prepare(self, program: Program, name: str, directory: Path) -> tuple[tuple[str, ...], Ports]:
        configuration = directory / "config.json"
        authority = self._identities.authority
        ports = write_configuration(configuration, containerd=self._containerd, authority=authority)
        command = (
            *program.command(),
            f"--config={configuration}",
            f"--kubeconfig={self._identities.kubeconfig(*node_user(name))}",
            f"--root-dir={directory / 'root'}",
            f"--cert-dir={directory / 'pki'}",
            f"--hostname-override={name}",
        )
        return command, ports


async def _until_ready(nodes: Watch, name: str, process: AgentProcess) -> float:
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return (await nodes.until([name], is_ready, patience=1.0))[name]
            except TimeoutError:
                process.check()

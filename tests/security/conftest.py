"""A node under attack: `klet run` as a process of its own, between a fake runtime and an embedded API server.

The runtime is at the other end of a gRPC socket, the API server behind TLS, the kubelet API on ports of the loopback.
Everything that an attacker may touch is in a directory of the test. `node/` has the attacks that need containerd.
"""

import asyncio
import base64
import importlib.util
import json
import os
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from klet.aio.clock import SystemClock
from klet.api.authorization import SubjectAccessReviewSpec
from klet.api.codec import convert
from klet.api.pod import Pod
from klet.embedded.identities import ApiUser
from klet.embedded.review_answers import AllowEverything
from klet.embedded.server import EmbeddedApi, build_api
from klet.embedded.store import Key, Store
from klet.host.mounts import unmount_tree
from klet.kube.access import Access, Login, PemSource
from klet.kube.client import KubeClient
from klet.kube.credentials import Credentials
from klet.kube.throttle import Unlimited
from klet.kube.transport import Transport
from klet.testing.builders import IMAGE
from klet.testing.cri_server import serve_cri
from klet.testing.fake_runtime import FakeImage, FakeRuntime, Script
from klet.testing.fake_runtime.logs import FileSink
from klet.testing.fake_runtime.world import Features
from klet.testing.free_ports import find_free_ports

PATIENCE = 20
NODE_TOKEN, OWNER_TOKEN = "node-token", "owner-token"


def load_bench(path: str) -> ModuleType:
    """The fixtures and classes of another directory of tests; modules beside tests cannot be imported by name."""
    name = f"bench_of_{path.replace('/', '_')}"
    if name not in sys.modules:
        file = Path(__file__).parents[1] / path / "conftest.py"
        spec = importlib.util.spec_from_file_location(name, file)
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


agents = load_bench("integration/agent")
pki = load_bench("component/server").pki
Streamer = load_bench("component/server").Streamer


@dataclass(frozen=True)
class Asked:
    """A request that reached the API server."""

    method: str
    path: str
    body: bytes
    is_agent: bool


@dataclass
class ApiServer:
    """An embedded API server behind TLS, and its owner's client."""

    api: EmbeddedApi
    client: KubeClient
    port: int
    authority: bytes
    requests: list[Asked] = field(default_factory=list)

    def kubeconfig(self, directory: Path, *, token: str = NODE_TOKEN, **cluster: Any) -> Path:
        data = base64.b64encode(self.authority).decode()
        cluster = {"server": f"https://127.0.0.1:{self.port}", "certificate-authority-data": data} | cluster
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {key: value for key, value in cluster.items() if value}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        file = directory / "kubeconfig.json"
        file.write_text(json.dumps(config))
        return file

    async def bind(self, name: str, spec: dict[str, Any], **metadata: Any) -> Pod:
        """Put a pod on the node."""
        fields = {"nodeName": "node", "dnsPolicy": "Default", "terminationGracePeriodSeconds": 0}
        body = {"metadata": {"name": name, **metadata}, "spec": fields | spec}
        return await self.client.create(convert(Pod, body), "default")

    async def slip_in(self, name: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
        """Put a pod on the node that no API server should let pass: nothing of it is checked."""
        plain = {"containers": [{"name": "main", "image": IMAGE}], "dnsPolicy": "Default"}
        body = {"metadata": {"name": name, **metadata}, "spec": plain | {"terminationGracePeriodSeconds": 0}}
        await self.client.create(convert(Pod, body), "default")
        key = Key("pods", "default", name)
        stored = self.api.store.get(key)
        for kind in ("containers", "initContainers"):
            spec |= {kind: [{"imagePullPolicy": "IfNotPresent", **each} for each in spec.get(kind, ())]}
        stored["spec"] |= spec | {"nodeName": "node"}
        return self.api.store.put(key, stored)

    async def until(self, holds: Callable[[], bool], *, what: str) -> None:
        """Wait for a state of what is stored."""
        with self.api.store.changes() as changes:
            try:
                async with asyncio.timeout(PATIENCE):
                    while not holds():
                        await changes.get()
            except TimeoutError:
                pytest.fail(f"{what} never came")

    def objects(self, resource: str) -> list[dict[str, Any]]:
        """All that is stored of a kind."""
        return self.api.store.all(resource)


@asynccontextmanager
async def run_api_server(pki: Any, *, tokens: dict[str, ApiUser], rights: Any) -> AsyncIterator[ApiServer]:
    clock = SystemClock()
    owner = ApiUser("owner", groups=("system:masters",))
    agent = ApiUser("system:node:node", groups=("system:nodes", "system:masters"))
    known = {NODE_TOKEN: agent, OWNER_TOKEN: owner} | tokens
    api = build_api(store=Store.open(), tokens=known, rights=rights, clock=clock)
    requests: list[Asked] = []

    @web.middleware
    async def note(request: web.Request, handler: Any) -> web.StreamResponse:
        is_agent = request.headers.get("Authorization") == f"Bearer {NODE_TOKEN}"
        requests.append(Asked(request.method, request.path, await request.read(), is_agent))
        return await handler(request)

    application = api.handler.application()
    application.middlewares.append(note)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*pki.pair("server"))
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        port = runner.addresses[0][1]
        authority, login = pki.pair("ca")[0].read_bytes(), Login(token=OWNER_TOKEN)
        access = Access(server=f"https://127.0.0.1:{port}", authority=PemSource(data=authority), login=login)
        transport = Transport(access=access, credentials=Credentials(login=login, clock=clock))
        client = KubeClient(transport=transport, throttle=Unlimited(), timeout=timedelta(seconds=10), clock=clock)
        yield ApiServer(api, client, port, authority, requests)
        await transport.close()
    finally:
        await runner.cleanup()
        api.store.close()


class Target:
    """One node: what an attacker may reach of it, and what the test sees behind it."""

    def __init__(self, *, directory: Path, node: Any, runtime: FakeRuntime, pki: Any, streamer: Any) -> None:
        self.directory = directory
        self.node, self.runtime, self.pki, self.streamer = node, runtime, pki, streamer
        self.port, self.healthz_port, self.read_only_port = find_free_ports(3)
        self.cluster: ApiServer
        self.agent: Any

    def settings(self) -> dict[str, Any]:
        """The kubelet API for clients with a certificate, as on any node; no cgroups."""
        certificate, key = self.pki.pair("server")
        return {
            "cgroupsPerQOS": False,
            "enforceNodeAllocatable": ["none"],
            "enableServer": True,
            "address": "127.0.0.1",
            "port": self.port,
            "healthzPort": self.healthz_port,
            "tlsCertFile": str(certificate),
            "tlsPrivateKeyFile": str(key),
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": False},
                "x509": {"clientCAFile": str(self.pki.pair("ca")[0])},
            },
        }

    # From the network.

    def url(self, path: str, port: int | None = None) -> str:
        port = port or self.port
        return f"{'https' if port == self.port else 'http'}://127.0.0.1:{port}{path}"

    async def ask(
        self,
        path: str,
        *,
        who: str | None = "admin",
        method: str = "GET",
        port: int | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, str]:
        """One request: with a certificate, or nothing to show."""
        connector = aiohttp.TCPConnector(ssl=self.pki.client(who))
        url = aiohttp.client.URL(self.url(path, port), encoded=True)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(PATIENCE)) as session,
            session.request(method, url, headers=headers, allow_redirects=False) as answer,
        ):
            return answer.status, await answer.text(errors="replace")

    async def send(self, data: bytes, *, who: str | None = "admin", port: int | None = None) -> bytes:
        """Bytes as they are, and all that comes back until the end of the connection, or silence for a while."""
        context = self.pki.client(who) if port in {None, self.port} else None
        reader, writer = await asyncio.open_connection("127.0.0.1", port or self.port, ssl=context)
        said = b""
        try:
            writer.write(data)
            with suppress(TimeoutError, ConnectionError):
                async with asyncio.timeout(PATIENCE):
                    while piece := await reader.read(1 << 16):
                        said += piece
        finally:
            writer.close()
            with suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()
        return said

    # Behind the node.

    async def start(self, manifest: dict[str, Any]) -> Pod:
        """Put a static pod on the node, and wait until it runs."""
        name = manifest["metadata"]["name"]
        self.node.write(name, manifest)
        await self.agent.until(lambda pods: is_running(pods.get(name)), what=f"{name}: Running")
        return await self.agent.pod(name)

    def created(self, name: str = "") -> list[Any]:
        """The configurations of all containers that the runtime was asked for."""
        made = [call.request.config for call in self.runtime.calls if call.rpc == "CreateContainer"]
        return [config for config in made if name in {"", config.metadata.name}]

    def calls(self, rpc: str) -> list[Any]:
        return [call.request for call in self.runtime.calls if call.rpc == rpc]

    def container(self, name: str) -> Any:
        """The container of that name that was made last."""
        return [each for each in self.runtime.containers() if each.config.metadata.name == name][-1]

    def volume(self, uid: str, plugin: str, name: str) -> Path:
        return self.node.root / "pods" / uid / "volumes" / f"kubernetes.io~{plugin}" / name

    async def waiting(self, pod: str, container: str, *, reason: str) -> str:
        """The message of a container that waits for this reason, once it does."""
        found = ""

        def waits(pods: dict[str, Pod]) -> bool:
            nonlocal found
            status = pods[pod].status if pod in pods else None
            every = (*status.init_container_statuses, *status.container_statuses) if status is not None else ()
            for each in every:
                if each.name == container and each.state.waiting and each.state.waiting.reason == reason:
                    found = each.state.waiting.message
                    return True
            return False

        await self.agent.until(waits, what=f"{pod}/{container}: {reason}")
        return found

    async def reported(self, decision: str, *, about: str, uid: str = "") -> str:
        """The message of a decision about a pod of the API server or of the node, once there is one."""
        try:
            async with asyncio.timeout(PATIENCE), aclosing(self.agent.records(name=about)) as records:
                async for record in records:
                    if record["decision"] == decision and uid in {"", record["subject"]["uid"]}:
                        return record["message"]
        except TimeoutError:
            pass
        story = await self.agent.text(f"/klet/v1/journal?name={about}")
        pytest.fail(f"{about}: {decision} never came; the journal says:\n{story}\nthe agent says:\n{self.agent.log}")

    def memory(self) -> int:
        """Bytes that the agent's process has in memory."""
        pages = int(Path(f"/proc/{self.agent.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE")


class Attack:
    """Makes nodes to attack, one after the other on the same directory and runtime."""

    def __init__(self, *, directory: Path, pki: Any, stack: AsyncExitStack) -> None:
        self.directory, self._pki, self._stack = directory, pki, stack

    async def on(
        self,
        *,
        script: Script | None = None,
        images: tuple[FakeImage, ...] = (),
        cluster: bool = False,
        tokens: dict[str, ApiUser] | None = None,
        rights: Any = None,
        **settings: Any,
    ) -> Target:
        """A target whose agent is not started: `async with attack.run(target)`."""
        clock, streamer, sink = SystemClock(), Streamer(), FileSink()
        self._stack.callback(sink.close_all)
        endpoint = await asyncio.start_server(streamer.answer, "127.0.0.1", 0)
        self._stack.callback(endpoint.close)
        self._stack.push_async_callback(streamer.close)
        streamer.url = f"http://127.0.0.1:{endpoint.sockets[0].getsockname()[1]}"
        runtime = FakeRuntime(
            start=clock.now(),
            script=script or Script(),
            features=Features(streaming_url=streamer.url),
            images=(FakeImage(name=IMAGE), *images),
            sink=sink,
        )
        socket = await self._stack.enter_async_context(
            serve_cri(runtime, clock=clock, socket=self.directory / "cri.sock")
        )
        node = agents.Node(directory=self.directory, containerd=SimpleNamespace(endpoint=socket, cgroup_parent="/"))
        target = Target(directory=self.directory, node=node, runtime=runtime, pki=self._pki, streamer=streamer)
        node.settings |= target.settings() | settings
        if cluster:
            server = run_api_server(self._pki, tokens=tokens or {}, rights=rights or AllowEverything())
            target.cluster = await self._stack.enter_async_context(server)
        return target

    @asynccontextmanager
    async def run(self, target: Target, *flags: str, **settings: Any) -> AsyncIterator[Target]:
        """The agent runs until the block is left."""
        flags = (f"--cert-dir={self.directory / 'pki'}", *flags)
        if hasattr(target, "cluster"):
            flags = (f"--kubeconfig={target.cluster.kubeconfig(self.directory)}", *flags)
        async with target.node.run(*flags, **settings) as target.agent:
            yield target

    @asynccontextmanager
    async def __call__(self, *flags: str, **options: Any) -> AsyncIterator[Target]:
        """A target whose agent runs: `async with attack(cluster=True) as target`."""
        async with self.run(await self.on(**options), *flags) as target:
            yield target


@asynccontextmanager
async def attacking(directory: Path, pki: Any) -> AsyncIterator[Attack]:
    try:
        async with AsyncExitStack() as stack:
            yield Attack(directory=directory, pki=pki, stack=stack)
    finally:
        unmount_tree(directory, lazy=True)


@pytest.fixture
async def attack(tmp_path: Path, pki: Any) -> AsyncIterator[Attack]:
    async with attacking(tmp_path, pki) as made:
        yield made


class ReaderRights:
    """The owner of the certificate may do everything, the reader may read through nodes/proxy."""

    def __init__(self) -> None:
        self.asked: list[SubjectAccessReviewSpec] = []

    def allows(self, asked: SubjectAccessReviewSpec) -> bool:
        self.asked.append(asked)
        wanted = asked.resource_attributes
        if asked.user == "admin" or wanted is None:
            return asked.user == "admin"
        return asked.user == "reader" and (wanted.verb, wanted.resource, wanted.subresource) == (
            *("get", "nodes"),
            "proxy",
        )


@pytest.fixture
def node_api(network_target: Target) -> Target:
    """The node for attacks from the network, with nothing remembered of those before."""
    network_target.runtime.history.clear()
    network_target.streamer.heads.clear()
    network_target.streamer.behave = Streamer().behave
    network_target.rights.asked.clear()
    return network_target


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def network_target(tmp_path_factory: pytest.TempPathFactory, pki: Any) -> AsyncIterator[Target]:
    """One node for all attacks from the network: every port is open, and the pod `web` runs."""
    directory = tmp_path_factory.mktemp("node_api")
    async with attacking(directory, pki) as attack:
        rights = ReaderRights()
        tokens = {"reader-token": ApiUser("reader"), "stranger-token": ApiUser("stranger")}
        target = await attack.on(cluster=True, tokens=tokens, rights=rights)
        target.rights = rights
        authentication = target.node.settings["authentication"] | {"webhook": {"enabled": True}}
        settings = {"authentication": authentication, "authorization": {"mode": "Webhook"}}
        async with attack.run(target, readOnlyPort=target.read_only_port, **settings):
            await target.cluster.bind("web", {"containers": [{"name": "main", "image": IMAGE}]})
            await target.agent.until(lambda pods: is_running(pods.get("web")), what="the pod")
            yield target


def is_running(pod: Pod | None) -> bool:
    return pod is not None and pod.status is not None and pod.status.phase == "Running"


@pytest.fixture
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of the host that no pod may see or change, in a directory of their own."""
    directory = tmp_path_factory.mktemp("outside")
    (directory / "flag").write_text("flag of the host\n")
    return directory


@pytest.fixture
def pod() -> Callable[..., dict[str, Any]]:
    """A manifest: `pod("web", main={"command": […]}, init={"first": {}}, volumes=[…])`."""

    def build(name: str, *, init: dict[str, dict] | None = None, spec: dict | None = None, **containers: dict) -> dict:
        def made(given: dict[str, dict]) -> list[dict]:
            return [{"name": key, "image": IMAGE, **fields} for key, fields in given.items()]

        fields = {"containers": made(containers or {"main": {}}), "initContainers": made(init or {}), **(spec or {})}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": fields}

    return build

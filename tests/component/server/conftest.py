"""The kubelet API over real TLS, on the fake runtime and a small streaming endpoint."""

import asyncio
import logging
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace

from klet.aio.clock import SystemClock
from klet.aio.threads import Threads
from klet.api.container_status import ContainerState, ContainerStateRunning, ContainerStatus
from klet.api.pod import Pod, PodStatus
from klet.api.stats import NodeStats, Summary
from klet.app.metrics import open_metrics
from klet.certs.maker import AuthorityFiles, CertificateMaker
from klet.certs.messages import Purpose, Template
from klet.cri.client import CriClient
from klet.host.images import BUSYBOX_IMAGE
from klet.host.journalctl import Journalctl
from klet.metrics import MetricRegistry
from klet.model.tracing import Tracer
from klet.server.auth.access import AlwaysAllow, Authorizer
from klet.server.auth.certificates import CertificateAuthenticator, ClientAuthorities
from klet.server.auth.filter import AuthFilter
from klet.server.auth.reviews import LIMITS, Retrying, ReviewLimits
from klet.server.auth.tokens import TokenAuthenticator
from klet.server.checkpoints import ContainerCheckpoints
from klet.server.endpoint_types import HandlerSwitch
from klet.server.file_server import FileServer
from klet.server.listener import (
    ListenAddress,
    ListenerLimits,
    ListenerOptions,
    SecureListener,
    SocketListener,
    listen_on,
)
from klet.server.metrics import register_health
from klet.server.node_logs import NodeLogs
from klet.server.routes.checkpoint import CheckpointRoutes
from klet.server.routes.debug import DebugRoutes
from klet.server.routes.health import HealthCheck, HealthRoutes
from klet.server.routes.metrics import MetricRoutes
from klet.server.routes.node import NodeRoutes
from klet.server.routes.node_logs import NodeLogRoutes
from klet.server.routes.pods import PodRoutes
from klet.server.routes.stats import StatsRoutes
from klet.server.routes.streams import StreamRoutes
from klet.server.routes.usage import UsageRoutes
from klet.server.routes.zpages import FlagzRoutes, StatuszRoutes
from klet.server.runtime_pods import RuntimePods
from klet.server.tls.certified import CertifiedConnections
from klet.server.tls.context import TlsSettings
from klet.server.tls.serving import FollowedAuthorities, ServingContext
from klet.testing.builders import make_pod
from klet.testing.clock import FastClock
from klet.testing.cri_configs import build_container_config, build_sandbox_config
from klet.testing.fake_runtime.images import FakeImage
from klet.testing.fake_runtime.logs import FileSink
from klet.testing.fake_runtime.machine import FakeRuntime
from klet.testing.fake_runtime.world import Features
from klet.testing.in_process import run_in_process
from klet.wire import cri_v1_pb2 as cri

PROMPTLY = 30
YEAR = timedelta(days=365)
ADMIN = Template(common_name="admin", organizations=("masters", "people"))
UID = "web-uid"
MIRROR_UID = "web-mirror-uid"

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def refresh_nothing():
    """Read nothing: these agents have no disk."""


class EmptySummaries:
    """A node of which nothing is known but its name."""

    async def summary(self, *, only_cpu_and_memory: bool = False) -> Summary:
        del only_cpu_and_memory
        return Summary(node=NodeStats(node_name="node", start_time=None), pods=())


@dataclass(frozen=True)
class Pki:
    """Files: `<name>.crt` and `<name>.key` of authorities and those they have signed."""

    directory: Path

    def pair(self, name: str) -> tuple[Path, Path]:
        return self.directory / f"{name}.crt", self.directory / f"{name}.key"

    def client(self, name: str | None = None) -> ssl.SSLContext:
        """The context of a client that trusts the server, and shows a certificate if it has one."""
        context = ssl.create_default_context(cafile=self.pair("ca")[0])
        if name is not None:
            context.load_cert_chain(*self.pair(name))
        return context


async def make_pki(directory: Path) -> Pki:
    maker, pki = CertificateMaker(clock=SystemClock()), Pki(directory)

    def write(name: str, pair: Any) -> None:
        for path, text in zip(pki.pair(name), (pair.certificate, pair.key), strict=True):
            path.write_text(text)

    async def sign(name: str, by: str, template: Template, purpose: Purpose) -> None:
        authority = AuthorityFiles(certificate_file=pki.pair(by)[0], key_file=pki.pair(by)[1])
        write(name, await maker.leaf(template, authority=authority, purpose=purpose, lifetime=YEAR))

    write("ca", await maker.authority("klet-ca", lifetime=YEAR))
    write("other-ca", await maker.authority("other-ca", lifetime=YEAR))
    server = Template(common_name="node", dns_names=("localhost",), ips=("127.0.0.1",))
    await sign("server", "ca", server, Purpose.SERVER)
    await sign("server-2", "ca", server, Purpose.SERVER)
    await sign("admin", "ca", ADMIN, Purpose.CLIENT)
    await sign("server-as-client", "ca", ADMIN, Purpose.SERVER)
    await sign("stranger", "other-ca", ADMIN, Purpose.CLIENT)
    return pki


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    with asyncio.Runner() as runner:
        return runner.run(make_pki(tmp_path_factory.mktemp("pki")))


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Agree to the upgrade, and say back whatever comes until it ends."""
    writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()


@dataclass
class Streamer:
    """The runtime's streaming endpoint: it notes the head of each request and then does as it is reported."""

    behave: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]] = echo
    heads: list[bytes] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""
    tasks: set[Any] = field(default_factory=set)

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.add(asyncio.current_task())
        try:
            self.heads.append(await reader.readuntil(b"\r\n\r\n"))
            await self.behave(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
            self.ended.set()


class Pods:
    """The pods of the node."""

    def __init__(self) -> None:
        status = ContainerStatus(
            name="main", state=ContainerState(running=ContainerStateRunning()), container_id="containerd://id-1"
        )
        pod = make_pod("main", name="web")
        metadata = replace(pod.metadata, uid=UID)
        self.all: tuple[Pod, ...] = (
            replace(pod, metadata=metadata, status=PodStatus(phase="Running", container_statuses=(status,))),
        )

    def pods(self) -> tuple[Pod, ...]:
        return self.all

    def terminating(self) -> tuple[Pod, ...]:
        return ()

    def runtime_uid(self, uid: str) -> str:
        return UID if uid == MIRROR_UID else uid

    def find(self, namespace: str, name: str) -> Pod | None:
        named = (pod for pod in self.all if (pod.metadata.namespace, pod.metadata.name) == (namespace, name))
        return next(named, None)


class Logs:
    async def read(self, container: str, query: Any) -> AsyncIterator[bytes]:  # noqa: ARG002 - the view's signature
        yield b"hello\n"


class Usage:
    """Two families, in two pieces."""

    async def cadvisor(self) -> Iterator[bytes]:
        return iter((b"container_scrape_error 0\n", b"machine_scrape_error 0\n"))

    async def resource(self) -> Iterator[bytes]:
        return iter((b"resource_scrape_error 0\n",))


class Health:
    def __init__(self) -> None:
        self.errors: dict[str, str | None] = {"ping": None, "log": None, "syncloop": None}

    def checks(self) -> dict[str, HealthCheck]:
        return {name: partial(self.error_of, name) for name in self.errors}

    def error_of(self, name: str) -> str | None:
        return self.errors[name]


class Profiler:
    """Says how long it was asked to profile, once it is let go on."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.goes_on = asyncio.Event()

    async def record(self, duration: timedelta) -> bytes:
        self.asked.set()
        await self.goes_on.wait()
        return f"{duration.total_seconds():.0f} s".encode()


@dataclass(kw_only=True)
class Setup:
    """What a test changes before the kubelet starts."""

    certificate: str | None = "server"
    with_client_ca: bool = True
    reviewer: Any = None
    authorizer: Authorizer = field(default_factory=AlwaysAllow)
    allows_anonymous: bool = False
    has_debugging: bool = True
    has_checkpoints: bool = True
    """Whether the runtime makes checkpoints."""
    splits_streams: bool = False
    answers_queries: bool = False
    query_deadline: timedelta = timedelta(seconds=30)
    """Node log queries; the programs of the node are in `<directory>/bin`."""
    with_gates: bool = False
    """ComponentFlagz and ComponentStatusz."""
    switched_off: frozenset[HandlerSwitch] = frozenset()
    tracer: Tracer | None = None
    with_vault: bool = False
    """Run another pod, `default/vault` with the UID `vault-uid`."""
    limits: ListenerLimits = field(default_factory=ListenerLimits)
    token_ttl: timedelta = timedelta(minutes=2)
    review_limits: ReviewLimits = LIMITS


class Kubelet:
    """A kubelet API that listens."""

    def __init__(
        self,
        *,
        pki: Pki,
        streamer: Streamer,
        runtime: FakeRuntime,
        client: CriClient,
        directory: Path,
        threads: Threads,
        setup: Setup,
    ) -> None:
        self.pki, self.streamer, self.runtime = pki, streamer, runtime
        self.pods, self.health = Pods(), Health()
        self.ca = directory / "client-ca.crt"
        self.ca.write_bytes(pki.pair("ca")[0].read_bytes())
        self.socket = directory / "klet.sock"
        self.port = 0
        self.root = directory / "root"
        running = RuntimePods(runtime=client)
        checkpoints = ContainerCheckpoints(
            root=self.root, runtime=client, running=running, threads=threads, clock=SystemClock()
        )
        self.node_logs, self.programs = directory / "var-log", directory / "bin"
        self.node_logs.mkdir(exist_ok=True)
        self.programs.mkdir(exist_ok=True)
        (self.node_logs / "messages").write_text("said by the node\n")
        self.profiler, self.verbosities = Profiler(), []
        files = FileServer(root=self.node_logs, threads=threads)
        journal = Journalctl(environment={"PATH": f"relative:{self.programs}:/usr/bin:/bin"})
        queries = NodeLogs(journal=journal, files=files, deadline=setup.query_deadline)
        self.gated = (
            FlagzRoutes(flags={"v": "2", "root-dir": "/var/lib/kubelet"}, randomness=random.Random(1)),
            StatuszRoutes(paths=("/configz", "/healthz"), randomness=random.Random(1), clock=SystemClock()),
        )
        self.routes = (
            NodeLogRoutes(files=files, queries=queries if setup.answers_queries else None),
            DebugRoutes(
                load_profiler=lambda: self.profiler,
                set_verbosity=self.verbosities.append,
                command_line=("klet", "run", "--v=2"),
            ),
            *(self.gated if setup.with_gates else ()),
            PodRoutes(pods=self.pods, logs=Logs(), splits_streams=setup.splits_streams),
            CheckpointRoutes(pods=self.pods, checkpoints=checkpoints),
            HealthRoutes(checks=self.health.checks(), metrics=register_health(MetricRegistry())),
            StreamRoutes(pods=self.pods, running=running, runtime=client),
            NodeRoutes(configuration=b'{"port":10250}', running=running),
            MetricRoutes(metrics=open_metrics(architecture="amd64"), refresh=refresh_nothing),
            UsageRoutes(usage=Usage(), started=1_700_000_000.75, clock=SystemClock()),
            StatsRoutes(summaries=EmptySummaries()),
        )

    async def connect(self, name: str | None = "admin") -> Connection:
        """A TLS connection, with a client certificate."""
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=self.pki.client(name))

    @asynccontextmanager
    async def connected(self, name: str | None = "admin") -> AsyncIterator[Connection]:
        reader, writer = await self.connect(name)
        try:
            async with asyncio.timeout(PROMPTLY):
                yield reader, writer
        finally:
            writer.close()
            with suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()

    @asynccontextmanager
    async def session(self, name: str | None = "admin", **options: Any) -> AsyncIterator[aiohttp.ClientSession]:
        async with aiohttp.ClientSession(
            f"https://127.0.0.1:{self.port}",
            connector=aiohttp.TCPConnector(ssl=self.pki.client(name)),
            timeout=aiohttp.ClientTimeout(PROMPTLY),
            **options,
        ) as session:
            yield session

    async def get(self, path: str, name: str | None = "admin", method: str = "GET", **options: Any) -> tuple[int, str]:
        async with self.session(name) as session, session.request(method, path, **options) as answer:
            return answer.status, await answer.text()


async def start_pod(client: CriClient, directory: Path, *, name: str = "web", uid: str = UID) -> None:
    """A pod with a running container `main`, as the runtime has it."""
    sandbox_config = build_sandbox_config(name=name, log_directory=directory, cgroup_parent="")
    request = cri.RunPodSandboxRequest(config=sandbox_config)
    sandbox = (await client.run_pod_sandbox(request)).pod_sandbox_id
    config = build_container_config(name="main", command=("sleep", "1000"))
    config.labels.update({"io.kubernetes.pod.uid": uid, "io.kubernetes.container.name": "main"})
    wanted = cri.CreateContainerRequest(pod_sandbox_id=sandbox, config=config, sandbox_config=sandbox_config)
    container = (await client.create_container(wanted)).container_id
    await client.start_container(cri.StartContainerRequest(container_id=container))


@asynccontextmanager
async def run_kubelet(pki: Pki, directory: Path, setup: Setup) -> AsyncIterator[Kubelet]:
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        streamer = Streamer()
        endpoint = await asyncio.start_server(streamer.answer, "127.0.0.1", 0)
        stack.callback(endpoint.close)
        stack.push_async_callback(streamer.close)
        streamer.url = f"http://127.0.0.1:{endpoint.sockets[0].getsockname()[1]}"
        features = Features(streaming_url=streamer.url, checkpoints=setup.has_checkpoints)
        sink = FileSink()
        stack.callback(sink.close_all)
        images = (FakeImage(name=BUSYBOX_IMAGE),)
        runtime = FakeRuntime(start=clock.now(), features=features, images=images, sink=sink)
        client = await stack.enter_async_context(run_in_process(runtime, clock=clock))
        await start_pod(client, directory)
        if setup.with_vault:
            await start_pod(client, directory, name="vault", uid="vault-uid")
        threads = Threads(limit=2)
        stack.callback(threads.close)
        kubelet = Kubelet(
            pki=pki,
            streamer=streamer,
            runtime=runtime,
            client=client,
            directory=directory,
            threads=threads,
            setup=setup,
        )
        authorities = ClientAuthorities(file=kubelet.ca, threads=threads, clock=clock)
        await authorities.load()
        contexts = ServingContext(
            settings=TlsSettings(asks_for_certificates=setup.with_client_ca),
            authorities=authorities,
            threads=threads,
            clock=clock,
        )
        if setup.certificate is not None:
            await contexts.use(*pki.pair(setup.certificate))
        certified = CertifiedConnections(clock=clock)
        kubelet.contexts, kubelet.authorities, kubelet.certified = contexts, authorities, certified
        retrying = Retrying(clock=clock, randomness=random.Random(1))
        auth = AuthFilter(
            certificates=CertificateAuthenticator(authorities=authorities, clock=clock)
            if setup.with_client_ca
            else None,
            tokens=TokenAuthenticator(
                reviewer=setup.reviewer,
                retrying=retrying,
                keep=setup.token_ttl,
                clock=clock,
                limits=setup.review_limits,
            )
            if setup.reviewer is not None
            else None,
            authorizer=setup.authorizer,
            allows_anonymous=setup.allows_anonymous,
            is_fine_grained=True,
        )
        taken = listen_on(ListenAddress(host="127.0.0.1", port=0, name="address, port"))
        listener = SecureListener(
            listener=taken,
            contexts=contexts,
            certified=certified,
            auth=auth,
            routes=kubelet.routes,
            clock=clock,
            options=ListenerOptions(
                has_debugging=setup.has_debugging, switched_off=setup.switched_off, tracer=setup.tracer
            ),
            limits=setup.limits,
        )
        kubelet.port = taken.getsockname()[1]
        group = await stack.enter_async_context(asyncio.TaskGroup())
        tasks = [
            group.create_task(each.run())
            for each in (
                listener,
                authorities,
                FollowedAuthorities(
                    authorities=authorities, context=contexts, connections=certified, clock=FastClock()
                ),
                SocketListener(path=kubelet.socket, routes=kubelet.routes, clock=clock),
            )
        ]
        try:
            yield kubelet
        finally:
            for task in tasks:
                task.cancel()


@pytest.fixture
def start(pki: Pki, tmp_path: Path) -> Callable[..., Any]:
    """Starts a kubelet API: `async with start(allows_anonymous=True) as kubelet`."""
    return lambda **options: run_kubelet(pki, tmp_path, Setup(**options))


@pytest.fixture
async def kubelet(start: Callable[..., Any]) -> AsyncIterator[Kubelet]:
    async with start() as running:
        yield running


@pytest.fixture
def logged() -> Callable[[str], Any]:
    """Waits at its end until something is reported: `async with logged("Serving with"): …`."""

    @asynccontextmanager
    async def wait(text: str) -> AsyncIterator[None]:
        reported = asyncio.Event()

        class Watch(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                if text in record.getMessage():
                    reported.set()

        watch, logger = Watch(), logging.getLogger("klet.server")
        before = logger.level
        logger.addHandler(watch)
        logger.setLevel(logging.INFO)
        try:
            yield
            await asyncio.wait_for(reported.wait(), PROMPTLY)
        finally:
            logger.setLevel(before)
            logger.removeHandler(watch)

    return wait

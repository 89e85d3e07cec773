"""A cluster that nodes bootstrap into: an API server with TLS, an authority, and its signer."""

import asyncio
import base64
import random
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from msgspec.structs import replace

from klet.aio.clock import SystemClock
from klet.aio.threads import Threads
from klet.certs.identity import CertificateTools, IdentitySettings
from klet.certs.maker import AuthorityFiles, CertificateMaker
from klet.certs.messages import Pair, Purpose, Template
from klet.certs.store import CLIENT_PREFIX, PairStore
from klet.certs.templates import build_client_template
from klet.embedded.identities import ApiUser
from klet.embedded.review_answers import AllowEverything
from klet.embedded.server import EmbeddedApi, build_api
from klet.embedded.signer import ClusterSigner
from klet.embedded.store import Store
from klet.journal.memory import MemoryJournal
from klet.kube.access import Access
from klet.kube.client import KubeClient
from klet.kube.credentials import Credentials
from klet.kube.throttle import Unlimited
from klet.kube.transport import Transport
from klet.metrics import MetricRegistry
from klet.testing.clock import FastClock

NODE = "edge-1"
TOKEN = "abcdef.0123456789abcdef"
BOOTSTRAPPER = ApiUser("system:bootstrap:abcdef", groups=("system:bootstrappers", "system:authenticated"))
DAY = timedelta(days=1)
PROMPTLY = 30


@dataclass(frozen=True, slots=True)
class Authority:
    """The cluster's authority, and the pair that its API server serves with."""

    files: AuthorityFiles
    server_file: Path
    node: Pair
    """Of the node, good for a day."""
    misfit: Pair
    """Of the node, without its organization: good, and to be replaced at once."""

    def server_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self.files.certificate_file)
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_cert_chain(self.server_file)
        return context


async def make_authority(directory: Path) -> Authority:
    maker = CertificateMaker(clock=SystemClock())
    files = AuthorityFiles(certificate_file=directory / "ca.crt", key_file=directory / "ca.key")
    pair = await maker.authority("kubernetes", lifetime=3650 * DAY)
    files.certificate_file.write_text(pair.certificate)
    files.key_file.write_text(pair.key)
    names = Template(common_name="kube-apiserver", ips=("127.0.0.1",))
    server = await maker.leaf(names, authority=files, purpose=Purpose.SERVER, lifetime=DAY)
    (directory / "server.pem").write_text(server.certificate + server.key)

    async def sign(template: Template) -> Pair:
        return await maker.leaf(template, authority=files, purpose=Purpose.CLIENT, lifetime=DAY)

    node = build_client_template(NODE)
    misfit = Template(common_name=node.common_name)
    return Authority(files, directory / "server.pem", node=await sign(node), misfit=await sign(misfit))


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    with asyncio.Runner() as runner:
        return runner.run(make_authority(tmp_path_factory.mktemp("authority")))


@dataclass(slots=True)
class SecureCluster:
    """One API server, whether it listens or not, and what it has seen."""

    api: EmbeddedApi
    authority: Authority
    port: int = 0
    serials: list[str] = field(default_factory=list)
    """Of the client certificates, in the order of requests."""

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Listen, on the same port each time."""
        application = self.api.handler.application()
        application.middlewares.append(self._note)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            site = web.TCPSite(
                runner, "127.0.0.1", self.port, ssl_context=self.authority.server_context(), reuse_address=True
            )
            await site.start()
            self.port = runner.addresses[0][1]
            yield
        finally:
            await runner.cleanup()

    @asynccontextmanager
    async def signing(self, **options: Any) -> AsyncIterator[None]:
        """Have a signer at work."""
        wanted = {"lifetime": DAY, "maker": CertificateMaker(clock=SystemClock())} | options
        signer = ClusterSigner(api=self.api, authority=self.authority.files, **wanted)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(signer.run())
            try:
                yield
            finally:
                task.cancel()

    def requests(self) -> list[dict[str, Any]]:
        return self.api.store.all("certificatesigningrequests.certificates.k8s.io")

    async def until_requests(self, count: int) -> list[dict[str, Any]]:
        async with asyncio.timeout(PROMPTLY):
            with self.api.store.changes() as changes:
                while len(found := self.requests()) < count:
                    await changes.get()
        return found

    @web.middleware
    async def _note(self, request: web.Request, handler: Any) -> web.StreamResponse:
        certificate = request.get_extra_info("peercert")
        self.serials.append(certificate["serialNumber"] if certificate else "")
        response: web.StreamResponse = await handler(request)
        return response


@pytest.fixture
def cluster(authority: Authority) -> Iterator[SecureCluster]:
    api = build_api(store=Store.open(), tokens={TOKEN: BOOTSTRAPPER}, rights=AllowEverything(), clock=SystemClock())
    yield SecureCluster(api, authority)
    api.store.close()


@pytest.fixture
def tools() -> Iterator[CertificateTools]:
    clock, threads = FastClock(), Threads(limit=2)
    yield CertificateTools(
        registry=MetricRegistry(),
        maker=CertificateMaker(clock=clock),
        threads=threads,
        clock=clock,
        randomness=random.Random(1),
        recorder=MemoryJournal(clock=clock),
    )
    threads.close()


@asynccontextmanager
async def connect(access: Access) -> AsyncIterator[tuple[KubeClient, Transport]]:
    clock = SystemClock()
    transport = Transport(access=access, credentials=Credentials(login=access.login, clock=clock))
    client = KubeClient(transport=transport, throttle=Unlimited(), timeout=timedelta(seconds=10), clock=clock)
    try:
        yield client, transport
    finally:
        await transport.close()


@pytest.fixture
def connected() -> Any:
    """A client with the credentials that were found: `async with connected(access) as (client, transport)`."""
    return connect


@dataclass(frozen=True, slots=True)
class Home:
    """The files of a node."""

    directory: Path
    authority: Authority

    @property
    def settings(self) -> IdentitySettings:
        return IdentitySettings(
            node_name=NODE,
            kubeconfig=self.directory / "kubelet.conf",
            bootstrap_kubeconfig=self.directory / "bootstrap-kubelet.conf",
            directory=self.directory / "pki",
            rotates=False,
        )

    @property
    def rotating(self) -> IdentitySettings:
        return replace(self.settings, rotates=True)

    @property
    def current(self) -> Path:
        return self.settings.directory / "kubelet-client-current.pem"

    def write(self, path: Path, server: str, **user: str) -> None:
        authority = base64.b64encode(self.authority.files.certificate_file.read_bytes()).decode()
        config = {
            "clusters": [{"name": "c", "cluster": {"server": server, "certificate-authority-data": authority}}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path.write_text(yaml.safe_dump(config))

    def settle(self, server: str, pair: Pair) -> None:
        """The node has its certificate and its kubeconfig already."""
        store = PairStore(prefix=CLIENT_PREFIX, directory=self.settings.directory, configured=None, clock=SystemClock())
        store.update(pair.certificate, pair.key)
        named = {"client-certificate": str(self.current), "client-key": str(self.current)}
        self.write(self.settings.kubeconfig, server, **named)
        self.write_bootstrap(server)

    def write_bootstrap(self, server: str) -> None:
        path = self.settings.bootstrap_kubeconfig
        assert path is not None
        self.write(path, server, token=TOKEN)


@pytest.fixture
def home(tmp_path: Path, authority: Authority) -> Home:
    return Home(tmp_path, authority)

"""The node's certificates in a cluster: the client's, bootstrapped and rotated, and the server's, requested.

`open_identity` says how the agent reaches its API server; `open_serving` keeps the kubelet API's certificate.
"""

import logging
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from klet.aio.clock import Clock
from klet.aio.tasks import first_of
from klet.aio.threads import Threads
from klet.api.node import NodeAddress
from klet.certs.board import CertificateBoard
from klet.certs.bootstrap import KEY_FILE, Bootstrap, build_kubeconfig, find_flaw, wait_for_server, write_kubeconfig
from klet.certs.findings import find_first
from klet.certs.followers import IdentityWatch, PairUser, ServedPair
from klet.certs.maker import CertificateMaker
from klet.certs.manager import CertificateManager
from klet.certs.messages import Pair, Purpose, Template
from klet.certs.metrics import CertificateLives, register_certificate, register_lives
from klet.certs.pairs import CertificatePair
from klet.certs.requests import ApiSigning, CertificateRequester
from klet.certs.store import CLIENT_PREFIX, SERVER_PREFIX, PairStore
from klet.certs.templates import build_client_template, build_serving_template
from klet.kube.access import Access, KeyPair, Login, PemSource
from klet.kube.client import REQUEST_TIMEOUT, KubeClient
from klet.kube.credentials import Credentials
from klet.kube.errors import CredentialError, KubeconfigError, KubeError
from klet.kube.informer import InformerSettings
from klet.kube.kubeconfig import load_kubeconfig
from klet.kube.throttle import Unlimited
from klet.kube.transport import Transport
from klet.kube.watch import Watcher
from klet.metrics import MetricRegistry
from klet.model.causes import CauseRecorder
from klet.model.roles import Part

logger = logging.getLogger(__name__)

_HEALTH_PATH: Final = "/healthz"
_HEALTH_TIMEOUT: Final = timedelta(seconds=1)


class IdentitySettings(Struct, frozen=True, kw_only=True):
    """`--kubeconfig`, `--bootstrap-kubeconfig`, `--cert-dir` and `rotateCertificates`."""

    node_name: str
    kubeconfig: Path
    bootstrap_kubeconfig: Path | None
    directory: Path
    rotates: bool


class CertificateTools(Struct, frozen=True, kw_only=True):
    """What certificates are made with."""

    maker: CertificateMaker
    threads: Threads
    clock: Clock
    randomness: random.Random
    recorder: CauseRecorder
    registry: MetricRegistry


class Identity(Struct, frozen=True, kw_only=True):
    """How the agent reaches its API server, and what keeps it so."""

    access: Access
    parts: tuple[Part, ...] = ()
    board: CertificateBoard | None = None
    """The client certificate in force, if it is rotated."""


class ServingRequestSettings(Struct, frozen=True, kw_only=True):
    """`serverTLSBootstrap`, `--cert-dir`, the pair that is configured besides, and the gate AllowDNSOnlyNodeCSR."""

    node_name: str
    directory: Path
    configured: tuple[Path, Path] | None
    allow_dns_only: bool


@asynccontextmanager
async def open_identity(settings: IdentitySettings, tools: CertificateTools) -> AsyncIterator[Identity]:
    """Yield the node's credentials. Without rotation they are obtained here if there are none, which may take an hour.

    Raises KubeconfigError or CertificateError.
    """
    bootstrap = await _find_bootstrap(settings, tools)
    async with AsyncExitStack() as opened:
        if settings.rotates:
            yield await _open_rotated(settings, tools, bootstrap, opened)
        else:
            if bootstrap is not None:
                await _bootstrap(settings, tools, bootstrap, opened)
            yield Identity(access=load_kubeconfig(settings.kubeconfig))


def build_identity_watch(
    identity: Identity, transports: Sequence[Transport], tools: CertificateTools
) -> tuple[Part, ...]:
    """Return the part that reopens all connections with a new client certificate, and ends an agent that lost it."""
    if identity.board is None:
        return ()

    async def refresh() -> None:
        for transport in transports:
            try:
                await transport.refresh()
            except CredentialError as error:
                logger.warning("The new client certificate cannot be shown", extra={"error": str(error)})

    watch = IdentityWatch(board=identity.board, refresh=refresh, recorder=tools.recorder, clock=tools.clock)
    return (watch,)


async def open_serving(
    settings: ServingRequestSettings,
    *,
    addresses: Callable[[], Sequence[NodeAddress]],
    api: InformerSettings,
    user: PairUser,
    tools: CertificateTools,
) -> tuple[Part, ...]:
    """Return the part that requests the serving certificate and gives each one to the server, the stored one first."""
    board = CertificateBoard()
    store = PairStore(
        prefix=SERVER_PREFIX, directory=settings.directory, configured=settings.configured, clock=tools.clock
    )

    def template() -> Template | None:
        return build_serving_template(settings.node_name, addresses(), allow_dns_only=settings.allow_dns_only)

    rotator = _build_rotator(Purpose.SERVER, template, store, board, lambda: api, tools)
    served = ServedPair(board=board, user=user)
    lives = CertificateLives(board=board, lives=register_lives(tools.registry), clock=tools.clock)
    await rotator.open()
    await served.open()
    return (rotator, served, lives)


async def _find_bootstrap(settings: IdentitySettings, tools: CertificateTools) -> Access | None:
    """Return the credentials for the first certificate, if one is needed."""
    if settings.bootstrap_kubeconfig is None:
        return None
    flaw = await find_flaw(settings.kubeconfig, tools.maker, now=tools.clock.now())
    if not flaw:
        return None
    logger.info("The node needs a client certificate", extra={"reason": flaw})
    try:
        return load_kubeconfig(settings.bootstrap_kubeconfig)
    except KubeconfigError as error:
        raise KubeconfigError(f"unable to load bootstrap kubeconfig: {error}") from error


async def _bootstrap(
    settings: IdentitySettings, tools: CertificateTools, access: Access, opened: AsyncExitStack
) -> None:
    """Obtain the first certificate and write the kubeconfig that uses it."""
    api = _connect(access, tools, opened)
    store = _client_store(settings, None, tools)
    await wait_for_server(
        lambda: _find_problem(api.client, tools.clock), clock=tools.clock, randomness=tools.randomness
    )
    pair = await Bootstrap(
        template=build_client_template(settings.node_name),
        store=store,
        key_file=settings.directory / KEY_FILE,
        requester=CertificateRequester(purpose=Purpose.CLIENT, maker=tools.maker, api=ApiSigning(choose=lambda: api)),
        threads=tools.threads,
        clock=tools.clock,
    ).obtain()
    await _write(settings, tools, access, store)
    logger.info("The node has its client certificate", extra={"file": str(pair.certificate_file)})
    tools.recorder.record(find_first(pair))


async def _open_rotated(
    settings: IdentitySettings, tools: CertificateTools, bootstrap: Access | None, opened: AsyncExitStack
) -> Identity:
    """Return the client certificate of the store, rotated. The agent may start without one; the loop gets it."""
    if bootstrap is not None:
        await _write(settings, tools, bootstrap, _client_store(settings, None, tools))
    given = load_kubeconfig(settings.kubeconfig)
    store = _client_store(settings, _files_of(given.login.pair), tools)
    board = CertificateBoard()
    # Without a certificate of its own the agent asks with what was given to it.
    first = _connect(bootstrap or given, tools, opened)

    def choose() -> InformerSettings:
        return own if board.is_valid(now=tools.clock.now()) else first

    template = build_client_template(settings.node_name)
    rotator = _build_rotator(Purpose.CLIENT, lambda: template, store, board, choose, tools)
    await rotator.open(_inline_of(given.login.pair))
    # Only the certificate is shown, as upstream's rotating transport does: it alone is renewed.
    access = replace(given, login=Login(pair=_followed(store, board.pair, given.login.pair)))
    own = _connect(access, tools, opened)
    return Identity(access=access, parts=(rotator,), board=board)


def _build_rotator(
    purpose: Purpose,
    template: Callable[[], Template | None],
    store: PairStore,
    board: CertificateBoard,
    choose: Callable[[], InformerSettings],
    tools: CertificateTools,
) -> CertificateManager:
    register_certificate(tools.registry, purpose, board, tools.clock)
    return CertificateManager(
        template=template,
        store=store,
        requester=CertificateRequester(purpose=purpose, maker=tools.maker, api=ApiSigning(choose=choose)),
        board=board,
        recorder=tools.recorder,
        threads=tools.threads,
        clock=tools.clock,
        randomness=tools.randomness,
    )


def _client_store(
    settings: IdentitySettings, configured: tuple[Path, Path] | None, tools: CertificateTools
) -> PairStore:
    return PairStore(prefix=CLIENT_PREFIX, directory=settings.directory, configured=configured, clock=tools.clock)


async def _write(settings: IdentitySettings, tools: CertificateTools, access: Access, store: PairStore) -> None:
    config = build_kubeconfig(access, store.current_path.absolute())
    await tools.threads.run(write_kubeconfig, settings.kubeconfig, config)
    logger.info("The kubeconfig is written", extra={"file": str(settings.kubeconfig)})


def _connect(access: Access, tools: CertificateTools, opened: AsyncExitStack) -> InformerSettings:
    """Return a client for the few requests about certificates, apart from the agent's own."""
    transport = Transport(access=access, credentials=Credentials(login=access.login, clock=tools.clock))
    opened.push_async_callback(transport.close)
    client = KubeClient(transport=transport, throttle=Unlimited(), timeout=REQUEST_TIMEOUT, clock=tools.clock)
    watcher = Watcher(transport=transport, randomness=tools.randomness)
    return InformerSettings(client, watcher, tools.clock, tools.randomness)


async def _find_problem(client: KubeClient, clock: Clock) -> str:
    """Return what keeps the API server from being well; empty if nothing does."""
    found: list[str] = []

    async def ask() -> None:
        try:
            await client.read(_HEALTH_PATH)
            found.append("")
        except KubeError as error:
            found.append(str(error))

    await first_of(ask(), clock.sleep(_HEALTH_TIMEOUT))
    return found[0] if found else f"no answer within {_HEALTH_TIMEOUT.total_seconds():g} s"


def _files_of(pair: KeyPair | None) -> tuple[Path, Path] | None:
    if pair is None or pair.certificate.path is None or pair.key.path is None:
        return None
    return pair.certificate.path, pair.key.path


def _inline_of(pair: KeyPair | None) -> Pair | None:
    if pair is None or not pair.certificate.data or not pair.key.data:
        return None
    return Pair(
        certificate=pair.certificate.data.decode("utf-8", "replace"), key=pair.key.data.decode("utf-8", "replace")
    )


def _followed(store: PairStore, begun: CertificatePair | None, given: KeyPair | None) -> KeyPair:
    """Return the pair that the agent began with, until the store has a newer one."""
    newest = store.current_path
    if given is not None and _inline_of(given) is not None:
        return replace(given, successor=newest)  # it may not be stored, if the directory cannot be written
    if begun is None:
        return KeyPair(PemSource(path=newest), PemSource(path=newest))
    return KeyPair(PemSource(path=begun.certificate_file), PemSource(path=begun.key_file), successor=newest)

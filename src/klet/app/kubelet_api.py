"""The kubelet API of this node: which paths, on which ports, for whom, and with which certificate."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from klet.app.basics import Basics
from klet.app.views import AgentHealth, BoardPods, RuntimeLogs
from klet.app.wiring import Agent, Part
from klet.certs.maker import CertificateMaker
from klet.certs.serving import Reject, Requested, ServingFiles, ServingPair, ServingSettings, plan_serving
from klet.config.command_line import Settings
from klet.config.configuration import KubeletConfiguration
from klet.config.errors import ConfigError
from klet.config.unusable import named
from klet.server.auth.build import AuthSettings, build_gate
from klet.server.auth.certificates import ClientAuthorities
from klet.server.auth.reviews import Reviewer
from klet.server.configz import encode_configuration
from klet.server.endpoints import Routes
from klet.server.listener import Address, HealthListener, ReadOnlyListener, SecureListener, take
from klet.server.routes.health import HealthRoutes
from klet.server.routes.node import NodeRoutes
from klet.server.routes.pods import PodRoutes
from klet.server.routes.streams import StreamRoutes
from klet.server.runtime_pods import RuntimePods
from klet.server.tls.certified import CertifiedConnections
from klet.server.tls.context import TlsSettings
from klet.server.tls.serving import FollowedAuthorities, FollowedPair, ServingContext


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSockets:
    """The ports of the API; None where it is switched off."""

    secure: socket.socket | None
    readers: socket.socket | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRoutes:
    """What serves the paths; the table of endpoints says which of them each listener has."""

    health: HealthRoutes
    pods: PodRoutes
    streams: StreamRoutes
    node: NodeRoutes

    def all(self) -> tuple[Routes, ...]:
        return self.health, self.pods, self.streams, self.node


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletApi:
    """What serves the API."""

    parts: tuple[Part, ...]
    requested: ServingContext | None
    """Where `serverTLSBootstrap` asks for a certificate of the cluster: who gets one hands it over here, by `use`.

    Until then handshakes fail.
    """


def check_serving(given: Settings) -> None:
    """Raise ConfigError for settings of TLS that contradict one another."""
    if given.config.enable_server:
        _plan_serving(given)


@contextmanager
def take_ports(config: KubeletConfiguration) -> Iterator[ApiSockets]:
    """Take the ports that the agent cannot do without, before it does anything else. Raises ListenError."""
    with ExitStack() as taken:

        def claim(port: int, field: str) -> socket.socket:
            address = Address(host=config.address, port=port, name=f"{named('address')}, {named(field)}")
            return taken.enter_context(take(address))

        yield ApiSockets(
            secure=claim(config.port, "port") if config.enable_server else None,
            readers=claim(config.read_only_port, "readOnlyPort") if config.read_only_port > 0 else None,
        )


def build_routes(given: Settings, basics: Basics, agent: Agent, pods: BoardPods) -> ApiRoutes:
    """One set of paths for every listener."""
    runtime = basics.runtime
    running = RuntimePods(runtime=runtime)
    return ApiRoutes(
        health=HealthRoutes(health=AgentHealth(loop=agent.loop)),
        pods=PodRoutes(pods=pods, logs=RuntimeLogs(runtime=runtime, clock=basics.clock)),
        streams=StreamRoutes(pods=pods, running=running, runtime=runtime),
        node=NodeRoutes(configuration=encode_configuration(given.config), running=running),
    )


async def build_kubelet_api(
    given: Settings,
    node_name: str,
    basics: Basics,
    *,
    sockets: ApiSockets,
    routes: ApiRoutes,
    reviewer: Reviewer | None,
) -> KubeletApi:
    """Get the certificates ready and build the listeners. The reviewer is the API server, if there is one.

    Raises KletError for what nobody could be served with: a damaged certificate, no way to know who asks.
    """
    config, parts = given.config, list[Part]()
    if config.healthz_port > 0:
        name = f"{named('healthzBindAddress')}, {named('healthzPort')}"
        address = Address(host=config.healthz_bind_address, port=config.healthz_port, name=name)
        parts.append(HealthListener(address=address, routes=routes.all(), clock=basics.clock))
    if sockets.readers is not None:
        parts.append(ReadOnlyListener(listener=sockets.readers, routes=routes.all(), clock=basics.clock))
    if sockets.secure is None:
        return KubeletApi(parts=tuple(parts), requested=None)
    authorities = await _load_authorities(config, basics)
    contexts = _build_contexts(config, basics, authorities)
    certified = CertifiedConnections(clock=basics.clock)
    plan = _plan_serving(given)
    if authorities is not None:
        followed = FollowedAuthorities(
            authorities=authorities, context=contexts, connections=certified, clock=basics.clock
        )
        parts += (authorities, followed)
    gate = build_gate(
        AuthSettings(
            authentication=config.authentication,
            authorization=config.authorization,
            node_name=node_name,
            is_fine_grained=given.gates.enabled("KubeletFineGrainedAuthz"),
            streams_by_method=given.klet.streams_by_method,
        ),
        reviewer=reviewer,
        authorities=authorities,
        randomness=basics.randomness,
        clock=basics.clock,
    )
    listener = SecureListener(
        listener=sockets.secure,
        contexts=contexts,
        certified=certified,
        gate=gate,
        routes=routes.all(),
        clock=basics.clock,
        has_debugging=config.enable_debugging_handlers,
    )
    if isinstance(plan, Requested):
        return KubeletApi(parts=(*parts, listener), requested=contexts)
    return KubeletApi(parts=(*parts, *await _serve_files(plan, node_name, basics, contexts, listener)), requested=None)


async def _load_authorities(config: KubeletConfiguration, basics: Basics) -> ClientAuthorities | None:
    file = config.authentication.x509.client_ca_file
    if not file:
        return None
    authorities = ClientAuthorities(file=Path(file), threads=basics.threads, clock=basics.clock)
    await authorities.load()
    return authorities


def _build_contexts(
    config: KubeletConfiguration, basics: Basics, authorities: ClientAuthorities | None
) -> ServingContext:
    settings = TlsSettings(
        min_version=config.tls_min_version,
        cipher_suites=config.tls_cipher_suites,
        asks_for_certificates=authorities is not None,
    )
    return ServingContext(settings=settings, authorities=authorities, threads=basics.threads, clock=basics.clock)


def _plan_serving(given: Settings) -> ServingFiles | Requested:
    config = given.config
    plan = plan_serving(
        ServingSettings(
            certificate_file=config.tls_cert_file,
            key_file=config.tls_private_key_file,
            is_requested=config.server_tls_bootstrap,
            directory=Path(given.flags.cert_dir),
        )
    )
    if isinstance(plan, Reject):
        raise ConfigError(plan.message)
    return plan


async def _serve_files(
    plan: ServingFiles, node_name: str, basics: Basics, contexts: ServingContext, listener: Part
) -> tuple[Part, ...]:
    """Serve with a pair of files and with what they become. A damaged pair is an error at once."""
    signer = CertificateMaker(clock=basics.clock)
    pair = ServingPair(files=plan, host=node_name, signer=signer, threads=basics.threads)
    followed = FollowedPair(
        context=contexts, certificate_file=plan.certificate_file, key_file=plan.key_file, clock=basics.clock
    )

    async def prepare() -> None:
        ready = await pair.prepare()
        await contexts.use(ready.certificate_file, ready.key_file)

    if not await pair.is_there():
        return (Prepared(prepare=prepare, parts=(followed, listener)),)
    await prepare()
    return followed, listener


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Makes the first certificate while the node is on its way: who connects already is served when it is there."""

    prepare: Callable[[], Awaitable[None]]
    parts: tuple[Part, ...]

    async def run(self) -> None:
        await self.prepare()
        async with asyncio.TaskGroup() as group:
            for part in self.parts:
                group.create_task(part.run(), name=type(part).__name__)

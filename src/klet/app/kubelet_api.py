"""The kubelet API of this node: which paths, on which ports, for whom, and with which certificate."""

import os
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from msgspec import Struct

from klet.aio.threads import Threads
from klet.api.node import Node
from klet.app.ports import BasePorts, Ports
from klet.app.settings import PREVENT_API_REFERENCES, AgentSettings, cut_validation_options
from klet.app.wiring import Agent
from klet.certs.maker import CertificateMaker
from klet.certs.serving import Requested, ServingConflict, ServingFiles, ServingPair, ServingSettings, plan_serving
from klet.config.command_line import Settings
from klet.config.configuration import KubeletConfiguration
from klet.config.errors import ConfigError
from klet.config.unusable import named
from klet.host.addresses import find_node_addresses
from klet.host.journalctl import Journalctl
from klet.journal.queries import JournalQueries, KeptCauses
from klet.logs.container_logs import ContainerLogs
from klet.model.roles import Part
from klet.node.addresses import preferred_version
from klet.server.auth.build import AuthSettings, build_auth_filter
from klet.server.auth.certificates import ClientAuthorities
from klet.server.auth.filter import AuthFilter
from klet.server.auth.reviews import Reviewer
from klet.server.checkpoints import ContainerCheckpoints
from klet.server.configz import encode_configuration
from klet.server.endpoint_types import HandlerSwitch, Routes, WithoutDebugging
from klet.server.endpoints import ENDPOINT_GROUPS
from klet.server.file_server import FileServer
from klet.server.listener import (
    HealthListener,
    ListenAddress,
    ListenerOptions,
    ReadOnlyListener,
    SecureListener,
    SocketListener,
    listen_on,
)
from klet.server.metrics import register_health, register_http
from klet.server.node_logs import NodeLogs
from klet.server.routes.checkpoint import CheckpointRoutes
from klet.server.routes.debug import CpuProfiler, DebugRoutes
from klet.server.routes.fit import FitRoutes
from klet.server.routes.health import HealthRoutes, pass_always
from klet.server.routes.images import ImageRoutes
from klet.server.routes.klet import KletRoutes
from klet.server.routes.metrics import MetricRoutes
from klet.server.routes.node import NodeRoutes
from klet.server.routes.node_logs import NodeLogRoutes
from klet.server.routes.pods import PodRoutes
from klet.server.routes.pulls import PullRoutes
from klet.server.routes.stats import StatsRoutes
from klet.server.routes.streams import StreamRoutes
from klet.server.routes.usage import UsageRoutes
from klet.server.routes.zpages import FlagzRoutes, StatuszRoutes
from klet.server.runtime_pods import RuntimePods
from klet.server.tls.certified import CertifiedConnections
from klet.server.tls.context import TlsSettings
from klet.server.tls.serving import FirstPair, FollowedAuthorities, FollowedPair, ServingContext
from klet.sources.manifest_preview import ManifestPreview
from klet.stats.usage_metrics import UsageMetrics
from klet.stats.usage_on_disk import DiskUsageMetrics
from klet.sync.reported_pods import ReportedPods

NODE_LOGS: Final = Path("/var/log")


class ApiSockets(Struct, frozen=True, kw_only=True):
    """The ports of the API; None where it is switched off."""

    secure: socket.socket | None
    readers: socket.socket | None


class SecureApi(Struct, frozen=True, kw_only=True):
    """The port that the control plane uses."""

    listener: socket.socket
    contexts: ServingContext
    certified: CertifiedConnections
    auth: AuthFilter
    has_debugging: bool
    pair: FollowedPair | None
    """The files of the certificate; None where the cluster signs one (`serverTLSBootstrap`)."""
    prepare: Callable[[], Awaitable[None]] | None
    """Makes the first certificate, where there is none yet."""


class CheckpointPlace(Struct, frozen=True, kw_only=True):
    """Where checkpoints of containers are written."""

    root: Path
    threads: Threads


class ApiFeatures(Struct, frozen=True, kw_only=True):
    """What the API does behind gates."""

    splits_log_streams: bool = False
    checkpoints: CheckpointPlace | None = None
    """Where checkpoints of containers go; None if none are made."""
    debug: tuple[Routes, ...] = ()
    """What looks at the node and at the agent itself: logs of the node, profiles, flags."""
    switched_off: frozenset[HandlerSwitch] = frozenset()


class OpenedApi(Struct, frozen=True, kw_only=True):
    """Where and with what the node answers: its ports are taken, its certificates read."""

    health: ListenAddress | None
    readers: socket.socket | None
    secure: SecureApi | None
    own_socket: Path
    """Of the agent's own API."""
    journal: KeptCauses
    configuration: bytes
    """As `/configz` shows it."""
    node_ips: tuple[str, ...]
    manifests: ManifestPreview
    """Reads what `klet fit` is asked about."""
    features: ApiFeatures
    parts: tuple[Part, ...]
    """What follows the files of certificate authorities."""

    @property
    def requested(self) -> ServingContext | None:
        """Where `serverTLSBootstrap` asks for a certificate of the cluster: who gets one hands it over here, by `use`.

        Until then handshakes fail.
        """
        return self.secure.contexts if self.secure is not None and self.secure.pair is None else None


def check_serving(given: Settings) -> None:
    """Raise ConfigError for settings of TLS that contradict one another."""
    if given.config.enable_server:
        _plan_serving(given)


@contextmanager
def take_ports(config: KubeletConfiguration) -> Iterator[ApiSockets]:
    """Take the ports that the agent cannot do without, before it does anything else. Raises ListenError."""
    with ExitStack() as taken:

        def claim(port: int, field: str) -> socket.socket:
            address = ListenAddress(host=config.address, port=port, name=f"{named('address')}, {named(field)}")
            return taken.enter_context(listen_on(address))

        yield ApiSockets(
            secure=claim(config.port, "port") if config.enable_server else None,
            readers=claim(config.read_only_port, "readOnlyPort") if config.read_only_port > 0 else None,
        )


async def open_kubelet_api(
    given: Settings,
    settings: AgentSettings,
    base: BasePorts,
    *,
    sockets: ApiSockets,
    reviewer: Reviewer | None,
    set_verbosity: Callable[[int], None],
) -> OpenedApi:
    """Get the certificates ready. The reviewer is the API server, if there is one.

    Raises KletError if it could not serve at all: a damaged certificate, no way to authenticate callers.
    """
    config = given.config
    secure, parts = None, tuple[Part, ...]()
    if sockets.secure is not None:
        secure, parts = await _open_secure(given, settings.node_name, base, sockets.secure, reviewer)
    health = None
    if config.healthz_port > 0:
        name = f"{named('healthzBindAddress')}, {named('healthzPort')}"
        health = ListenAddress(host=config.healthz_bind_address, port=config.healthz_port, name=name)
    return OpenedApi(
        health=health,
        readers=sockets.readers,
        secure=secure,
        own_socket=settings.socket,
        journal=base.journal,
        configuration=encode_configuration(config),
        node_ips=find_node_addresses(given.flags.node_ip.split(","), prefer=preferred_version(settings.node)),
        manifests=_build_preview(given, settings.node_name),
        features=ApiFeatures(
            splits_log_streams=given.gates.enabled("PodLogsQuerySplitStreams"),
            checkpoints=CheckpointPlace(root=settings.root, threads=base.threads)
            if given.gates.enabled("ContainerCheckpoint")
            else None,
            debug=_build_debug_routes(given, base, set_verbosity),
            switched_off=_find_switched_off(config),
        ),
        parts=parts,
    )


def build_api_parts(
    api: OpenedApi, ports: Ports, agent: Agent, *, node_name: str, find_node: Callable[[], Node | None]
) -> tuple[Part, ...]:
    """Build the listeners: health checks, read-only, control plane, and the agent's own socket."""
    clock = ports.clock
    pods = ReportedPods(pods=agent.pods, statuses=agent.statuses, ledger=agent.ledger, node_ips=api.node_ips)
    routes = _build_routes(ports, agent, pods, api)
    records = JournalQueries(
        journal=api.journal,
        pods=pods,
        node=agent.runtime,
        node_name=node_name,
        api_node=find_node,
        pulls=agent.pulls,
        clock=clock,
    )
    own = SocketListener(
        path=api.own_socket,
        routes=(
            *routes,
            KletRoutes(pods=pods, journal=records, topology=agent.topology.read),
            PullRoutes(pulls=agent.pulls, clock=clock),
            ImageRoutes(images=agent.image_views),
            FitRoutes(manifests=api.manifests, fit=agent.fit),
        ),
        clock=clock,
        switched_off=api.features.switched_off,
    )
    parts: list[Part] = [*api.parts, own]
    requests = register_http(agent.metrics.agent)
    if api.health is not None:
        parts.append(HealthListener(address=api.health, routes=routes, clock=clock))
    if api.readers is not None:
        options = ListenerOptions(tracer=ports.tracer, metrics=requests)
        parts.append(ReadOnlyListener(listener=api.readers, routes=routes, clock=clock, options=options))
    if api.secure is not None:
        options = ListenerOptions(
            has_debugging=api.secure.has_debugging,
            switched_off=api.features.switched_off,
            tracer=ports.tracer,
            metrics=requests,
        )
        parts += _build_secure(api.secure, routes, ports, options)
    return tuple(parts)


def _build_routes(ports: Ports, agent: Agent, pods: ReportedPods, api: OpenedApi) -> tuple[Routes, ...]:
    """Build one set of paths for all listeners; the table of endpoints says which of them each has."""
    running = RuntimePods(runtime=ports.runtime)
    logs = ContainerLogs(runtime=ports.runtime, clock=ports.clock)
    on_disk = DiskUsageMetrics(registry=agent.metrics.agent, disk=agent.disk, seen=agent.cache)
    routes: tuple[Routes, ...] = (
        HealthRoutes(
            checks={"ping": pass_always, "log": pass_always, "syncloop": agent.loop.health_error},
            metrics=register_health(agent.metrics.slis),
        ),
        PodRoutes(pods=pods, logs=logs, splits_streams=api.features.splits_log_streams),
        StreamRoutes(pods=pods, running=running, runtime=ports.runtime),
        NodeRoutes(configuration=api.configuration, running=running),
        MetricRoutes(metrics=agent.metrics, refresh=on_disk.refresh),
        StatsRoutes(summaries=agent.summaries),
        UsageRoutes(
            usage=UsageMetrics(stats=agent.stats, summaries=agent.summaries, machine=ports.machine, clock=ports.clock),
            started=agent.metrics.process_started,
            clock=ports.clock,
        ),
        *api.features.debug,
    )
    place = api.features.checkpoints
    if place is None:
        return routes
    checkpoints = ContainerCheckpoints(
        root=place.root, runtime=ports.runtime, running=running, threads=place.threads, clock=ports.clock
    )
    return (*routes, CheckpointRoutes(pods=pods, checkpoints=checkpoints))


def _build_preview(given: Settings, node_name: str) -> ManifestPreview:
    return ManifestPreview(
        node_name=node_name,
        has_api=bool(given.flags.kubeconfig),
        options=cut_validation_options(given),
        prevent_api_references=given.gates.enabled(PREVENT_API_REFERENCES),
        classes={each.metadata.name: each for each in given.klet.runtime_classes},
        is_enabled=given.gates.enabled,
    )


def _find_switched_off(config: KubeletConfiguration) -> frozenset[HandlerSwitch]:
    switches = {
        HandlerSwitch.LOGS: config.enable_system_log_handler,
        HandlerSwitch.PROFILING: config.enable_profiling_handler,
        HandlerSwitch.FLAGS: config.enable_debug_flags_handler,
    }
    return frozenset(switch for switch, is_on in switches.items() if not is_on)


def _build_debug_routes(given: Settings, base: BasePorts, set_verbosity: Callable[[int], None]) -> tuple[Routes, ...]:
    def load_profiler() -> CpuProfiler:
        # Imported here: few agents are ever profiled.
        from klet.server.profiler import SamplingProfiler  # noqa: PLC0415 - see above

        return SamplingProfiler(clock=base.clock)

    config, files = given.config, FileServer(root=NODE_LOGS, threads=base.threads)
    queries = None
    if config.enable_system_log_query and given.gates.enabled("NodeLogQuery"):
        queries = NodeLogs(journal=Journalctl(environment=os.environ), files=files)
    routes: list[Routes] = [
        NodeLogRoutes(files=files, queries=queries),
        DebugRoutes(load_profiler=load_profiler, set_verbosity=set_verbosity, command_line=sys.orig_argv),
    ]
    if given.gates.enabled("ComponentFlagz"):
        routes.append(FlagzRoutes(flags=given.flagz, randomness=base.randomness))
    if given.gates.enabled("ComponentStatusz"):
        paths = _list_paths(has_debugging=config.enable_debugging_handlers)
        routes.append(StatuszRoutes(paths=paths, randomness=base.randomness, clock=base.clock))
    return tuple(routes)


def _list_paths(*, has_debugging: bool) -> tuple[str, ...]:
    """Return the paths that `/statusz` names: those that upstream's kubelet registers one by one."""
    named = (
        f"/{group.segments[0]}"
        for group in ENDPOINT_GROUPS
        if not group.is_tree and (has_debugging or group.without_debugging is WithoutDebugging.KEPT)
    )
    return tuple(sorted({*named} - {"/statusz"}))


def _build_secure(
    secure: SecureApi, routes: tuple[Routes, ...], ports: Ports, options: ListenerOptions
) -> tuple[Part, ...]:
    listener = SecureListener(
        listener=secure.listener,
        contexts=secure.contexts,
        certified=secure.certified,
        auth=secure.auth,
        routes=routes,
        clock=ports.clock,
        options=options,
    )
    parts = (listener,) if secure.pair is None else (secure.pair, listener)
    return (FirstPair(prepare=secure.prepare, parts=parts),) if secure.prepare is not None else parts


async def _open_secure(
    given: Settings, node_name: str, base: BasePorts, listener: socket.socket, reviewer: Reviewer | None
) -> tuple[SecureApi, tuple[Part, ...]]:
    config = given.config
    authorities = await _load_authorities(config, base)
    contexts = _build_contexts(config, base, authorities)
    certified = CertifiedConnections(clock=base.clock)
    auth = build_auth_filter(
        AuthSettings(
            authentication=config.authentication,
            authorization=config.authorization,
            node_name=node_name,
            is_fine_grained=given.gates.enabled("KubeletFineGrainedAuthz"),
            streams_by_method=given.klet.streams_by_method,
        ),
        reviewer=reviewer,
        authorities=authorities,
        randomness=base.randomness,
        clock=base.clock,
    )
    plan = _plan_serving(given)
    pair, prepare = None, None
    if not isinstance(plan, Requested):
        pair, prepare = await _open_pair(plan, node_name, base, contexts)
    parts = tuple[Part, ...]()
    if authorities is not None:
        followed = FollowedAuthorities(
            authorities=authorities, context=contexts, connections=certified, clock=base.clock
        )
        parts = (authorities, followed)
    secure = SecureApi(
        listener=listener,
        contexts=contexts,
        certified=certified,
        auth=auth,
        has_debugging=config.enable_debugging_handlers,
        pair=pair,
        prepare=prepare,
    )
    return secure, parts


async def _load_authorities(config: KubeletConfiguration, base: BasePorts) -> ClientAuthorities | None:
    file = config.authentication.x509.client_ca_file
    if not file:
        return None
    authorities = ClientAuthorities(file=Path(file), threads=base.threads, clock=base.clock)
    await authorities.load()
    return authorities


def _build_contexts(
    config: KubeletConfiguration, base: BasePorts, authorities: ClientAuthorities | None
) -> ServingContext:
    settings = TlsSettings(
        min_version=config.tls_min_version,
        cipher_suites=config.tls_cipher_suites,
        asks_for_certificates=authorities is not None,
    )
    return ServingContext(settings=settings, authorities=authorities, threads=base.threads, clock=base.clock)


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
    if isinstance(plan, ServingConflict):
        raise ConfigError(plan.message)
    return plan


async def _open_pair(
    plan: ServingFiles, node_name: str, base: BasePorts, contexts: ServingContext
) -> tuple[FollowedPair, Callable[[], Awaitable[None]] | None]:
    """Return a pair of files and what they become. A damaged pair is an error at once; a missing one is made later."""
    signer = CertificateMaker(clock=base.clock)
    pair = ServingPair(files=plan, host=node_name, signer=signer, threads=base.threads, recorder=base.recorder)
    followed = FollowedPair(
        context=contexts, certificate_file=plan.certificate_file, key_file=plan.key_file, clock=base.clock
    )

    async def prepare() -> None:
        ready = await pair.prepare()
        await contexts.use(ready.certificate_file, ready.key_file)

    if not await pair.is_there():
        return followed, prepare
    await prepare()
    return followed, None

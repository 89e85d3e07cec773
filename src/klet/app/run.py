"""`klet run`: upstream's flags in, the agent running until it is told to stop."""

import logging
import random
import sys
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from klet.aio.clock import SystemClock
from klet.aio.threads import Threads
from klet.app.basics import Basics
from klet.app.container_ports import ContainerPorts, open_container_ports
from klet.app.journal_view import JournalRecords
from klet.app.kubelet_api import ApiSockets, KubeletApi, build_kubelet_api, build_routes, check_serving, take_ports
from klet.app.left_files import HostLeftFiles
from klet.app.lifecycle import run_parts
from klet.app.log_format import start_logging
from klet.app.machine_checks import check_machine, check_places
from klet.app.machine_facts import read_machine_facts
from klet.app.objects import standalone_objects
from klet.app.pod_sources import build_sources, source_names
from klet.app.ports import open_pod_cgroups, open_runtime
from klet.app.service import build_watchdog, tell_ready
from klet.app.settings import AgentSettings, cut_settings
from klet.app.views import BoardPods
from klet.app.volumes import VOLUME_THREADS, NodeVolumes, open_volumes
from klet.app.wiring import Agent, Part, Ports, build_agent
from klet.checkpoint import CheckpointFile, Found
from klet.config.command_line import Settings, ShowText
from klet.config.errors import one_line, suffixed
from klet.config.flags import parse_node_ips
from klet.config.loader import load_command_line
from klet.cri.events import ContainerdEvents, CriEvents
from klet.errors import KletError
from klet.events.recorder import EventingRecorder
from klet.host.addresses import find_node_addresses
from klet.host.cgroups.discover import find_hierarchy
from klet.host.errors import HostError
from klet.host.http_client import HttpClient
from klet.host.sysctls import Sysctls
from klet.journal.store import Journal
from klet.model.causes import CauseRecorder, Finding, Subject
from klet.model.memory import AgentMemory
from klet.network.resolver import PodResolver
from klet.node.cgroup_driver import find_cgroup_driver
from klet.node.findings import find_cgroup_v1, find_starting
from klet.node.kernel_tunables import apply_tunables, choose_tunable_policy
from klet.runtime.log_files import LogFiles
from klet.runtime.pod_files import PodFiles
from klet.server.auth.reviews import Reviewer
from klet.server.listener import SocketListener
from klet.server.routes.klet import KletRoutes
from klet.sources.config import PodConfig
from klet.status.checkpoint import MemoryFormat
from klet.wire import cri_v1_pb2 as cri

if TYPE_CHECKING:
    from klet.app.cluster.join import Cluster

logger = logging.getLogger(__name__)

DISK_THREADS = 8
DEAD_DISK_THREADS = 2
INTERRUPTED = 130


def main(argv: list[str]) -> int:
    """Run the agent; a bad setting ends it with exit code 1 and one line before anything is made or started."""
    try:
        parsed = load_command_line(argv, cgroup_v1=find_hierarchy().mode.version == 1)
        if isinstance(parsed, ShowText):
            sys.stdout.write(parsed.text)
            return 0
        settings = settle(parsed)
    except KletError as error:
        sys.stderr.write(f"klet: {one_line(str(error))}\n")
        return 1
    start_logging(as_json=parsed.config.logging.format == "json", verbosity=parsed.config.logging.verbosity)
    for warning in parsed.warnings:
        logger.warning("About the configuration", extra={"warning": warning})
    try:
        uvloop.run(run_agent(parsed, settings))
    except KletError as error:
        logger.error("The agent cannot go on", extra={"error": str(error)})
        return 1
    except KeyboardInterrupt:
        # Before its parts run, as while a node waits for its first certificate, nothing has to be put in order.
        return INTERRUPTED
    return 0


def settle(given: Settings) -> AgentSettings:
    """Fit the settings to this machine; only looks at it."""
    machine = read_machine_facts()
    with suffixed(f", path: {given.sources}"):
        check_machine(given, machine)
        check_serving(given)
        settings = cut_settings(given, machine)
        check_places(settings)
    return settings


async def run_agent(given: Settings, settings: AgentSettings) -> None:
    """Open the ports, wire the parts, run them."""
    clock = SystemClock()
    tunables = choose_tunable_policy(
        protect=given.config.protect_kernel_defaults, leave=given.klet.leave_kernel_tunables
    )
    async with AsyncExitStack() as opened:
        # First of all: who has one of these ports may be another kubelet, whose node nobody should touch.
        sockets = opened.enter_context(take_ports(given.config))
        apply_tunables(Sysctls(), tunables)
        _make_root(settings.root)
        threads = Threads(limit=DISK_THREADS)
        opened.callback(threads.close)
        dead_disk = Threads(limit=DEAD_DISK_THREADS, name="klet-last-words")
        opened.callback(dead_disk.close)
        volume_threads = Threads(limit=VOLUME_THREADS, name="klet-volumes")
        opened.callback(volume_threads.close)
        journal = Journal(path=settings.journal, clock=clock, max_records=settings.journal_records)
        await journal.open()
        opened.push_async_callback(journal.close)
        events = EventingRecorder(inner=journal, clock=clock) if not given.flags.is_standalone else None
        recorder = events or journal
        client = await opened.enter_async_context(open_runtime(settings, recorder, clock))
        version = await client.version(cri.VersionRequest())
        driver = await find_cgroup_driver(client, configured=settings.cgroup_driver, clock=clock)
        settings = replace(settings, cgroup_driver=driver)
        basics = Basics(clock=clock, randomness=random.Random(), threads=threads, runtime=client, recorder=recorder)
        config = PodConfig(sources=source_names(given), clock=clock, recorder=recorder)
        cluster = None
        reviewer = None
        if events is not None:
            # What speaks to an API server takes memory that a node without one can spare.
            from klet.app.cluster.identity import open_requested_serving  # noqa: PLC0415 - see above
            from klet.app.cluster.join import build_cluster_parts, open_cluster  # noqa: PLC0415 - see above

            cluster = await opened.enter_async_context(open_cluster(given, settings, basics, events))
        objects = cluster.served.objects if cluster is not None else standalone_objects(settings.runtime_handlers)
        containers = await open_container_ports(settings, objects, basics)
        volumes = await open_volumes(settings, objects, node=containers.resources, threads=volume_threads, clock=clock)
        ports = await _open_ports(given, settings, basics, version, config, dead_disk, containers, volumes, cluster)
        agent = build_agent(ports, settings)
        _record_start(recorder, settings, version)
        parts: list[Part] = [journal, *agent.parts]
        parts += build_sources(
            given, node_name=settings.node_name, sink=config, recorder=recorder, threads=threads, clock=clock
        )
        if cluster is not None:
            parts += build_cluster_parts(given, settings, basics, cluster=cluster, agent=agent, sink=config)
            reviewer = cluster.clients.main
        api = await _build_api(
            given, settings, basics, agent=agent, journal=journal, sockets=sockets, reviewer=reviewer
        )
        parts += api.parts
        if cluster is not None and api.requested is not None:
            clients, informers = cluster.clients, cluster.informers
            parts += await open_requested_serving(
                given, settings.node_name, basics, clients=clients, informers=informers, user=api.requested
            )
        parts += build_watchdog(basics, agent)
        await run_parts(parts, when_started=tell_ready)


def _make_root(root: Path) -> None:
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HostError(f"cannot make the root directory {root} (--root-dir): {error.strerror}") from error


async def _open_ports(
    given: Settings,
    settings: AgentSettings,
    basics: Basics,
    version: cri.VersionResponse,
    changes: PodConfig,
    dead_disk: Threads,
    containers: ContainerPorts,
    volumes: NodeVolumes,
    cluster: "Cluster | None",
) -> Ports:
    client, threads, clock = basics.runtime, basics.threads, basics.clock
    cgroups = await open_pod_cgroups(settings, threads, clock)
    memory = CheckpointFile(path=settings.memory, form=MemoryFormat(), threads=threads, clock=clock)
    remembered = memory.load()
    return Ports(
        clock=clock,
        runtime=client,
        images=client,
        events=(ContainerdEvents(connection=client.runtime), CriEvents(runtime=client)),
        recorder=basics.recorder,
        changes=changes,
        left_files=HostLeftFiles(threads=dead_disk),
        logs=LogFiles(logs=settings.sandbox.logs, links=settings.legacy_logs, threads=threads),
        http=HttpClient(),
        files=PodFiles(
            root=settings.root,
            logs=settings.sandbox.logs,
            cluster_domain=settings.sandbox.cluster_domain,
            threads=threads,
        ),
        cgroups=cgroups.pods,
        qos=cgroups.qos,
        dns=PodResolver(
            resolv_conf=settings.resolv_conf, settings=settings.dns, threads=threads, recorder=basics.recorder
        ),
        runtime_name=version.runtime_name,
        node_ips=cluster.host_ips if cluster is not None else partial(_given_ips, given),
        host_ips=cluster.host_ips if cluster is not None else tuple,
        randomness=basics.randomness,
        containers=containers,
        volumes=volumes,
        memory=remembered.value if isinstance(remembered, Found) else AgentMemory(),
        memory_store=memory,
    )


def _given_ips(given: Settings) -> tuple[str, ...]:
    # An address of all zeros only says which family is preferred.
    return tuple(str(ip) for ip in parse_node_ips(given.flags.node_ip) if not ip.is_unspecified)


async def _build_api(
    given: Settings,
    settings: AgentSettings,
    basics: Basics,
    *,
    agent: Agent,
    journal: Journal,
    sockets: ApiSockets,
    reviewer: Reviewer | None,
) -> KubeletApi:
    """The kubelet API, and the agent's own on its socket."""
    node_ips = find_node_addresses(given.flags.node_ip.split(","))
    pods = BoardPods(pods=agent.pods, statuses=agent.statuses, ledger=agent.ledger, node_ips=node_ips)
    routes = build_routes(given, basics, agent, pods)
    api = await build_kubelet_api(given, settings.node_name, basics, sockets=sockets, routes=routes, reviewer=reviewer)
    records = JournalRecords(
        journal=journal, pods=pods, node=agent.runtime, node_name=settings.node_name, clock=basics.clock
    )
    own = SocketListener(path=settings.socket, routes=(*routes.all(), KletRoutes(pods=pods, journal=records)))
    return replace(api, parts=(*api.parts, own))


def _record_start(recorder: CauseRecorder, settings: AgentSettings, version: cri.VersionResponse) -> None:
    finding = Finding(
        subject=Subject(),
        decider="app.run",
        decision="AgentStarted",
        message=f"node {settings.node_name} on {version.runtime_name} {version.runtime_version}",
        next="read the runtime and the pod sources",
    )
    recorder.record(finding)
    recorder.record(find_starting())
    if find_hierarchy().mode.version == 1:
        recorder.record(find_cgroup_v1())
    logger.info("The agent has started", extra={"node": settings.node_name, "runtime": version.runtime_version})

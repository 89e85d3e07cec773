"""`klet run`: upstream's flags in, the agent running until it is told to stop."""

import logging
import sys
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Protocol

import uvloop

from klet.aio.clock import SystemClock
from klet.api.node import Node
from klet.app.basics import Basics, open_basics
from klet.app.journal_view import JournalRecords
from klet.app.kubelet_api import ApiSockets, KubeletApi, build_kubelet_api, build_routes, check_serving, take_ports
from klet.app.lifecycle import run_parts
from klet.app.log_format import start_logging
from klet.app.machine_checks import check_machine, check_places
from klet.app.objects import standalone_objects
from klet.app.pod_sources import build_sources, source_names
from klet.app.ports import Place, open_ports
from klet.app.root_directory import hold_root, make_root
from klet.app.service import build_watchdog, tell_ready
from klet.app.settings import AgentSettings, cut_settings
from klet.app.views import BoardPods
from klet.app.wiring import Agent, build_agent
from klet.config.command_line import Settings, ShowText
from klet.config.errors import ConfigError, one_line, suffixed, warned
from klet.config.loader import load_command_line
from klet.errors import KletError
from klet.host import mounts
from klet.host.addresses import find_node_addresses
from klet.host.machine.cache import MachineCache
from klet.host.machine.info import MachineInfo
from klet.host.machine.reader import MachineReader
from klet.host.open_files import allow_open_files
from klet.host.sysctls import Sysctls
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.node.cgroup_driver import find_cgroup_driver
from klet.node.findings import find_cgroup_v1, find_starting
from klet.node.kernel_tunables import TunablePolicy, apply_tunables, choose_tunable_policy
from klet.server.auth.reviews import Reviewer
from klet.server.listener import SocketListener
from klet.server.routes.klet import KletRoutes
from klet.sources.config import PodConfig

logger = logging.getLogger(__name__)

DISK_THREADS = 8
DEAD_DISK_THREADS = 2
INTERRUPTED = 130


class Nodes(Protocol):
    """The nodes of the API server, as the agent follows them."""

    def get(self, name: str) -> Node | None: ...


def main(argv: list[str]) -> int:
    """Run the agent; a bad setting ends it with exit code 1 and one line before anything is made or started.

    What else the configuration made klet warn of stands in lines before that one.
    """
    machine = MachineCache(reader=MachineReader())
    try:
        parsed = load_command_line(argv, cgroup_v1=machine.info().cgroup_version == 1)
        if isinstance(parsed, ShowText):
            sys.stdout.write(parsed.text)
            return 0
        settings = settle(parsed, machine.info())
    except KletError as error:
        # Before logging is set up: its settings may be what is wrong.
        for warning in error.warnings if isinstance(error, ConfigError) else ():
            sys.stderr.write(f"klet: warning: {one_line(warning)}\n")
        sys.stderr.write(f"klet: {one_line(str(error))}\n")
        return 1
    start_logging(as_json=parsed.config.logging.format == "json", verbosity=parsed.config.logging.verbosity)
    for warning in (*parsed.warnings, *parsed.without_effect):
        logger.warning("About the configuration", extra={"warning": warning})
    if parsed.config.max_open_files > 0:
        allow_open_files(parsed.config.max_open_files)
    try:
        uvloop.run(run_agent(parsed, settings, machine))
    except KletError as error:
        logger.error("The agent cannot go on", extra={"error": str(error)})
        return 1
    except KeyboardInterrupt:
        # Before its parts run, as while a node waits for its first certificate, nothing has to be put in order.
        return INTERRUPTED
    return 0


def settle(given: Settings, machine: MachineInfo) -> AgentSettings:
    """Fit the settings to this machine; only looks at it."""
    with warned(given.warnings), suffixed(f", path: {given.sources}"):
        check_machine(given, machine)
        check_serving(given)
        settings = cut_settings(given, machine)
        check_places(settings)
    return settings


async def run_agent(given: Settings, settings: AgentSettings, machine: MachineCache) -> None:
    """Open the ports, wire the parts, run them."""
    clock = SystemClock()
    async with AsyncExitStack() as opened:
        # First of all: who has one of these ports may be another kubelet, whose node nobody should touch.
        sockets = opened.enter_context(take_ports(given.config))
        apply_tunables(Sysctls(), _tunable_policy(given))
        make_root(settings.root, mounts)
        opened.enter_context(hold_root(settings.root))
        basics = await opened.enter_async_context(
            open_basics(settings, machine=machine, clock=clock, has_events=not given.flags.is_standalone)
        )
        driver = await find_cgroup_driver(basics.runtime, configured=settings.cgroup_driver, clock=clock)
        settings = replace(settings, cgroup_driver=driver)
        cluster, place = None, _standalone_place(given, settings)
        if basics.events is not None:
            # What speaks to an API server takes memory that a node without one can spare.
            from klet.app.cluster import join  # noqa: PLC0415 - see above

            cluster = await opened.enter_async_context(join.open_cluster(given, settings, basics))
            place = cluster.place
        config = PodConfig(sources=source_names(given), clock=clock, recorder=basics.recorder)
        ports = await opened.enter_async_context(open_ports(settings, basics, place=place, changes=config))
        agent = build_agent(ports, settings)
        _record_start(basics, settings)
        reviewer = cluster.clients.reviews if cluster is not None else None
        nodes = cluster.informers.node if cluster is not None else None
        api = await _build_api(given, settings, basics, agent=agent, sockets=sockets, reviewer=reviewer, nodes=nodes)
        parts = [basics.journal, *agent.parts, *build_sources(given, settings.node_name, basics, sink=config)]
        if cluster is not None:
            parts += await join.build_cluster_parts(
                given, settings, basics, cluster=cluster, agent=agent, sink=config, requested=api.requested
            )
        await run_parts((*parts, *api.parts, *build_watchdog(basics, agent)), when_started=tell_ready)


def _tunable_policy(given: Settings) -> TunablePolicy:
    return choose_tunable_policy(protect=given.config.protect_kernel_defaults, leave=given.klet.leave_kernel_tunables)


def _standalone_place(given: Settings, settings: AgentSettings) -> Place:
    given_ips = given.flags.node_ip.split(",")
    return Place(objects=standalone_objects(settings.runtime_handlers), node_ips=lambda: find_node_addresses(given_ips))


async def _build_api(
    given: Settings,
    settings: AgentSettings,
    basics: Basics,
    *,
    agent: Agent,
    sockets: ApiSockets,
    reviewer: Reviewer | None,
    nodes: Nodes | None,
) -> KubeletApi:
    """The kubelet API, and the agent's own on its socket."""
    node_ips = find_node_addresses(given.flags.node_ip.split(","))
    pods = BoardPods(pods=agent.pods, statuses=agent.statuses, ledger=agent.ledger, node_ips=node_ips)
    routes = build_routes(given, basics, agent, pods)
    api = await build_kubelet_api(given, settings.node_name, basics, sockets=sockets, routes=routes, reviewer=reviewer)
    records = JournalRecords(
        journal=basics.journal,
        pods=pods,
        node=agent.runtime,
        node_name=settings.node_name,
        api_node=lambda: nodes.get(settings.node_name) if nodes is not None else None,
        clock=basics.clock,
    )
    own_routes = (*routes.all(), KletRoutes(pods=pods, journal=records))
    own = SocketListener(path=settings.socket, routes=own_routes, clock=basics.clock)
    return replace(api, parts=(*api.parts, own))


def _record_start(basics: Basics, settings: AgentSettings) -> None:
    version = basics.runtime_version
    DecisionRecorder(basics.recorder, decider="app.run").for_node().record(
        Reason.AGENT_STARTED,
        f"node {settings.node_name} on {version.runtime_name} {version.runtime_version}",
        next_step="read the runtime and the pod sources",
    )
    basics.recorder.record(find_starting())
    if basics.machine.info().cgroup_version == 1:
        basics.recorder.record(find_cgroup_v1())
    logger.info("The agent has started", extra={"node": settings.node_name, "runtime": version.runtime_version})

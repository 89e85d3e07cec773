"""Joins the agent with its Node at the API server: registration, status, lease, and the pods' network."""

import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from msgspec import Struct, field

from klet.aio.broadcast import Subscription
from klet.aio.clock import Clock
from klet.api.node import Node
from klet.config.command_line import Settings
from klet.host.machine.cache import FactReader
from klet.kube.client import KubeClient
from klet.kube.informer import Informer
from klet.metrics import AgentMetrics
from klet.model.causes import CauseRecorder
from klet.node.board import NodeBoard
from klet.node.composer import NodeComposer
from klet.node.lease import LeaseKeeper, LeaseTerms
from klet.node.metrics import StartupTimes
from klet.node.pod_cidrs import PodCidrs
from klet.node.registrar import NodeRegistrar
from klet.node.reporter import ReportTimer, StatusReporter
from klet.node.runtime_state import RuntimeState
from klet.node.settings import NodeSettings, ReportTimes
from klet.node.status_inputs import Addresses, ListedImages, PartReports, StatusInputsReader, VersionCall
from klet.node.status_sync import Heartbeats, StatusSync
from klet.volumes.manager import VolumeManager


class ReportSettings(Struct, frozen=True, kw_only=True):
    """What the Node says of itself, and how often."""

    node: NodeSettings
    times: ReportTimes = field(default_factory=ReportTimes)
    lease: timedelta = timedelta(seconds=40)
    registers: bool = True


class ReportPorts(Struct, frozen=True, kw_only=True):
    """What a Node is reported from, and how the API server is reached."""

    machine: FactReader
    addresses: Addresses
    runtime: VersionCall
    images: ListedImages
    api: KubeClient
    heartbeat: KubeClient
    reconnect: Callable[[], Awaitable[None]]
    """Gives up the connections of heartbeats after one has failed."""
    nodes: Informer[Node]
    recorder: CauseRecorder
    clock: Clock
    randomness: random.Random
    metrics: AgentMetrics


class NodeReporting(Struct, frozen=True, kw_only=True):
    """What keeps the Node at the API server true."""

    board: NodeBoard
    registrar: NodeRegistrar
    sync: StatusSync
    reporter: StatusReporter
    lease: LeaseKeeper
    startup: StartupTimes


def cut_report_settings(given: Settings, node: NodeSettings) -> ReportSettings:
    config = given.config
    return ReportSettings(
        node=node,
        times=ReportTimes(update=config.node_status_update_frequency, report=config.node_status_report_frequency),
        lease=timedelta(seconds=config.node_lease_duration_seconds),
        registers=config.register_node,
    )


def build_node_reporting(
    settings: ReportSettings,
    ports: ReportPorts,
    *,
    health: RuntimeState,
    volumes: VolumeManager,
    reports: PartReports,
    cidrs: PodCidrs,
    wakes: tuple[Callable[[], Subscription[None]], ...] = (),
) -> NodeReporting:
    """Wire the parts that write the Node and its lease; `wakes` are more changes that are reported at once."""
    clock, randomness, recorder, name = ports.clock, ports.randomness, ports.recorder, settings.node.name
    board = NodeBoard()
    inputs = StatusInputsReader(
        machine=ports.machine,
        addresses=ports.addresses,
        health=health,
        runtime=ports.runtime,
        images=ports.images,
        parts=reports,
        settings=settings.node,
        clock=clock,
    )
    composer = NodeComposer(
        inputs=inputs, cidrs=cidrs, reported_in_use=volumes.mark_reported_in_use, settings=settings.node
    )
    startup = StartupTimes(
        registry=ports.metrics.agent,
        board=board,
        booted_at=lambda: ports.machine.info().booted_at,
        started_at=datetime.fromtimestamp(ports.metrics.process_started, UTC),
        clock=clock,
    )
    registrar = NodeRegistrar(
        api=ports.api,
        initial=composer,
        reset_devices=lambda: False,
        # Storage is ready after the registration at the earliest: a CSINode belongs to a Node.
        errors=inputs.runtime_errors,
        board=board,
        times=startup,
        recorder=recorder,
        clock=clock,
    )
    sync = StatusSync(
        heartbeats=Heartbeats(ports.heartbeat, ports.reconnect),
        seen=ports.nodes,
        composer=composer,
        board=board,
        recorder=recorder,
        clock=clock,
        times=settings.times,
        randomness=randomness,
    )
    reporter = StatusReporter(
        name=name,
        registrar=registrar if settings.registers else None,
        sync=sync,
        nodes=ports.nodes,
        wakes=(health.changes, volumes.in_use_changes, *wakes),
        known=board,
        errors=inputs.errors,
        timer=ReportTimer(times=settings.times, clock=clock, randomness=randomness),
    )
    lease = LeaseKeeper(
        api=ports.heartbeat,
        terms=LeaseTerms(name, settings.lease),
        until_node=board.until_known,
        on_failure=ports.reconnect,
        clock=clock,
        randomness=randomness,
    )
    return NodeReporting(board=board, registrar=registrar, sync=sync, reporter=reporter, lease=lease, startup=startup)

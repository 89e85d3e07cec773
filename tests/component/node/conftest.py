"""A node on an API server over loopback: the parts of the agent that speak for it, on a made-up machine."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest

from klet.allocation.book import AllocationBook
from klet.api.coordination import Lease
from klet.api.node import Node
from klet.app.cluster.node import ReportPorts, ReportSettings, build_node_reporting
from klet.app.metrics import open_metrics
from klet.embedded.server import EmbeddedApi
from klet.journal.memory import MemoryJournal
from klet.kube.client import KubeClient
from klet.kube.informer import Informer
from klet.kube.node_informers import build_informers
from klet.kube.watch import WatchScope
from klet.metrics import MetricRegistry
from klet.node.board import NodeBoard
from klet.node.lease import LeaseKeeper
from klet.node.pod_cidrs import PodCidrs, RuntimeCidrs
from klet.node.registrar import NodeRegistrar
from klet.node.reporter import StatusReporter
from klet.node.runtime_state import RuntimeReport, RuntimeState
from klet.node.settings import NodeSettings, ReportTimes
from klet.node.status_inputs import PartReports
from klet.node.status_sync import StatusSync
from klet.objectcache.claims import StandaloneClaims
from klet.objectcache.own_node import OwnNode
from klet.simulation.clients import simulated_clients
from klet.simulation.fake_host import MemoryMachine, MemoryVolumes
from klet.testing.attachable import AttachableDisks
from klet.testing.clock import FastClock
from klet.testing.devices import MemoryDevices
from klet.volumes.build import ManagerPorts, build_manager
from klet.volumes.manager import VolumeManager
from klet.volumes.names import Layout
from klet.wire import cri_v1_pb2 as cri

WELL = RuntimeReport(runtime_error=None, network_error=None)
NAME = "n1"
TIMES = ReportTimes()


class QuietRuntime:
    """A runtime that reports its version and takes pod CIDRs."""

    def __init__(self) -> None:
        self.cidrs = asyncio.Queue[str]()

    async def version(self, _request):
        return cri.VersionResponse(runtime_name="containerd", runtime_version="v1.6.20")

    async def update_runtime_config(self, request):
        self.cidrs.put_nowait(request.runtime_config.network_config.pod_cidr)
        return cri.UpdateRuntimeConfigResponse()


class NoImages:
    found = ()


@dataclass
class Agent:
    """The parts of an agent that speak for its node."""

    api: EmbeddedApi
    client: KubeClient
    informer: Informer[Node]
    leases: Informer[Lease]
    runtime: RuntimeState
    cri: QuietRuntime
    machine: MemoryMachine
    board: NodeBoard
    journal: MemoryJournal
    reporter: StatusReporter
    sync: StatusSync
    registrar: NodeRegistrar
    lease: LeaseKeeper
    disks: AttachableDisks
    volumes: VolumeManager
    pressures: set[str] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)

    async def until_node(self, holds: Callable[[Node], bool]) -> Node:
        """The node, once the API server has one that fits."""
        with self.informer.changes() as changes:
            while (node := self.informer.get(NAME)) is None or not holds(node):
                await changes.get()
        return node

    async def until_lease(self, holds: Callable[[Lease], bool] = lambda _: True) -> Lease:
        with self.leases.changes() as changes:
            while (lease := self.leases.get(NAME, "kube-node-lease")) is None or not holds(lease):
                await changes.get()
        return lease

    async def until_decision(self, decision: str) -> None:
        with self.journal.follow() as causes:
            while decision not in self.decisions():
                await causes.get()

    def decisions(self) -> list[str]:
        return [cause.finding.decision for cause in self.journal.all()]

    async def read_lease(self) -> Lease:
        return await self.client.get(Lease, NAME, "kube-node-lease")

    @asynccontextmanager
    async def running(self, *parts) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(part.run()) for part in parts or (self.reporter, self.lease)]
            async with asyncio.timeout(20):
                yield
            for task in tasks:
                task.cancel()


AgentMaker = Callable[..., Agent]


@pytest.fixture
async def make_agent(cluster) -> AsyncIterator[AgentMaker]:
    """Makes agents of one API server; their informers run until the test ends."""
    async with asyncio.TaskGroup() as group:
        tasks = []

        def make(settings: NodeSettings | None = None, *, registers: bool = True, times=TIMES) -> Agent:
            report = ReportSettings(node=settings or NodeSettings(name=NAME), times=times, registers=registers)
            agent = build_agent(cluster, report)
            tasks.extend(group.create_task(each.run()) for each in (agent.informer, agent.leases))
            return agent

        yield make
        for task in tasks:
            task.cancel()


def build_agent(cluster, settings: ReportSettings) -> Agent:
    clock, chance = FastClock(), random.Random(1)
    clients = simulated_clients(cluster.client, cluster.watcher, cluster.transport, clock=clock, randomness=chance)
    informer = build_informers(clients.informers, NAME).node
    leases = Informer(struct=Lease, scope=WatchScope("kube-node-lease"), settings=clients.informers)
    journal, machine, runtime, disks = MemoryJournal(clock=clock), MemoryMachine(), QuietRuntime(), AttachableDisks()
    state = RuntimeState(pleg_error=lambda: None, clock=clock)
    pressures: set[str] = set()
    failures: list[str] = []

    async def on_failure() -> None:
        failures.append("heartbeat")

    volumes = build_manager(
        ManagerPorts(
            registry=MetricRegistry(),
            plugins=(disks,),
            allocations=AllocationBook(),
            disk=MemoryVolumes(),
            recorder=journal,
            refresh=timedelta(minutes=1),
            randomness=chance,
            clock=clock,
            claims=StandaloneClaims(),
            find_node=lambda: informer.get(NAME),
            node=OwnNode(informer=informer, client=clients.main, name=NAME),
            layout=Layout(Path("/")),
            devices=MemoryDevices(),
        )
    )
    ports = ReportPorts(
        machine=machine,
        addresses=machine,
        runtime=runtime,
        images=NoImages(),
        api=clients.main,
        heartbeat=clients.heartbeat,
        reconnect=on_failure,
        nodes=informer,
        recorder=journal,
        clock=clock,
        randomness=chance,
        metrics=open_metrics(architecture="amd64"),
    )
    reporting = build_node_reporting(
        settings,
        ports,
        health=state,
        volumes=volumes,
        reports=PartReports(
            storage=machine.storage,
            pressures=lambda: frozenset(pressures),
            volumes_in_use=volumes.volumes_in_use,
        ),
        cidrs=PodCidrs(users=(RuntimeCidrs(runtime=runtime),)),
    )
    return Agent(
        api=cluster.api,
        client=clients.main,
        informer=informer,
        leases=leases,
        runtime=state,
        cri=runtime,
        machine=machine,
        board=reporting.board,
        journal=journal,
        reporter=reporting.reporter,
        sync=reporting.sync,
        registrar=reporting.registrar,
        lease=reporting.lease,
        disks=disks,
        volumes=volumes,
        pressures=pressures,
        failures=failures,
    )


@pytest.fixture
def agent(make_agent: AgentMaker) -> Agent:
    return make_agent()


@pytest.fixture
def ready_agent(agent: Agent) -> Agent:
    """An agent whose runtime has answered already."""
    agent.runtime.note(WELL)
    return agent

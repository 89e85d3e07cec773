"""A node on an API server over loopback: the parts of the agent that speak for it, on a made-up machine."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from ipaddress import ip_address

import pytest

from klet.api.coordination import Lease
from klet.api.node import Node
from klet.app.simulation.memory import MemoryVolumes
from klet.embedded.identities import User
from klet.embedded.questions import Everything
from klet.embedded.server import EmbeddedApi, build_api, serving
from klet.embedded.store import Store
from klet.host.addresses import AddressFacts
from klet.host.machine.info import MachineInfo, SystemVersions
from klet.journal.memory import MemoryJournal
from klet.kube.access import Access, Login
from klet.kube.client import KubeClient
from klet.kube.credentials import Credentials
from klet.kube.informer import Informer, InformerSettings
from klet.kube.throttle import Unlimited
from klet.kube.transport import Transport
from klet.kube.watch import Scope, Watcher
from klet.node.board import NodeBoard
from klet.node.composer import NodeComposer
from klet.node.lease import LeaseKeeper, LeaseTerms
from klet.node.pod_cidrs import PodCidrs, RuntimeCidrs
from klet.node.registrar import NodeRegistrar
from klet.node.reporter import Pace, StatusReporter
from klet.node.runtime_state import RuntimeReport, RuntimeState
from klet.node.settings import NodeSettings, ReportTimes
from klet.node.status_inputs import PartReports, StatusInputsReader
from klet.node.status_sync import Heartbeats, StatusSync
from klet.testing.attachable import AttachableDisks
from klet.testing.clock import HastyClock
from klet.volumes.manager import VolumeManager
from klet.wire import cri_v1_pb2 as cri

WELL = RuntimeReport(runtime_error=None, network_error=None)
NAME = "n1"
TIMES = ReportTimes()


class MadeUpMachine:
    """A machine that a test can boot again."""

    def __init__(self) -> None:
        self.boot_id = "boot-1"

    def info(self) -> MachineInfo:
        return MachineInfo(cpus=2, memory=4 << 30, machine_id="m", system_uuid="u", boot_id=self.boot_id)

    def versions(self) -> SystemVersions:
        return SystemVersions("6.1.0", "Debian")


class MadeUpAddresses:
    """One address."""

    async def read(self, **_wanted) -> AddressFacts:
        mine = ip_address("192.0.2.10")
        return AddressFacts(local=frozenset({mine}), default=mine)


async def read_storage() -> int:
    return 100 << 30


class QuietRuntime:
    """A runtime that tells its version and takes pod CIDRs."""

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
    machine: MadeUpMachine
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
async def make_agent() -> AsyncIterator[AgentMaker]:
    """Makes agents of one API server; their informers run until the test ends."""
    clock = HastyClock()
    tokens = {"secret": User("system:node:n1", groups=("system:nodes",))}
    api = build_api(store=Store.open(), tokens=tokens, rights=Everything(), clock=clock)
    async with serving(api, host="127.0.0.1") as port, asyncio.TaskGroup() as group:
        login = Login(token="secret")
        transport = Transport(
            access=Access(server=f"http://127.0.0.1:{port}", login=login),
            credentials=Credentials(login=login, clock=clock),
        )
        client = KubeClient(transport=transport, throttle=Unlimited(), timeout=timedelta(seconds=5), clock=clock)
        tasks = []

        def make(settings: NodeSettings | None = None, *, registers: bool = True, times=TIMES) -> Agent:
            agent = build_agent(api, client, transport, clock, settings or NodeSettings(name=NAME), registers, times)
            tasks.extend(group.create_task(each.run()) for each in (agent.informer, agent.leases))
            return agent

        yield make
        for task in tasks:
            task.cancel()
        await transport.close()
    api.store.close()


def build_agent(api, client, transport, clock, settings, registers, times) -> Agent:
    chance = random.Random(1)
    watcher = Watcher(transport=transport, throttle=Unlimited(), randomness=chance)
    following = InformerSettings(client, watcher, clock, chance)
    own = Scope(selectors=(("fieldSelector", f"metadata.name={NAME}"),))
    informer = Informer(struct=Node, scope=own, settings=following)
    leases = Informer(struct=Lease, scope=Scope("kube-node-lease"), settings=following)
    journal, board, machine, runtime = MemoryJournal(clock=clock), NodeBoard(), MadeUpMachine(), QuietRuntime()
    state = RuntimeState(pleg_error=lambda: None, clock=clock)
    pressures: set[str] = set()
    failures: list[str] = []

    async def on_failure() -> None:
        failures.append("heartbeat")

    disks = AttachableDisks()
    volumes = VolumeManager(
        plugins=(disks,),
        disk=MemoryVolumes(),
        recorder=journal,
        refresh=timedelta(minutes=1),
        randomness=chance,
        clock=clock,
    )
    inputs = StatusInputsReader(
        machine=machine,
        addresses=MadeUpAddresses(),
        health=state,
        runtime=runtime,
        images=NoImages(),
        parts=PartReports(
            storage=read_storage,
            pressures=lambda: frozenset(pressures),
            volumes_in_use=volumes.volumes_in_use,
        ),
        settings=settings,
        clock=clock,
    )
    cidrs = PodCidrs(users=(RuntimeCidrs(runtime=runtime),))
    composer = NodeComposer(inputs=inputs, cidrs=cidrs, reported_in_use=volumes.mark_reported_in_use, settings=settings)
    registrar = NodeRegistrar(
        api=client, initial=composer, reset_devices=lambda: False, board=board, recorder=journal, clock=clock
    )
    sync = StatusSync(
        heartbeats=Heartbeats(client, on_failure),
        seen=informer,
        composer=composer,
        board=board,
        recorder=journal,
        clock=clock,
        times=times,
        randomness=chance,
    )
    reporter = StatusReporter(
        name=settings.name,
        registrar=registrar if registers else None,
        sync=sync,
        nodes=informer,
        wakes=(state.changes, volumes.in_use_changes),
        known=board,
        errors=inputs.errors,
        pace=Pace(times=times, clock=clock, randomness=chance),
    )
    lease = LeaseKeeper(
        api=client,
        terms=LeaseTerms(NAME),
        until_node=board.until_known,
        on_failure=on_failure,
        clock=clock,
        randomness=chance,
    )
    return Agent(
        api, client, informer, leases, state, runtime, machine, board, journal, reporter, sync, registrar, lease,
        disks, volumes, pressures, failures,
    )  # fmt: skip


@pytest.fixture
def agent(make_agent: AgentMaker) -> Agent:
    return make_agent()


@pytest.fixture
def ready_agent(agent: Agent) -> Agent:
    """An agent whose runtime has answered already."""
    agent.runtime.note(WELL)
    return agent

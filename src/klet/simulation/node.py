"""The simulated machine and the agents that run on it, one after the other.

Everything outside is in memory: the runtime, the pods' files and cgroups, the sources, the journal.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Protocol, TypeVar

from google.protobuf.message import Message
from msgspec.structs import replace

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.api.container import ContainerPort
from klet.api.placement import Taint
from klet.api.pod import Pod
from klet.app.kubelet_api import ApiFeatures, OpenedApi
from klet.app.metrics import open_metrics
from klet.app.node import NodeSpecification, build_node
from klet.app.opening import standalone_objects
from klet.app.ports import NodeObjects, NodeVolumes, Ports
from klet.app.resource_opening import restore_cpu_manager, restore_memory_manager
from klet.app.settings import AgentSettings
from klet.app.volume_opening import build_volumes
from klet.app.wiring import Agent
from klet.checkpoint.upstream import CpuManagerFormat, CpuManagerState, MemoryManagerFormat, MemoryManagerState
from klet.config.gates import resolve_gates
from klet.cri.client import CriClient
from klet.cri.events import ContainerdEvents, CriEvents
from klet.cri.metrics import register_runtime_calls
from klet.host.http_client import HttpClient
from klet.host.project_quotas import NoQuotas
from klet.images.gc_plan import ImageGcPolicy
from klet.images.node_logins import NoNodeLogins
from klet.images.pulled.verification import build_rules
from klet.images.settings import ImageSettings
from klet.images.sources import NoProviderLogins
from klet.journal.memory import MemoryJournal
from klet.logs.rotation import LogRotationSettings
from klet.metrics import AgentMetrics
from klet.model.boots import Reboot
from klet.model.causes import CauseRecorder
from klet.model.features import DEFAULT_FEATURES, PodFeatures
from klet.model.pods import PodUID, uid_of
from klet.model.roles import NodeResources, Part
from klet.network.dns import DnsSettings
from klet.node.boots import BootKeeper
from klet.node.capacity import AllocatableResources, expect_allocatable
from klet.node.first_contact import FirstContact, RuntimeIntroduction
from klet.node.oom import KernelMessages
from klet.node.settings import NodeSettings
from klet.resources.cgroup_values import PodCgroupRules, QosRules
from klet.resources.cpu.settings import CpuManagerSettings
from klet.resources.settings import MemoryManagerSettings
from klet.resources.topology.rules import TopologyRules
from klet.runtime.config.container_config import ContainerSettings
from klet.runtime.config.id_blocks import UserIdSettings
from klet.runtime.config.linux_resources import ResourceRules
from klet.runtime.config.sandbox_config import SandboxSettings
from klet.runtime.config.security import SecuritySettings
from klet.runtime.crash_backoff import choose_crash_backoff
from klet.runtime.gc_plan import GcPolicy
from klet.simulation.containers import simulated_container_ports
from klet.simulation.fake_host import (
    ADDRESS,
    LOGS,
    MemoryBoot,
    MemoryCgroups,
    MemoryCheckpoint,
    MemoryDisk,
    MemoryDns,
    MemoryFiles,
    MemoryLogs,
    MemoryMachine,
    MemoryOomCounts,
    MemoryPlugin,
    MemoryQos,
    MemoryTerminationFiles,
    MemoryVolumes,
)
from klet.simulation.fake_usage import MemoryUsageHost
from klet.simulation.killable import KillableTransport, KillSwitch
from klet.sources.manifest_preview import ManifestPreview
from klet.sources.merge import PodChangeKind, PodChanges
from klet.stats.collector import StatsSettings
from klet.sync.loop import ChangeSource
from klet.testing.devices import MemoryDevices
from klet.testing.fake_runtime.machine import FakeRuntime
from klet.testing.in_process import REQUEST_TIMEOUT, run_in_process
from klet.testing.mounts import NotedMounts
from klet.testing.no_storage import no_storage
from klet.testing.pull_files import MemoryPullFiles
from klet.testing.state_bytes import StateBytes
from klet.volumes.build import VolumePorts, build_plugins
from klet.volumes.names import Layout

T = TypeVar("T")

SOURCE = "file"
MET = RuntimeIntroduction("containerd", "1.6.20", "cgroupfs")
NODE_NAME = "node"


class PortWrapper(Protocol):
    """Wraps a port of the machine, which has this name."""

    def __call__(self, port: T, name: str, /) -> T: ...


def as_it_is(port: T, _name: str, /) -> T:
    """Return the port itself."""
    return port


class DrivenPodSource:
    """A source that a test drives: it wants what it was last given."""

    def __init__(self) -> None:
        self._pods: dict[PodUID, Pod] = {}
        self._changes: asyncio.Queue[PodChanges] = asyncio.Queue()
        self._handled = False
        self._changes.put_nowait(PodChanges(source=SOURCE, kind=PodChangeKind.ADD, pods=()))

    def add(self, *pods: Pod) -> None:
        self._pods.update({uid_of(pod): pod for pod in pods})
        self._send(PodChangeKind.ADD, *pods)

    def update(self, pod: Pod) -> None:
        self._pods[uid_of(pod)] = pod
        self._send(PodChangeKind.UPDATE, pod)

    def remove(self, uid: PodUID) -> None:
        self._send(PodChangeKind.REMOVE, self._pods.pop(uid))

    def wanted(self) -> dict[PodUID, Pod]:
        return dict(self._pods)

    async def next_change(self) -> PodChanges:
        return await self._changes.get()

    def mark_handled(self, source: str) -> None:  # noqa: ARG002 - there is only one
        self._handled = True

    def all_ready(self) -> bool:
        return self._handled

    def _send(self, kind: PodChangeKind, *pods: Pod) -> None:
        self._changes.put_nowait(PodChanges(source=SOURCE, kind=kind, pods=pods))


@dataclass(frozen=True, slots=True, kw_only=True)
class RealDirectories:
    """Volumes whose directories are real, for tests that read them. What would be mounted is only noted."""

    root: Path
    threads: Threads
    mounts: NotedMounts = field(default_factory=NotedMounts)


@dataclass(slots=True, kw_only=True)
class SimulatedNode:
    """What outlives the agent on a simulated machine."""

    clock: Clock
    runtime: FakeRuntime
    machine: MemoryMachine = field(default_factory=MemoryMachine)
    journal: MemoryJournal = field(init=False)
    files: MemoryFiles = field(default_factory=MemoryFiles)
    cgroups: MemoryCgroups = field(default_factory=MemoryCgroups)
    qos: MemoryQos = field(default_factory=MemoryQos)
    checkpoint: MemoryCheckpoint = field(default_factory=MemoryCheckpoint)
    boot: MemoryBoot = field(default_factory=MemoryBoot)
    volumes: MemoryVolumes = field(default_factory=MemoryVolumes)
    directories: RealDirectories | None = None
    """Where volumes are made instead."""
    settings: NodeSettings = field(default_factory=lambda: NodeSettings(name=NODE_NAME))
    has_image_volumes: bool = True
    pull_files: MemoryPullFiles = field(default_factory=MemoryPullFiles)
    logs: MemoryLogs = field(init=False)
    http: HttpClient = field(default_factory=HttpClient)
    taints: tuple[Taint, ...] = ()
    """Of the Node."""
    own_ports: tuple[ContainerPort, ...] = ()
    """Where the agent listens."""
    met: RuntimeIntroduction | None = MET
    """What the runtime has said of itself; None if it has not answered yet when the agent starts."""
    kernel_log: KernelMessages | None = None
    oom_counts: MemoryOomCounts = field(default_factory=MemoryOomCounts)
    usage: MemoryUsageHost = field(init=False)
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    log_rotation: LogRotationSettings = field(default_factory=LogRotationSettings)
    stats: StatsSettings = field(default_factory=StatsSettings)
    image_gc: ImageGcPolicy = field(default_factory=ImageGcPolicy)
    topology: TopologyRules = field(default_factory=TopologyRules)
    cpu_manager: CpuManagerSettings = field(default_factory=CpuManagerSettings)
    cpu_state: StateBytes[CpuManagerState] = field(default_factory=lambda: StateBytes(form=CpuManagerFormat()))
    """What the CPU manager has on disk."""
    memory_manager: MemoryManagerSettings = field(default_factory=MemoryManagerSettings)
    memory_state: StateBytes[MemoryManagerState] = field(default_factory=lambda: StateBytes(form=MemoryManagerFormat()))
    """What the memory manager has on disk."""

    def __post_init__(self) -> None:
        self.logs = MemoryLogs(sink=self.files.sink)
        self.journal = MemoryJournal(clock=self.clock)
        self.usage = MemoryUsageHost(clock=self.clock)

    @asynccontextmanager
    async def run_agent(
        self,
        wanted: ChangeSource,
        *,
        seed: int = 0,
        parallel_starts: int = 8,
        socket: Path | None = None,
        features: PodFeatures = DEFAULT_FEATURES,
        kill_switch: KillSwitch | None = None,
    ) -> AsyncIterator["RunningAgent"]:
        """Run a node without an API server on this machine; leaving the block kills it as `kill -9` would.

        With a socket it serves the agent's API there: that is real, so the loop must be, too. A kill switch may end it
        at one of its calls of the runtime.
        """
        metrics = open_metrics(architecture=self.machine.info().architecture)
        calls = register_runtime_calls(metrics.agent)
        async with run_in_process(self.runtime, clock=self.clock, metrics=calls) as client:
            client = client if kill_switch is None else _killable(client, kill_switch)
            boots = self.open_boots()
            reboot = await self.compare_boots(boots)
            settings = simulated_settings(
                parallel_starts, features=features, node=replace(self.settings, taints=self.taints)
            )
            settings = replace(settings, own_ports=self.own_ports, log_rotation=self.log_rotation)
            settings = replace(settings, stats=self.stats, image_gc=self.image_gc)
            settings = replace(settings, topology=self.topology, memory_manager=self.memory_manager)
            settings = replace(settings, cpu_manager=self.cpu_manager)
            ports = replace(
                self.build_ports(client, wanted, seed=seed, reboot=reboot, metrics=metrics),
                cpus=await restore_cpu_manager(self.cpu_state, settings, client),
                memory=await restore_memory_manager(self.memory_state, settings),
            )
            api = self._open_api(socket) if socket is not None else None
            node = build_node(NodeSpecification(settings=settings, ports=ports, api=api))
            await boots.note_running()
            async with running(node.parts):
                yield RunningAgent(agent=node.agent, journal=self.journal, boots=boots)

    def open_boots(self) -> BootKeeper:
        """Return what notes the boots of this machine, for one run of the agent."""
        return BootKeeper(
            left=self.boot.left,
            store=self.boot,
            machine=self.machine.info(),
            recorder=self.journal,
            clock=self.clock,
        )

    async def compare_boots(self, boots: BootKeeper) -> Reboot | None:
        """Record a reboot since the last run of the agent, as the agent does when it starts."""
        pods = frozenset(self.checkpoint.left.statuses)
        return await boots.start(last_record=self.journal.last_record_at, pods=pods)

    def reboot(self, *, clean: bool) -> None:
        """Boot the machine again; no agent may run now. What is not on a disk is gone.

        In a clean shutdown everything is synced to disk and processes are asked to end; otherwise the power is cut.
        """
        self.runtime.reboot(clean=clean)
        self.machine.boot_again(now=self.clock.now())
        self.cgroups.pods.clear()
        self.qos.pods = frozenset()
        self.volumes.mounts.clear()
        if not clean:
            self.checkpoint.lose_power()

    def build_ports(
        self,
        client: CriClient,
        wanted: ChangeSource,
        *,
        seed: int,
        wrap: PortWrapper = as_it_is,
        objects: NodeObjects | None = None,
        recorder: CauseRecorder | None = None,
        reboot: Reboot | None = None,
        metrics: AgentMetrics | None = None,
    ) -> Ports:
        """Return the ports of this machine. `wrap` may put something around them."""
        randomness = random.Random(seed)
        objects, recorder = objects or standalone_objects({}), recorder or self.journal
        volumes = wrap(self.volumes, "sub paths")
        containers = simulated_container_ports(
            client,
            objects=objects,
            mappings=self.files.mappings,
            volumes=volumes,
            resources=AllocatableResources(
                expected=expect_allocatable(self.machine.info(), storage=self.machine.size, settings=self.settings),
                find_node=objects.find_node,
            ),
            randomness=randomness,
        )
        return Ports(
            clock=self.clock,
            runtime=client,
            images=client,
            events=(ContainerdEvents(connection=client.runtime), CriEvents(runtime=client)),
            recorder=recorder,
            changes=wanted,
            files=wrap(self.files, "files"),
            cgroups=wrap(self.cgroups, "cgroups"),
            qos=wrap(self.qos, "qos"),
            termination_files=MemoryTerminationFiles(sink=self.files.sink),
            logs=wrap(self.logs, "logs"),
            rotated_logs=wrap(self.logs, "logs"),
            usage=self.usage,
            disk=self.disk,
            kernel_log=self.kernel_log,
            oom_counts=self.oom_counts,
            http=self.http,
            dns=MemoryDns(),
            contact=FirstContact(
                runtime=client, endpoint="in-process", configured_driver="cgroupfs", clock=self.clock, found=self.met
            ),
            prepare_runtime=self.cgroups.prepare,
            node_ips=lambda: ("192.0.2.1",),
            randomness=randomness,
            containers=containers,
            volumes=self._build_volumes(objects, volumes, containers.resources, recorder),
            node_logins=NoNodeLogins(),
            provider_logins=NoProviderLogins(),
            pull_files=wrap(self.pull_files, "pull records"),
            saved_state=self.checkpoint.left,
            saved_state_store=wrap(self.checkpoint, "memory"),
            reboot=reboot,
            machine=self.machine,
            addresses=self.machine,
            storage=self.machine.storage,
            metrics=metrics or open_metrics(architecture=self.machine.info().architecture),
        )

    def _open_api(self, socket: Path) -> OpenedApi:
        return OpenedApi(
            health=None,
            readers=None,
            secure=None,
            own_socket=socket,
            journal=self.journal,
            configuration=b"{}",
            node_ips=(str(ADDRESS),),
            manifests=ManifestPreview(node_name=NODE_NAME, has_api=False),
            features=ApiFeatures(),
            parts=(),
        )

    def _build_volumes(
        self, objects: NodeObjects, volumes: MemoryVolumes, node: NodeResources, recorder: CauseRecorder
    ) -> NodeVolumes:
        if self.directories is None:
            return NodeVolumes(
                plugins=(MemoryPlugin(volumes=volumes),),
                directories=volumes,
                layout=Layout(Path("/")),
                devices=MemoryDevices(),
                claims=objects.claims,
                find_node=objects.find_node,
                node=objects.node,
                objects=objects.referred,
                trust=objects.trust,
                certificates=objects.certificates,
            )
        ports = VolumePorts(
            root=self.directories.root,
            objects=objects.referred,
            tokens=objects.tokens,
            trust=objects.trust,
            certificates=objects.certificates,
            node=node,
            mounter=self.directories.mounts,
            storage=no_storage(self.directories.root),
            devices=MemoryDevices(),
            quotas=NoQuotas(),
            recorder=recorder,
            threads=self.directories.threads,
            clock=self.clock,
            has_api=objects.has_api,
            noswap=False,
            has_images=self.has_image_volumes,
            csi=objects.csi,
        )
        return build_volumes(ports, objects, build_plugins(ports))


class _Unobserved:
    """Sees every call, and does nothing."""

    def before(self, rpc: str, request: Message) -> None:
        """Do nothing."""

    def after(self, rpc: str, request: Message) -> None:
        """Do nothing."""


def _killable(client: CriClient, kill_switch: KillSwitch) -> CriClient:
    runtime, images = (
        KillableTransport(inner=inner, kill_switch=kill_switch, observer=_Unobserved())
        for inner in (client.runtime, client.images)
    )
    return CriClient(runtime=runtime, images=images, timeout=REQUEST_TIMEOUT)


@asynccontextmanager
async def running(parts: Sequence[Part]) -> AsyncIterator[None]:
    """Run parts until the block is left, however that is."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(part.run(), name=type(part).__name__) for part in parts]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningAgent:
    """An agent and its journal."""

    agent: Agent
    journal: MemoryJournal
    boots: BootKeeper


def simulated_settings(
    parallel_starts: int,
    *,
    longest_backoff: timedelta = timedelta(seconds=300),
    features: PodFeatures = DEFAULT_FEATURES,
    node: NodeSettings | None = None,
) -> AgentSettings:
    resources = ResourceRules(is_unified=True, memory_capacity=8 << 30, kills_whole_container=True)
    return AgentSettings(
        node_name=NODE_NAME,
        root=Path("/var/lib/kubelet"),
        socket=Path("/klet.sock"),
        journal=Path("/journal.db"),
        saved_state=Path("/klet-memory.json"),
        boot=Path("/klet-boot.json"),
        journal_records=10_000,
        runtime_endpoint="in-process",
        image_endpoint="",
        request_timeout=timedelta(minutes=2),
        resync=timedelta(minutes=1),
        crash_backoff=choose_crash_backoff(is_reduced=False, configured=longest_backoff),
        parallel_starts=parallel_starts,
        cgroup_root="/",
        cgroup_driver="cgroupfs",
        cgroups_per_qos=True,
        pod_cgroups=PodCgroupRules(),
        qos=QosRules(),
        resolv_conf=None,
        gc=GcPolicy(),
        legacy_logs=LOGS.parent / "containers",
        sandbox=SandboxSettings(logs=LOGS, resources=resources),
        container=ContainerSettings(
            security=SecuritySettings(), resources=resources, stop_signals=features.stop_signals
        ),
        features=features,
        images=ImageSettings(rules=build_rules("NeverVerifyPreloadedImages", ())),
        user_ids=UserIdSettings(),
        node=node or NodeSettings(name=NODE_NAME),
        runtime_handlers={},
        dns=DnsSettings(),
        gates=resolve_gates({}),
    )

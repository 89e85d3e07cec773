"""What the ports are: everything outside of the agent that its parts reach, real on a node and fake in a simulation.

`opening.py` opens the real ones; `klet.simulation` makes those that exist only in memory.
"""

import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.api.node import Node
from klet.checkpoint.file import StateStore
from klet.checkpoint.upstream import CpuManagerState, MemoryManagerState
from klet.cri.client import CriClient
from klet.cri.content import ContainerdContent
from klet.cri.events import RuntimeEventSource
from klet.cri.port import ImageService, RuntimeService
from klet.events.recorder import EventingRecorder
from klet.host.http_client import HttpClient
from klet.host.machine.cache import FactReader, MachineCache
from klet.host.socket_watch import SocketChange
from klet.images.providers.logins import AccountReader
from klet.images.pull_secrets import NodeLogins
from klet.images.pulled.files import PullFiles
from klet.images.sources import ProviderLogins
from klet.journal.store import Journal
from klet.logs.rotation import RotatableLogs
from klet.metrics import AgentMetrics
from klet.model.boots import Reboot
from klet.model.causes import CauseRecorder
from klet.model.roles import NodeResources, ObjectChanges, ObjectReader, Part, ReferredObjects, RestartCounts
from klet.model.saved_state import SavedState
from klet.model.tracing import Tracer
from klet.node.first_contact import FirstContact
from klet.node.oom import KernelMessages, OomCounts
from klet.node.status_inputs import Addresses
from klet.plugins.boards import PluginHandler
from klet.plugins.operations import PluginSockets
from klet.resources.cpu.state import CpuState
from klet.resources.memory.tables import MemoryState
from klet.resources.qos_repair import RepairableCgroups
from klet.runtime.claims import ClaimPreparer
from klet.runtime.config.container_options import DeviceOptions
from klet.runtime.config.container_planner import ContainerFileMaker
from klet.runtime.config.sub_paths import SubPaths
from klet.runtime.config.user_namespaces import UserNamespaceManager
from klet.runtime.environment.env_sources import (
    FileReader,
    ServiceReader,
)
from klet.runtime.gc import Logs
from klet.runtime.host_ports import PortHolders
from klet.runtime.kill.termination import TerminationFiles
from klet.runtime.runtime_class import Handlers, RuntimeClasses
from klet.runtime.sandboxes import CgroupParents, PodDns
from klet.runtime.starter import LogLinks
from klet.stats.collector import StatsHost
from klet.stats.disk import FilesystemMeter
from klet.status.checkpoint import SavedStateStore
from klet.sync.cgroup_step import PodCgroupKeeper, QosKeeper
from klet.sync.housekeeping import OrphanCgroups
from klet.sync.loop import ChangeSource
from klet.sync.pod_host_resources import PodDirectoryFiles
from klet.volumes.build import VolumeClaims
from klet.volumes.csi.build import CsiPorts
from klet.volumes.device_host import DeviceHost
from klet.volumes.device_stage import NodeReader
from klet.volumes.flex.probing import FlexFinder
from klet.volumes.manager import VolumeDisk
from klet.volumes.names import Layout
from klet.volumes.orphans import PodRemover
from klet.volumes.plugins.base import VolumePlugin
from klet.volumes.plugins.projected import CertificateReader, TokenReader, TrustReader


class PodFilesPort(ContainerFileMaker, RestartCounts, PodDirectoryFiles, Protocol):
    """All roles of the pods' files."""


class LogFilesPort(LogLinks, Logs, Protocol):
    """All roles of the containers' logs."""


class PodCgroupsPort(CgroupParents, PodCgroupKeeper, OrphanCgroups, Protocol):
    """All roles of the pods' cgroups."""


class QosCgroupsPort(QosKeeper, RepairableCgroups, Protocol):
    """All roles of the cgroups of the QoS classes."""


class TrustBundleReader(TrustReader, ObjectChanges, Protocol):
    """Root certificates for volumes."""


class PodCertificateReader(CertificateReader, ObjectChanges, Protocol):
    """Certificates of pods for volumes."""


class VolumeDirectories(VolumeDisk, PodRemover, Protocol):
    """All roles of the pods' volume directories."""


class NodeObjects(Struct, frozen=True, kw_only=True):
    """What pods and their volumes can refer to."""

    referred: ReferredObjects
    claims: VolumeClaims
    data: ObjectReader
    """The same, for the environment of containers."""
    tokens: TokenReader
    accounts: AccountReader
    trust: TrustBundleReader
    certificates: PodCertificateReader
    services: ServiceReader
    runtime_classes: RuntimeClasses
    find_node: Callable[[], Node | None]
    """The node as the API server has it."""
    node: NodeReader | None
    """The same, to be asked; None without an API server."""
    csi: CsiPorts | None = None
    """What CSI volumes need; None without an API server."""
    has_api: bool


class ContainerPorts(Struct, frozen=True, kw_only=True):
    """Where the parts of a container's configuration come from."""

    objects: ObjectReader
    services: ServiceReader
    resources: NodeResources
    runtime_classes: RuntimeClasses
    handlers: Handlers
    devices: DeviceOptions
    claims: ClaimPreparer
    volume_files: FileReader
    sub_paths: SubPaths
    user_namespaces: UserNamespaceManager
    host_ports: PortHolders


class NodeVolumes(Struct, frozen=True, kw_only=True):
    """What the volumes of a node are made of."""

    plugins: Iterable[VolumePlugin]
    flex: FlexFinder | None = None
    """Finds the drivers of flexVolume; None where there are none to find."""
    directories: VolumeDirectories
    layout: Layout
    devices: DeviceHost
    claims: VolumeClaims
    find_node: Callable[[], Node | None]
    node: NodeReader | None
    objects: ReferredObjects
    trust: ObjectChanges
    certificates: ObjectChanges
    noswap: bool = False
    """Whether the kernel can keep memory of volumes from being swapped out."""


class PluginPorts(Struct, frozen=True, kw_only=True):
    """Where plugins are found, and which parts of the node they are for."""

    watch: Callable[[], AsyncGenerator[SocketChange, None]]
    """Follows the sockets of the registry directory."""
    sockets: PluginSockets
    handlers: Mapping[str, PluginHandler]


class MemoryManagerPorts(Struct, frozen=True, kw_only=True):
    """Who has been given memory of which NUMA nodes, and where that is kept."""

    state: MemoryState
    store: StateStore[MemoryManagerState]


class CpuManagerPorts(Struct, frozen=True, kw_only=True):
    """Who has been given which CPUs, and where that is kept."""

    state: CpuState
    store: StateStore[CpuManagerState]


class BasePorts(Struct, frozen=True, kw_only=True):
    """Time, chance, the machine, threads for the disk, the runtime, and where causes are recorded."""

    clock: Clock
    randomness: random.Random
    machine: MachineCache
    threads: Threads
    runtime: CriClient
    contact: FirstContact
    journal: Journal
    events: EventingRecorder | None
    """In a cluster, what is recorded becomes Events too."""
    metrics: AgentMetrics

    content: ContainerdContent
    """Blobs of images, where the runtime is a containerd."""
    tracer: Tracer | None = None
    """Makes spans, if the configuration asks for traces."""

    @property
    def recorder(self) -> CauseRecorder:
        return self.events or self.journal


class Ports(Struct, frozen=True, kw_only=True):
    """The outside: real in the agent, fake in a simulation."""

    clock: Clock
    runtime: RuntimeService
    images: ImageService
    events: Sequence[RuntimeEventSource]
    recorder: CauseRecorder
    changes: ChangeSource
    files: PodFilesPort
    termination_files: TerminationFiles
    logs: LogFilesPort
    rotated_logs: RotatableLogs
    usage: StatsHost
    """Measures what cgroups use."""
    disk: FilesystemMeter
    """Measures what is on disks."""
    kernel_log: KernelMessages | None
    """None where the kernel's log cannot be read, in a user namespace."""
    oom_counts: OomCounts
    http: HttpClient
    cgroups: PodCgroupsPort
    qos: QosCgroupsPort
    dns: PodDns
    contact: FirstContact
    """What is known of the runtime."""
    prepare_runtime: Callable[[str], Awaitable[None]]
    """Prepares what depends on the runtime's cgroup driver."""
    cgroup_parts: tuple[Part, ...] = ()
    """What keeps the cgroups of the node, once that is done."""
    node_ips: Callable[[], tuple[str, ...]]
    """The node's own addresses, as containers may ask for them."""
    randomness: random.Random
    containers: ContainerPorts
    volumes: NodeVolumes
    node_logins: NodeLogins
    provider_logins: ProviderLogins
    """Those of credential provider plugins."""
    pull_files: PullFiles
    """The records of pulled images."""
    saved_state: SavedState
    """What a previous run of the agent left."""
    saved_state_store: SavedStateStore
    reboot: Reboot | None
    """The reboot that began this boot of the machine, if one is known."""
    machine: FactReader
    addresses: Addresses
    """The addresses of the machine, as a Node has them."""
    storage: Callable[[], Awaitable[int | None]]
    """The size of the filesystem with the root directory."""
    metrics: AgentMetrics
    content: ContainerdContent | None = None
    """Blobs of images; None where there is no such thing to ask."""
    host_ips: Callable[[], tuple[str, ...]] = tuple
    """The same as reported in statuses: only where there is an API server."""
    tracer: Tracer | None = None
    """Makes spans; None if nothing is traced."""
    cpus: CpuManagerPorts | None = None
    """None where no CPUs are given to anyone alone."""
    memory: MemoryManagerPorts | None = None
    """None where no memory is given to anyone alone."""
    plugins: PluginPorts | None = None
    """None on a machine without plugins, as in most simulations."""

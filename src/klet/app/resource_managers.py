"""The managers of resources, wired: each gives containers their part, and the topology manager asks them in order."""

from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from klet.api.klet_v1_topology import ManagerPolicies
from klet.api.pod import Pod
from klet.app.boards import Boards
from klet.app.ports import CpuManagerPorts, MemoryManagerPorts, Ports
from klet.app.settings import AgentSettings
from klet.metrics import MetricRegistry
from klet.model.pods import full_name, uid_of
from klet.model.roles import ContainerPins, Part, ResourceHolders
from klet.resources.cpu.board import CpuBoard
from klet.resources.cpu.manager import CpuManager
from klet.resources.cpu.metrics import CpuManagerMetrics, begin_alignment, register_cpu_pinning, register_cpus
from klet.resources.cpu.reconciler import CpuReconciler
from klet.resources.cpu.state import CpuState
from klet.resources.memory.manager import MemoryManager
from klet.resources.memory.state_file import STATIC
from klet.resources.metrics import (
    AlignmentMetrics,
    register_alignment,
    register_memory_pinning,
    register_topology,
)
from klet.resources.pinning import PinnedContainers
from klet.resources.preview import CopiedManagers, ManagedPlacement, NoRecords, NoStateFile, OtherHolders
from klet.resources.topology.hints import HintProvider
from klet.resources.topology.manager import TopologyManager
from klet.resources.view import TopologyReader
from klet.sync.fit import PlacementPreview
from klet.sync.resource_holders import LedgerHolders


class ResourceManagers(Struct, frozen=True, kw_only=True):
    """What allocates resources to pods, and what knows of it when containers are made."""

    topology: TopologyManager
    pins: ContainerPins
    cpus: CpuBoard
    """Who has which CPUs; nobody has any alone with the policy none."""
    memory: MemoryManager | None
    """None with the policy None."""
    parts: tuple[Part, ...] = ()
    """They need the runtime."""


def build_topology_reader(
    ports: Ports, settings: AgentSettings, boards: Boards, managers: ResourceManagers
) -> TopologyReader:
    """Build what `klet topology` is answered by: it reads the boards that decide."""
    return TopologyReader(
        node=settings.node_name,
        machine=ports.machine.info,
        policies=ManagerPolicies(
            cpu=settings.cpu_manager.policy,
            memory=settings.memory_manager.policy,
            topology=str(settings.topology.policy),
            topology_scope=str(settings.topology.scope),
        ),
        cpus=managers.cpus,
        memory=managers.memory,
        find_pod=boards.pods.get,
    )


class _CpuParts(Struct, frozen=True, kw_only=True):
    board: CpuBoard
    manager: CpuManager | None = None
    reconciler: CpuReconciler | None = None


def build_placement(
    ports: Ports, settings: AgentSettings, boards: Boards, managers: ResourceManagers
) -> PlacementPreview:
    """Build what `klet fit` asks where containers would be."""
    return ManagedPlacement(copy=partial(_copy_managers, ports, settings, boards, managers), machine=ports.machine.info)


def _copy_managers(
    ports: Ports, settings: AgentSettings, boards: Boards, managers: ResourceManagers, pod: Pod
) -> CopiedManagers:
    """Build the same managers again, on what the real ones know now."""
    memory = None
    if managers.memory is not None:
        memory = MemoryManagerPorts(state=managers.memory.state, store=NoStateFile())
    copied = replace(
        ports,
        cpus=CpuManagerPorts(state=managers.cpus.state, store=NoStateFile()),
        memory=memory,
        recorder=NoRecords(),
    )
    replaced = [uid_of(other) for other in boards.pods.all() if full_name(other) == full_name(pod)]
    holders = OtherHolders(holders=_build_holders(ports, boards), gone=replaced)
    copies = build_resource_managers(copied, settings, replace(boards, metrics=MetricRegistry()), holders=holders)
    return CopiedManagers(topology=copies.topology, cpus=copies.cpus, memory=copies.memory)


def _build_holders(ports: Ports, boards: Boards) -> ResourceHolders:
    return LedgerHolders(ledger=boards.ledger, is_live=boards.cache.is_live, sources_ready=ports.changes.all_ready)


def build_resource_managers(
    ports: Ports, settings: AgentSettings, boards: Boards, *, holders: ResourceHolders | None = None
) -> ResourceManagers:
    """Build the managers in the order in which they allocate: devices, CPUs, memory."""
    holders = holders or _build_holders(ports, boards)
    alignment = register_alignment(boards.metrics)
    cpus = _build_cpus(ports, settings, boards, holders, alignment)
    memory = _build_memory(ports, settings, boards, holders)
    providers: tuple[HintProvider | None, ...] = (cpus.manager, memory)
    pinning: tuple[ContainerPins | None, ...] = (cpus.reconciler, memory)
    return ResourceManagers(
        topology=TopologyManager(
            providers=tuple(each for each in providers if each is not None),
            rules=settings.topology,
            metrics=register_topology(boards.metrics),
            alignment=alignment,
            recorder=ports.recorder,
            clock=ports.clock,
        ),
        pins=PinnedContainers(managers=tuple(each for each in pinning if each is not None)),
        cpus=cpus.board,
        memory=memory,
        parts=() if cpus.reconciler is None else (cpus.reconciler,),
    )


def _build_cpus(
    ports: Ports, settings: AgentSettings, boards: Boards, holders: ResourceHolders, alignment: AlignmentMetrics
) -> _CpuParts:
    rules, policy = settings.cpu_manager, settings.cpu_manager.static
    state = ports.cpus.state if ports.cpus is not None else CpuState()
    board = CpuBoard(policy=policy, state=state, lifts_quota=rules.lifts_quota)
    metrics = CpuManagerMetrics(pinning=register_cpu_pinning(boards.metrics), alignment=alignment)
    register_cpus(boards.metrics, board, policy.topology.nodes if policy is not None else {})
    if policy is None or ports.cpus is None:
        return _CpuParts(board=board)
    begin_alignment(alignment)
    manager = CpuManager(
        policy=policy,
        board=board,
        store=ports.cpus.store,
        allocations=boards.allocations,
        holders=holders,
        metrics=metrics,
        recorder=ports.recorder,
    )
    reconciler = CpuReconciler(
        manager=manager,
        board=board,
        pods=boards.cache,
        runtime=ports.runtime,
        recorder=ports.recorder,
        clock=ports.clock,
        period=rules.reconcile_period,
    )
    return _CpuParts(board=board, manager=manager, reconciler=reconciler)


def _build_memory(
    ports: Ports, settings: AgentSettings, boards: Boards, holders: ResourceHolders
) -> MemoryManager | None:
    metrics = register_memory_pinning(boards.metrics)
    if ports.memory is None or settings.memory_manager.policy != STATIC:
        return None
    return MemoryManager(
        state=ports.memory.state,
        store=ports.memory.store,
        allocations=boards.allocations,
        holders=holders,
        has_pod_level_resources=settings.has_pod_level_resources,
        metrics=metrics,
        recorder=ports.recorder,
    )

"""The managers of resources, wired: each gives containers their part, and the topology manager asks them in order."""

from msgspec import Struct

from klet.app.boards import Boards
from klet.app.ports import Ports
from klet.app.settings import AgentSettings
from klet.model.roles import ContainerPins, ResourceHolders
from klet.resources.memory.manager import MemoryManager
from klet.resources.memory.state_file import STATIC
from klet.resources.metrics import register_alignment, register_memory_pinning, register_topology
from klet.resources.pinning import PinnedContainers
from klet.resources.topology.manager import TopologyManager
from klet.sync.resource_holders import LedgerHolders


class ResourceManagers(Struct, frozen=True, kw_only=True):
    """What allocates resources to pods, and what knows of it when containers are made."""

    topology: TopologyManager
    pins: ContainerPins
    memory: MemoryManager | None
    """None with the policy None."""


def build_resource_managers(ports: Ports, settings: AgentSettings, boards: Boards) -> ResourceManagers:
    """Build the managers in the order in which they allocate: devices, CPUs, memory."""
    holders = LedgerHolders(ledger=boards.ledger, is_live=boards.cache.is_live, sources_ready=ports.changes.all_ready)
    alignment = register_alignment(boards.metrics)
    memory = _build_memory(ports, settings, boards, holders)
    given = () if memory is None else (memory,)
    return ResourceManagers(
        topology=TopologyManager(
            providers=given,
            rules=settings.topology,
            metrics=register_topology(boards.metrics),
            alignment=alignment,
            recorder=ports.recorder,
            clock=ports.clock,
        ),
        pins=PinnedContainers(managers=given),
        memory=memory,
    )


def _build_memory(
    ports: Ports, settings: AgentSettings, boards: Boards, holders: ResourceHolders
) -> MemoryManager | None:
    metrics = register_memory_pinning(boards.metrics)
    if ports.memory is None or settings.memory_manager.policy != STATIC:
        return None
    return MemoryManager(
        state=ports.memory.state,
        store=ports.memory.store,
        holders=holders,
        has_pod_level_resources=settings.has_pod_level_resources,
        metrics=metrics,
        recorder=ports.recorder,
    )

"""The managers of resources, wired: each gives containers their part, and the topology manager asks them in order."""

from msgspec import Struct

from klet.app.boards import Boards
from klet.app.ports import Ports
from klet.app.settings import AgentSettings
from klet.model.roles import ContainerPins
from klet.resources.metrics import register_alignment, register_topology
from klet.resources.pinning import PinnedContainers
from klet.resources.topology.hints import HintProvider
from klet.resources.topology.manager import TopologyManager


class ResourceManagers(Struct, frozen=True, kw_only=True):
    """What allocates resources to pods, and what knows of it when containers are made."""

    topology: TopologyManager
    pins: ContainerPins


def build_resource_managers(ports: Ports, settings: AgentSettings, boards: Boards) -> ResourceManagers:
    """Build the managers in the order in which they allocate: devices, CPUs, memory."""
    alignment = register_alignment(boards.metrics)
    providers: tuple[HintProvider, ...] = ()
    pins: tuple[ContainerPins, ...] = ()
    return ResourceManagers(
        topology=TopologyManager(
            providers=providers,
            rules=settings.topology,
            metrics=register_topology(boards.metrics),
            alignment=alignment,
            recorder=ports.recorder,
            clock=ports.clock,
        ),
        pins=PinnedContainers(managers=pins),
    )

"""The CSI drivers of a node: what knows them, what registers them, and what writes them to the Node and CSINode."""

import random
from collections.abc import Awaitable, Callable, Mapping

from msgspec import Struct

from klet.aio.clock import Clock
from klet.api.node import Node
from klet.api.storage import CSIDriver
from klet.csi.client import CsiConnector
from klet.csi.metrics import register_csi_calls
from klet.csi_nodes.allocatable import AllocatableRefresher
from klet.csi_nodes.drivers import CsiDriverBoard
from klet.csi_nodes.info_manager import NodeInfoManager
from klet.csi_nodes.registration import CsiRegistration
from klet.csi_nodes.renewal import CsiNodeRenewal
from klet.csi_nodes.start import CsiNodeBoard, CsiNodeStart
from klet.kube.client import KubeClient
from klet.kube.informer import Informer
from klet.metrics import MetricRegistry
from klet.model.plugins import PluginType
from klet.model.roles import Part
from klet.objectcache.csi_objects import ClusterCsiObjects
from klet.plugins.boards import PluginHandler
from klet.volumes.csi.access import CsiAccess
from klet.volumes.csi.build import CsiPorts
from klet.volumes.csi.changes import CsiChanges
from klet.volumes.plugins.base import PluginUser


class DriverSettings(Struct, frozen=True, kw_only=True):
    """Whose drivers they are."""

    node_name: str
    has_tokens_in_secrets: bool = True
    """Whether tokens of service accounts go with the secrets, where a driver asks for that (gate
    CSIServiceAccountTokenSecrets)."""
    has_volume_health: bool = False
    """Whether drivers are asked how their volumes are (gate CSIVolumeHealth)."""
    refreshes_counts: bool = True
    """Whether drivers are asked again how many volumes the node can have (gate MutableCSINodeAllocatableCount)."""


class NodeDrivers(Struct, frozen=True, kw_only=True):
    """The CSI drivers of a node that has an API server."""

    settings: DriverSettings
    client: KubeClient
    board: CsiDriverBoard
    objects: Informer[CSIDriver]
    connector: CsiConnector
    start: CsiNodeBoard
    manager: NodeInfoManager
    refresher: AllocatableRefresher
    handlers: Mapping[str, PluginHandler]
    """What the plugin manager gives drivers to."""
    volumes: CsiPorts
    """What their volumes need."""


def build_drivers(
    client: KubeClient,
    objects: Informer[CSIDriver],
    *,
    settings: DriverSettings,
    metrics: MetricRegistry,
    clock: Clock,
    randomness: random.Random,
) -> NodeDrivers:
    """Build the boards, and what registers drivers."""
    board, start = CsiDriverBoard(), CsiNodeBoard()
    connector = CsiConnector(durations=register_csi_calls(metrics), clock=clock)
    manager = NodeInfoManager(client=client, node_name=settings.node_name, clock=clock, randomness=randomness)
    registration = CsiRegistration(connector=connector, drivers=board, objects=manager, start=start)
    refresher = AllocatableRefresher(drivers=board, objects=objects, connector=connector, writer=manager, clock=clock)
    access = CsiAccess(
        registered=board,
        known=objects,
        objects=ClusterCsiObjects(client=client, clock=clock),
        connector=connector,
        node=settings.node_name,
    )
    return NodeDrivers(
        settings=settings,
        client=client,
        board=board,
        objects=objects,
        connector=connector,
        start=start,
        manager=manager,
        refresher=refresher,
        handlers={PluginType.CSI: registration},
        volumes=CsiPorts(
            access=access,
            limits=refresher if settings.refreshes_counts else None,
            has_tokens_in_secrets=settings.has_tokens_in_secrets,
            has_health=settings.has_volume_health,
        ),
    )


def build_driver_parts(
    drivers: NodeDrivers,
    *,
    user: PluginUser,
    nodes: Informer[Node],
    until_node: Callable[[], Awaitable[None]],
    clock: Clock,
    randomness: random.Random,
) -> tuple[Part, ...]:
    """Build what runs for the drivers; `until_node` returns once the Node is at the API server."""
    changes = CsiChanges(drivers=drivers.board, objects=drivers.objects, user=user)
    start = CsiNodeStart(
        client=drivers.client,
        manager=drivers.manager,
        board=drivers.start,
        until_node=until_node,
        node_name=drivers.settings.node_name,
        clock=clock,
        randomness=randomness,
    )
    renewal = CsiNodeRenewal(
        nodes=nodes,
        node_name=drivers.settings.node_name,
        manager=drivers.manager,
        drivers=drivers.board,
        connector=drivers.connector,
        start=drivers.start,
        clock=clock,
    )
    parts: tuple[Part, ...] = (start, renewal, changes)
    return (*parts, drivers.refresher) if drivers.settings.refreshes_counts else parts

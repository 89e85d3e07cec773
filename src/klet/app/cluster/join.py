"""Makes the agent a node of a cluster: the client of its API server, and the parts that keep both in sync."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from msgspec import Struct
from msgspec.structs import replace

from klet.app.cluster.connection import ClusterClients, connect_cluster
from klet.app.cluster.drivers import DriverSettings, NodeDrivers, build_driver_parts, build_drivers
from klet.app.cluster.identity import build_identity_parts, open_node_identity, open_requested_serving
from klet.app.cluster.node import (
    ReportPorts,
    ReportSettings,
    build_node_reporting,
    cut_report_settings,
)
from klet.app.cluster.objects import build_served_objects, cut_object_settings
from klet.app.cluster.offline import open_offline
from klet.app.cluster.pods import build_pod_certificates, build_pod_parts
from klet.app.pod_network import build_pod_cidrs
from klet.app.ports import BasePorts, NodeObjects, Ports
from klet.app.settings import AgentSettings
from klet.app.wiring import Agent
from klet.certs.followers import PairUser
from klet.certs.pod_certificates.board import PodCertificates
from klet.config.command_line import Settings
from klet.config.places import hide_credentials
from klet.events.recorder import EventingRecorder
from klet.kube.metrics import register_rest_client
from klet.kube.node_informers import NodeInformers, build_informers
from klet.kube.outages import OutageLogger
from klet.model.roles import Part, PodSink, Publisher
from klet.node.addresses import host_ips
from klet.node.pod_cidrs import PodCidrs
from klet.node.registrar import AfterRegistration
from klet.node.status_inputs import PartReports
from klet.offline.keeping import Offline


class Cluster(Struct, frozen=True, kw_only=True):
    """The API server, as the node knows it."""

    clients: ClusterClients
    informers: NodeInformers
    offline: Offline | None
    """What is kept for the time without it, if that is wanted."""
    objects: NodeObjects
    certificates: PodCertificates | None
    """The board of pod certificates; None if pods of this node cannot have any."""
    events: EventingRecorder
    """The recorder of the node: what it records becomes Events."""
    sink: PodSink
    """Where the pods of the API server go."""
    drivers: NodeDrivers
    """The CSI drivers of the node."""
    cidrs: PodCidrs
    reports: ReportSettings
    parts: tuple[Part, ...]
    """What runs for it besides what needs the agent: informers, caches of objects, the node's own certificates."""


@asynccontextmanager
async def open_cluster(
    given: Settings, settings: AgentSettings, base: BasePorts, *, events: EventingRecorder, sink: PodSink
) -> AsyncIterator[Cluster]:
    """Connect with the credentials of the node, which are obtained first if there are none."""
    clock, randomness = base.clock, base.randomness
    offline = await open_offline(given.klet, settings, base) if given.klet.offline else None
    async with (
        open_node_identity(given, settings, base) as identity,
        connect_cluster(
            identity.access,
            given.config,
            clock=clock,
            randomness=randomness,
            tracer=base.tracer,
            metrics=register_rest_client(base.metrics.agent, clock),
        ) as clients,
    ):
        informers = build_informers(clients.informers, settings.node_name)
        served = build_served_objects(
            clients,
            informers,
            settings=cut_object_settings(given, node_name=settings.node_name),
            offline=offline,
            clock=clock,
            randomness=randomness,
        )
        drivers = build_drivers(
            clients.main,
            informers.csi_drivers,
            settings=DriverSettings(
                node_name=settings.node_name,
                has_tokens_in_secrets=given.gates.enabled("CSIServiceAccountTokenSecrets"),
                has_volume_health=given.gates.enabled("CSIVolumeHealth"),
                refreshes_counts=given.gates.enabled("MutableCSINodeAllocatableCount"),
            ),
            metrics=base.metrics.agent,
            clock=clock,
            randomness=randomness,
        )
        outages = OutageLogger(
            server=hide_credentials(identity.access.server),
            reaches=(clients.transport.reach, clients.heartbeat_transport.reach),
            clock=clock,
        )
        yield Cluster(
            clients=clients,
            informers=informers,
            offline=offline,
            objects=replace(served.objects, csi=drivers.volumes),
            certificates=served.certificates,
            events=events,
            sink=sink,
            drivers=drivers,
            cidrs=build_pod_cidrs(given, base),
            reports=cut_report_settings(given, settings.node),
            parts=(
                outages,
                *build_identity_parts(identity, clients, base),
                *informers.followed,
                *served.parts,
            ),
        )


async def open_serving_rotation(
    given: Settings, settings: AgentSettings, base: BasePorts, *, cluster: Cluster, user: PairUser
) -> tuple[Part, ...]:
    """Return the part that gets and renews the serving certificate that the cluster signs."""
    return await open_requested_serving(
        given, settings.node_name, base, clients=cluster.clients, informers=cluster.informers, user=user
    )


def find_host_ips(cluster: Cluster, *, expected: tuple[str, ...]) -> Callable[[], tuple[str, ...]]:
    """Return the addresses of the node as its object has them; until it is there, those that are expected."""
    nodes, name = cluster.informers.node, cluster.reports.node.name

    def find() -> tuple[str, ...]:
        node = nodes.get(name)
        return (host_ips(node) if node is not None else ()) or expected

    return find


class ClusterParts(Struct, frozen=True, kw_only=True):
    """The parts of a node that has an API server."""

    parts: tuple[Part, ...]
    publishers: tuple[Publisher, ...]
    """Those of the parts that have something to send before the agent ends."""


def build_cluster_parts(cluster: Cluster, ports: Ports, agent: Agent) -> ClusterParts:
    """Build the parts of a node that has an API server."""
    clients, informers = cluster.clients, cluster.informers
    node = build_node_reporting(
        cluster.reports,
        ReportPorts(
            machine=ports.machine,
            addresses=ports.addresses,
            runtime=ports.runtime,
            images=agent.images,
            api=clients.main,
            heartbeat=clients.heartbeat,
            reconnect=clients.heartbeat_transport.reconnect,
            nodes=informers.node,
            recorder=ports.recorder,
            clock=ports.clock,
            randomness=ports.randomness,
            metrics=ports.metrics,
        ),
        health=agent.runtime,
        volumes=agent.volumes,
        reports=PartReports(
            storage=ports.storage,
            volumes_in_use=agent.volumes.volumes_in_use,
            storage_error=cluster.drivers.start.error,
        ),
        cidrs=cluster.cidrs,
        wakes=(cluster.drivers.start.changes,),
    )
    drivers = build_driver_parts(
        cluster.drivers,
        user=agent.volumes,
        nodes=informers.node,
        until_node=node.board.until_known,
        clock=ports.clock,
        randomness=ports.randomness,
    )
    pods = build_pod_parts(
        agent,
        clients,
        informers,
        recorder=cluster.events,
        sink=cluster.sink,
        node_name=cluster.reports.node.name,
        cidrs=cluster.cidrs,
        offline=cluster.offline,
    )
    certificates: tuple[Part, ...] = ()
    if cluster.certificates is not None:
        certificates = build_pod_certificates(
            cluster.certificates,
            agent,
            clients,
            informers,
            recorder=cluster.events,
            node_name=cluster.reports.node.name,
        )
    later = (*cluster.parts, node.lease, *pods.others, *pods.publishers, *certificates)
    if cluster.reports.registers:
        later = (AfterRegistration(parts=later, board=node.board, clock=ports.clock),)
    # One of the parts for drivers ends the agent if it cannot do its work, so it is not within another part.
    return ClusterParts(parts=(node.reporter, node.startup, *drivers, *later), publishers=pods.publishers)

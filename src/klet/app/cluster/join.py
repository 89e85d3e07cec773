"""Makes the agent a node of a cluster: what speaks to its API server, and the parts that keep both sides true."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from klet.app.basics import Basics
from klet.app.cluster.certificates import Identity
from klet.app.cluster.connection import ClusterClients, ClusterInformers, build_informers, connect_cluster
from klet.app.cluster.identity import build_identity_parts, open_node_identity, open_requested_serving
from klet.app.cluster.node import build_node_parts, build_pod_cidrs
from klet.app.cluster.objects import ServedObjects, build_served_objects
from klet.app.cluster.offline import Offline, open_offline
from klet.app.cluster.pods import build_pod_parts
from klet.app.ports import Place
from klet.app.settings import AgentSettings
from klet.app.wiring import Agent, Part
from klet.certs.followers import PairUser
from klet.config.command_line import Settings
from klet.config.places import hide_credentials
from klet.host.addresses import find_node_addresses
from klet.kube.announcer import Announcer
from klet.node.addresses import host_ips
from klet.sources.config import PodSink


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The API server, as the agent knows it."""

    clients: ClusterClients
    informers: ClusterInformers
    offline: Offline | None
    """What is kept for the time without it, if that is wanted."""
    served: ServedObjects
    place: Place
    identity: Identity


@asynccontextmanager
async def open_cluster(given: Settings, settings: AgentSettings, basics: Basics) -> AsyncIterator[Cluster]:
    """Connect with the credentials of the node, which are obtained first if there are none."""
    clock, randomness = basics.clock, basics.randomness
    offline = await open_offline(given.klet, settings, basics) if given.klet.offline else None
    async with (
        open_node_identity(given, settings, basics) as identity,
        connect_cluster(identity.access, given.config, clock=clock, randomness=randomness) as clients,
    ):
        informers = build_informers(clients.informers, settings.node_name)
        served = build_served_objects(
            clients,
            informers,
            config=given.config,
            node_name=settings.node_name,
            has_trust_bundles=given.gates.enabled("ClusterTrustBundleProjection"),
            offline=offline,
            clock=clock,
            randomness=randomness,
        )
        # Until the node is there, the addresses that it will have.
        expected = find_node_addresses(given.flags.node_ip.split(","))

        def find_host_ips() -> tuple[str, ...]:
            node = informers.node.get(settings.node_name)
            return (host_ips(node) if node is not None else ()) or expected

        yield Cluster(
            clients=clients,
            informers=informers,
            offline=offline,
            served=served,
            place=Place(objects=served.objects, node_ips=find_host_ips, host_ips=find_host_ips),
            identity=identity,
        )


async def build_cluster_parts(
    given: Settings,
    settings: AgentSettings,
    basics: Basics,
    *,
    cluster: Cluster,
    agent: Agent,
    sink: PodSink,
    requested: PairUser | None,
) -> tuple[Part, ...]:
    """The parts of a node that has an API server; with somebody who waits for a serving certificate, its rotation."""
    clients, informers = cluster.clients, cluster.informers
    assert basics.events is not None
    cidrs = build_pod_cidrs(given, basics)
    pods = build_pod_parts(
        agent,
        clients,
        informers,
        recorder=basics.events,
        sink=sink,
        node_name=settings.node_name,
        cidrs=cidrs,
        offline=cluster.offline,
    )
    node = build_node_parts(
        given,
        settings,
        basics,
        agent=agent,
        clients=clients,
        informers=informers,
        cidrs=cidrs,
    )
    announcer = Announcer(
        server=hide_credentials(cluster.identity.access.server),
        reaches=(clients.transport.reach, clients.heartbeat_transport.reach),
        clock=basics.clock,
    )
    followed = (informers.node, informers.pods, informers.services, informers.runtime_classes)
    identity = build_identity_parts(cluster.identity, clients, basics)
    serving: tuple[Part, ...] = ()
    if requested is not None:
        serving = await open_requested_serving(
            given, settings.node_name, basics, clients=clients, informers=informers, user=requested
        )
    return (announcer, *identity, *serving, *followed, *cluster.served.parts, *node, *pods)

"""Makes the agent a node of a cluster: what speaks to its API server, and the parts that keep both sides true."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from klet.app.basics import Basics
from klet.app.cluster.certificates import Identity
from klet.app.cluster.connection import ClusterClients, ClusterInformers, build_informers, connect_cluster
from klet.app.cluster.identity import build_identity_parts, open_node_identity
from klet.app.cluster.node import build_node_parts
from klet.app.cluster.objects import ServedObjects, build_served_objects
from klet.app.cluster.offline import Offline, open_offline
from klet.app.cluster.pods import build_pod_parts
from klet.app.settings import AgentSettings
from klet.app.wiring import Agent, Part
from klet.config.command_line import Settings
from klet.events.recorder import EventingRecorder
from klet.host.addresses import find_node_addresses
from klet.node.addresses import host_ips
from klet.node.observer import NodeInputs
from klet.sources.config import PodSink


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The API server, as the agent knows it."""

    clients: ClusterClients
    informers: ClusterInformers
    events: EventingRecorder
    offline: Offline | None
    """What is kept for the time without it, if that is wanted."""
    served: ServedObjects
    host_ips: Callable[[], tuple[str, ...]]
    """The addresses of the node, as its object tells them."""
    identity: Identity


@asynccontextmanager
async def open_cluster(
    given: Settings, settings: AgentSettings, basics: Basics, events: EventingRecorder
) -> AsyncIterator[Cluster]:
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
            events=events,
            offline=offline,
            served=served,
            host_ips=find_host_ips,
            identity=identity,
        )


def build_cluster_parts(
    given: Settings, settings: AgentSettings, basics: Basics, *, cluster: Cluster, agent: Agent, sink: PodSink
) -> tuple[Part, ...]:
    """The parts of a node that has an API server."""
    informers = cluster.informers
    pods = build_pod_parts(
        agent,
        cluster.clients,
        informers,
        recorder=cluster.events,
        sink=sink,
        node_name=settings.node_name,
        clock=basics.clock,
        randomness=basics.randomness,
        offline=cluster.offline,
    )
    node = build_node_parts(
        given,
        settings,
        basics,
        agent=agent,
        clients=cluster.clients,
        informers=informers,
        inputs=NodeInputs(),
    )
    followed = (informers.node, informers.pods, informers.services, informers.runtime_classes)
    identity = build_identity_parts(cluster.identity, cluster.clients, basics)
    return (*identity, *followed, *cluster.served.parts, *node, *pods)

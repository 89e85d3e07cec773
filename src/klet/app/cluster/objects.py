"""The objects of an API server that pods of this node use.

Config maps, secrets, claims, tokens, trust bundles, services, runtime classes.
"""

import random
from datetime import timedelta

from msgspec import Struct

from klet.aio.clock import Clock
from klet.api.node import Node
from klet.app.cluster.connection import ClusterClients
from klet.app.ports import NodeObjects
from klet.certs.pod_certificates.board import NoPodCertificates, PodCertificates
from klet.config.command_line import Settings
from klet.kube.node_informers import NodeInformers
from klet.model.roles import Part, ReferredObjects, TokenClient
from klet.objectcache.accounts import ClusterAccounts
from klet.objectcache.claims import ClusterClaims
from klet.objectcache.cluster import build_cluster_objects
from klet.objectcache.own_node import OwnNode
from klet.objectcache.tokens import TokenCache
from klet.objectcache.trust_bundles import NoTrustBundles, TrustBundles
from klet.offline.keeping import Offline
from klet.runtime.cluster_objects import ClusterRuntimeClasses, ClusterServices


class ObjectSettings(Struct, frozen=True, kw_only=True):
    """Whose objects they are, and how changes of them are noticed."""

    node_name: str
    strategy: str
    sync_period: timedelta
    has_trust_bundles: bool
    has_pod_certificates: bool = False


def cut_object_settings(given: Settings, *, node_name: str) -> ObjectSettings:
    return ObjectSettings(
        node_name=node_name,
        strategy=given.config.config_map_and_secret_change_detection_strategy,
        sync_period=given.config.sync_frequency,
        has_trust_bundles=given.gates.enabled("ClusterTrustBundleProjection"),
        has_pod_certificates=given.gates.enabled("PodCertificateRequest"),
    )


class ServedObjects(Struct, frozen=True, kw_only=True):
    """The objects of a node that has an API server, and the parts that keep them."""

    objects: NodeObjects
    certificates: PodCertificates | None
    """The board of pod certificates, if pods of this node can have some."""
    parts: tuple[Part, ...]


def build_served_objects(
    clients: ClusterClients,
    informers: NodeInformers,
    *,
    settings: ObjectSettings,
    offline: Offline | None,
    clock: Clock,
    randomness: random.Random,
) -> ServedObjects:
    """Build the object caches. Nothing is read before a pod needs it. The informers are parts of their own."""

    def find_node() -> Node | None:
        return informers.node.get(settings.node_name)

    cache = build_cluster_objects(
        settings.strategy,
        settings=clients.informers,
        client=clients.main,
        node=find_node,
        sync_period=settings.sync_period,
    )
    referred: ReferredObjects = cache
    token_client: TokenClient = clients.main
    parts: tuple[Part, ...] = (cache,)
    if offline is not None:
        referred = kept = offline.keep_objects(cache)
        token_client = offline.keep_tokens(clients.main)
        parts = (cache, kept)
    tokens = TokenCache(client=token_client, randomness=randomness, clock=clock)
    trust: TrustBundles | None = None
    if settings.has_trust_bundles:
        trust = TrustBundles(bundles=informers.trust_bundles, randomness=randomness, clock=clock)
        parts = (*parts, trust)
    certificates = PodCertificates() if settings.has_pod_certificates else None
    objects = NodeObjects(
        referred=referred,
        claims=ClusterClaims(client=clients.main, clock=clock),
        data=referred,
        tokens=tokens,
        accounts=ClusterAccounts(client=clients.main, clock=clock),
        trust=trust or NoTrustBundles(),
        certificates=certificates or NoPodCertificates(),
        services=ClusterServices(services=informers.services, clock=clock),
        runtime_classes=ClusterRuntimeClasses(classes=informers.runtime_classes, clock=clock),
        find_node=find_node,
        node=OwnNode(informer=informers.node, client=clients.main, name=settings.node_name),
        has_api=True,
    )
    return ServedObjects(objects=objects, certificates=certificates, parts=(*parts, tokens))

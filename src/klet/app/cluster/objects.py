"""The objects of an API server that pods of this node use.

Config maps, secrets, tokens, trust bundles, services, runtime classes.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from klet.aio.clock import Clock
from klet.api.node import RuntimeClass
from klet.api.service import Service
from klet.app.cluster.connection import ClusterClients, ClusterInformers
from klet.app.cluster.offline import Offline
from klet.app.objects import NodeObjects, ReferredObjects
from klet.app.wiring import Part
from klet.config.command_line import Settings
from klet.kube.informer import Informer
from klet.objectcache.cluster import EnvironmentObjects, build_cluster_objects
from klet.objectcache.tokens import TokenCache, TokenClient
from klet.objectcache.trust_bundles import NoTrustBundles, TrustBundles
from klet.runtime.runtime_class import RuntimeClassMissing

FIRST_LIST: Final = timedelta(seconds=2)
"""How long a pod waits for the first list of something; then it is told that there is none yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectSettings:
    """Whose objects they are, and how changes of them are noticed."""

    node_name: str
    strategy: str
    sync_period: timedelta
    has_trust_bundles: bool


def cut_object_settings(given: Settings, *, node_name: str) -> ObjectSettings:
    return ObjectSettings(
        node_name=node_name,
        strategy=given.config.config_map_and_secret_change_detection_strategy,
        sync_period=given.config.sync_frequency,
        has_trust_bundles=given.gates.enabled("ClusterTrustBundleProjection"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedObjects:
    """The objects of a node that has an API server, and the parts that keep them."""

    objects: NodeObjects
    parts: tuple[Part, ...]


def build_served_objects(
    clients: ClusterClients,
    informers: ClusterInformers,
    *,
    settings: ObjectSettings,
    offline: Offline | None,
    clock: Clock,
    randomness: random.Random,
) -> ServedObjects:
    """Nothing is asked before a pod needs it. The informers are parts of their own."""
    cache = build_cluster_objects(
        settings.strategy,
        settings=clients.informers,
        node=lambda: informers.node.get(settings.node_name),
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
    objects = NodeObjects(
        referred=referred,
        data=EnvironmentObjects(objects=referred),
        tokens=tokens,
        trust=trust or NoTrustBundles(),
        services=FollowedServices(services=informers.services, clock=clock),
        runtime_classes=FollowedRuntimeClasses(classes=informers.runtime_classes, clock=clock),
        has_api=True,
    )
    return ServedObjects(objects=objects, parts=(*parts, tokens))


class FollowedServices:
    """The services of the cluster. Containers are told their addresses when they start."""

    def __init__(self, *, services: Informer[Service], clock: Clock) -> None:
        self._services = services
        self._clock = clock

    def services(self) -> Sequence[Service] | None:
        return self._services.all() if self._services.is_synced else None

    async def until_read(self) -> None:
        if not self._services.is_synced:
            await self._clock.wait(self._services.until_synced(), at_most=FIRST_LIST)


class FollowedRuntimeClasses:
    """The runtime classes of the cluster."""

    def __init__(self, *, classes: Informer[RuntimeClass], clock: Clock) -> None:
        self._classes = classes
        self._clock = clock

    async def handler_of(self, name: str) -> str:
        if not self._classes.is_synced:
            await self._clock.wait(self._classes.until_synced(), at_most=FIRST_LIST)
        found = self._classes.get(name)
        if found is None:
            raise RuntimeClassMissing(f'runtimeclass.node.k8s.io "{name}" not found')
        return found.handler

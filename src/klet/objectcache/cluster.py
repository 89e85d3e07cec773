"""The config maps and secrets of the node's pods (config map manager, secret manager): registered by pod, and read.

A board (`ChangedObjects`) announces which of them have changed.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Generic

from klet.aio.broadcast import Broadcast, Subscription
from klet.api.config import ConfigMap, Secret
from klet.api.field_selectors import FieldTerm
from klet.api.node import Node
from klet.api.pod import Pod
from klet.kube.informer import Informer, InformerSettings
from klet.kube.watch import WatchScope
from klet.model.objects import ObjectKind, ObjectRef, pod_config_maps, pod_secrets
from klet.model.pods import PodUID, uid_of
from klet.objectcache.errors import UnknownStrategy
from klet.objectcache.expiring import ExpiringObjects, ttl_of
from klet.objectcache.store import LiveObjects, ObjectClient, ObjectStore, T
from klet.objectcache.watched import WatchedObjects, idle_time


class ChangeDetectionStrategy(StrEnum):
    """How changes are noticed (`configMapAndSecretChangeDetectionStrategy`)."""

    WATCH = "Watch"
    CACHE = "Cache"
    GET = "Get"


class ChangedObjects:
    """A board that announces which objects have changed. Written by the caches only."""

    def __init__(self) -> None:
        self._changes = Broadcast[ObjectRef]()

    def add(self, kind: ObjectKind, namespace: str, name: str) -> None:
        self._changes.send(ObjectRef(kind, namespace, name))

    def changes(self) -> Subscription[ObjectRef]:
        return self._changes.subscribe()


class PodObjects(Generic[T]):
    """The objects of one kind that registered pods refer to."""

    def __init__(self, *, store: ObjectStore[T], names_of: Callable[[Pod], frozenset[str]]) -> None:
        self._store = store
        self._names_of = names_of
        self._registered: dict[PodUID, tuple[str, frozenset[str]]] = {}

    def register(self, pod: Pod) -> None:
        """Register a pod, in every sync: only what is new or gone since the last time has an effect."""
        uid, namespace = uid_of(pod), pod.metadata.namespace
        names = self._names_of(pod)
        _, before = self._registered.get(uid, (namespace, frozenset()))
        self._registered[uid] = (namespace, names)
        for name in sorted(names - before):
            self._store.add_reference(namespace, name, uid)
        for name in sorted(before - names):
            self._store.drop_reference(namespace, name, uid)

    def unregister(self, uid: PodUID) -> None:
        namespace, names = self._registered.pop(uid, ("", frozenset()))
        for name in sorted(names):
            self._store.drop_reference(namespace, name, uid)

    async def get(self, namespace: str, name: str) -> T:
        return await self._store.get(namespace, name)


class ClusterObjects:
    """Config maps and secrets, for the parts that make environment variables and volumes of them."""

    def __init__(
        self, *, config_maps: ObjectStore[ConfigMap], secrets: ObjectStore[Secret], changed: ChangedObjects
    ) -> None:
        self._stores = (config_maps, secrets)
        self._config_maps = PodObjects(store=config_maps, names_of=pod_config_maps)
        self._secrets = PodObjects(store=secrets, names_of=pod_secrets)
        self._changed = changed

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for store in self._stores:
                group.create_task(store.run())

    def register(self, pod: Pod) -> None:
        """Register a pod, which is about to use the objects that it refers to."""
        self._config_maps.register(pod)
        self._secrets.register(pod)

    def unregister(self, uid: PodUID) -> None:
        """Unregister a pod that is terminated and whose volumes are gone."""
        self._config_maps.unregister(uid)
        self._secrets.unregister(uid)

    async def config_map(self, namespace: str, name: str) -> ConfigMap:
        return await self._config_maps.get(namespace, name)

    async def secret(self, namespace: str, name: str) -> Secret:
        return await self._secrets.get(namespace, name)

    def changes(self) -> Subscription[ObjectRef]:
        """Subscribe to objects that have changed since they were first seen."""
        return self._changed.changes()


def build_cluster_objects(
    strategy: str,
    *,
    settings: InformerSettings,
    client: ObjectClient,
    node: Callable[[], Node | None],
    sync_period: timedelta,
) -> ClusterObjects:
    """Choose the stores. `client` reads objects that are not watched; `node` is this node's own, as far as known."""
    changed = ChangedObjects()

    def make(struct: type[T], kind: ObjectKind) -> ObjectStore[T]:
        on_change = partial(changed.add, kind)
        match strategy:
            case ChangeDetectionStrategy.WATCH:
                return WatchedObjects(
                    kind=kind,
                    follow=partial(follow_one, struct, settings),
                    on_change=on_change,
                    idle_after=idle_time(sync_period),
                    clock=settings.clock,
                )
            case ChangeDetectionStrategy.CACHE:
                return ExpiringObjects(
                    struct=struct,
                    client=client,
                    ttl=lambda: ttl_of(node()),
                    on_change=on_change,
                    clock=settings.clock,
                )
            case ChangeDetectionStrategy.GET:
                return LiveObjects(struct=struct, client=client)
            case _:
                raise UnknownStrategy(strategy)

    return ClusterObjects(
        config_maps=make(ConfigMap, ObjectKind.CONFIG_MAP), secrets=make(Secret, ObjectKind.SECRET), changed=changed
    )


def follow_one(struct: type[T], settings: InformerSettings, namespace: str, name: str) -> Informer[T]:
    """Return an informer of a single object."""
    selector = str(FieldTerm("metadata.name", name))
    return Informer(struct=struct, scope=WatchScope(namespace, (("fieldSelector", selector),)), settings=settings)

"""Objects that are followed while pods refer to them (strategy `Watch`, upstream's watch-based manager).

There is one watch per object, since a node may only watch objects of its own pods, each by its name. A few begin at a
time, in the order of the pods: begun all at once, those of a full node would all be there when the last one is.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Final, Generic, Protocol

from msgspec import Struct, field

from klet.aio.broadcast import Subscription
from klet.aio.clock import Clock
from klet.aio.tasks import first_of
from klet.aio.turns import Turns
from klet.kube.informer import ObjectKey
from klet.model.objects import ObjectKind, ObjectMissing
from klet.model.pods import PodUID
from klet.objectcache.errors import NotRegistered, NotSynced
from klet.objectcache.store import Kept_co, T, version_of

SYNC_PATIENCE: Final = timedelta(seconds=1)
"""How long a reader waits for the first list, from the moment that the API server is asked for it."""
QUEUE_PATIENCE: Final = timedelta(seconds=10)
"""How long a reader waits for that moment. While nobody answers, each turn to begin takes as long as it may."""
AT_ONCE: Final = 8
"""Watches that begin at a time: enough for an API server far away, few enough for the first pods to come first."""
SWEEP: Final = timedelta(minutes=1)
IDLE_SYNCS: Final = 5
"""A watch of an object that was not read for so many sync periods is stopped."""


class Follower(Protocol[Kept_co]):
    """A copy of one object that follows the API server: kube's informer."""

    def get(self, name: str, namespace: str = "") -> Kept_co | None: ...

    @property
    def is_synced(self) -> bool: ...

    async def until_synced(self) -> None: ...

    def changes(self) -> Subscription[ObjectKey]: ...

    async def run(self) -> None: ...


class _Item(Struct, Generic[T]):
    follower: Follower[T]
    read_at: float
    pods: set[PodUID] = field(default_factory=set)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    """The API server is being asked for it."""
    task: asyncio.Task[None] | None = None
    version: str | None = None
    """The version that readers know of; None before the first list."""
    is_awaited: bool = False
    """A reader gave up waiting for the first list, and must be notified of it."""
    is_stopped: bool = False
    """It is not read; the next reader starts a new watch."""


class WatchedObjects(Generic[T]):
    """Objects of one kind, always as the API server has them."""

    def __init__(
        self,
        *,
        kind: ObjectKind,
        follow: Callable[[str, str], Follower[T]],
        on_change: Callable[[str, str], None],
        idle_after: timedelta,
        clock: Clock,
    ) -> None:
        self._kind = kind
        self._follow = follow
        self._on_change = on_change
        self._idle_after = idle_after.total_seconds()
        self._clock = clock
        self._items: dict[ObjectKey, _Item[T]] = {}
        self._turns = Turns(at_once=AT_ONCE, longest=SYNC_PATIENCE, clock=clock)
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Own the watches until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                for key, item in self._items.items():
                    self._start(key, item)
                while True:
                    await self._clock.sleep(SWEEP)
                    self._stop_idle()
            finally:
                self._group = None

    def add_reference(self, namespace: str, name: str, uid: PodUID) -> None:
        key = ObjectKey(namespace, name)
        item = self._items.get(key)
        if item is None:
            item = self._items[key] = _Item(self._follow(namespace, name), self._clock.monotonic())
            self._start(key, item)
        item.pods.add(uid)

    def drop_reference(self, namespace: str, name: str, uid: PodUID) -> None:
        key = ObjectKey(namespace, name)
        item = self._items.get(key)
        if item is None:
            return
        item.pods.discard(uid)
        if not item.pods:
            del self._items[key]
            _cancel(item)

    async def get(self, namespace: str, name: str) -> T:
        key = ObjectKey(namespace, name)
        item = self._items.get(key)
        if item is None:
            raise NotRegistered(namespace, name)
        item.read_at = self._clock.monotonic()
        if item.is_stopped:
            item.follower, item.asked, item.is_stopped = self._follow(namespace, name), asyncio.Event(), False
            self._start(key, item)
        follower = item.follower
        if not follower.is_synced:
            await first_of(follower.until_synced(), self._run_out_of_patience(item.asked))
        if not follower.is_synced:
            item.is_awaited = True
            raise NotSynced(self._kind)
        obj = follower.get(name, namespace)
        if obj is None:
            raise ObjectMissing(f'{self._kind} "{name}" not found')
        return obj

    def watched(self) -> frozenset[ObjectKey]:
        """Return the objects that a watch runs for."""
        return frozenset(key for key, item in self._items.items() if item.task is not None)

    def _start(self, key: ObjectKey, item: _Item[T]) -> None:
        """Start to follow an object; before `run`, which starts what it finds, do nothing."""
        if self._group is not None:
            name = f"watch {self._kind} {key.namespace}/{key.name}"
            item.task = self._group.create_task(self._watch(key, item), name=name)

    async def _run_out_of_patience(self, asked: asyncio.Event) -> None:
        await self._clock.wait(asked.wait(), at_most=QUEUE_PATIENCE)
        await self._clock.sleep(SYNC_PATIENCE)

    async def _watch(self, key: ObjectKey, item: _Item[T]) -> None:
        """Follow one object; one that cannot change any more is kept as it is and followed no longer."""
        with item.follower.changes() as changes, self._turns.queue() as turn:
            await turn.take()
            item.asked.set()
            async with asyncio.TaskGroup() as group:
                following = group.create_task(item.follower.run())
                await item.follower.until_synced()
                turn.give_back()
                while not self._note(key, item):
                    await changes.get()
                following.cancel()
        item.task = None

    def _note(self, key: ObjectKey, item: _Item[T]) -> bool:
        """Publish a change; the first list is none. Return True for an object that is immutable."""
        obj = item.follower.get(key.name, key.namespace)
        known, item.version = item.version, version_of(obj)
        if item.is_awaited or (known is not None and known != item.version):
            item.is_awaited = False
            self._on_change(key.namespace, key.name)
        return obj is not None and bool(obj.immutable)

    def _stop_idle(self) -> None:
        oldest = self._clock.monotonic() - self._idle_after
        for item in self._items.values():
            if item.task is not None and item.follower.is_synced and item.read_at < oldest:
                item.is_stopped = True
                _cancel(item)


def idle_time(sync_period: timedelta) -> timedelta:
    """Return how long an object goes unread before its watch is stopped."""
    return max(IDLE_SYNCS * sync_period, SWEEP)


def _cancel(item: _Item[T]) -> None:
    if item.task is not None:
        item.task.cancel()
        item.task = None

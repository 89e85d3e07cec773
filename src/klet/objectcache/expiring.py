"""Objects that are read again when they are old (strategy `Cache`, upstream's TTL-based manager)."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, Generic

from msgspec import Struct, field

from klet.aio.clock import Clock
from klet.api.node import Node
from klet.errors import KletError
from klet.model.objects import ObjectMissing
from klet.model.pods import PodUID
from klet.objectcache.errors import NotRegistered
from klet.objectcache.store import ObjectClient, T, read_live, version_of

DEFAULT_TTL: Final = timedelta(seconds=60)
TTL_ANNOTATION: Final = "node.alpha.kubernetes.io/ttl"
_FROM_CACHE: Final = "0"


class _Item(Struct, Generic[T]):
    pods: set[PodUID] = field(default_factory=set)
    obj: T | None = None
    missing: ObjectMissing | None = None
    read_at: datetime | None = None
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Readers that come during a read share its result."""

    def is_fresh(self, now: datetime, ttl: timedelta) -> bool:
        """Return whether the kept object is young enough. A missing object is read each time."""
        return self.obj is not None and self.read_at is not None and now - self.read_at < ttl


class ExpiringObjects(Generic[T]):
    """Objects of one kind, at most as old as the cluster's control plane finds right for a cluster of its size."""

    def __init__(
        self,
        *,
        struct: type[T],
        client: ObjectClient,
        ttl: Callable[[], timedelta],
        on_change: Callable[[str, str], None],
        clock: Clock,
    ) -> None:
        self._struct = struct
        self._client = client
        self._ttl = ttl
        self._on_change = on_change
        self._clock = clock
        self._items: dict[tuple[str, str], _Item[T]] = {}

    def add_reference(self, namespace: str, name: str, uid: PodUID) -> None:
        """Expire the object: a pod that begins to use it must not get an old version."""
        item = self._items.setdefault((namespace, name), _Item())
        item.pods.add(uid)
        item.obj = item.missing = item.read_at = None

    def drop_reference(self, namespace: str, name: str, uid: PodUID) -> None:
        item = self._items.get((namespace, name))
        if item is not None:
            item.pods.discard(uid)
            if not item.pods:
                del self._items[namespace, name]

    async def get(self, namespace: str, name: str) -> T:
        item = self._items.get((namespace, name))
        if item is None:
            raise NotRegistered(namespace, name)
        async with item.reading:
            if item.obj is None or not item.is_fresh(self._clock.now(), self._ttl()):
                await self._refresh(item, namespace, name)
            return _result(item)

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def _refresh(self, item: _Item[T], namespace: str, name: str) -> None:
        """Read it; on failure what was known stays."""
        known = item.obj
        try:
            found = await read_live(
                self._client, self._struct, namespace, name, version=_FROM_CACHE if known is not None else ""
            )
        except ObjectMissing as error:
            item.obj, item.missing, item.read_at = None, error, self._clock.now()
        except KletError:
            if known is None and item.missing is None:
                raise
        else:
            if known is None or not _is_older(found, known):
                item.obj, item.missing, item.read_at = found, None, self._clock.now()
        if known is not None and version_of(item.obj) != version_of(known):
            self._on_change(namespace, name)


def ttl_of(node: Node | None) -> timedelta:
    """Return how old objects may become on this node."""
    text = node.metadata.annotations.get(TTL_ANNOTATION, "") if node is not None else ""
    try:
        return timedelta(seconds=int(text))
    except (ValueError, OverflowError):
        return DEFAULT_TTL


def _result(item: _Item[T]) -> T:
    if item.obj is not None:
        return item.obj
    assert item.missing is not None  # a refresh that has neither raises
    raise item.missing


def _is_older(found: T, known: T) -> bool:
    """Return whether an answer is older than the kept one: a cache of the API server may lag behind."""
    new, old = version_of(found), version_of(known)
    return new.isdecimal() and old.isdecimal() and int(new) < int(old)

"""A copy of the objects of a kind that follows the API server: list, then watch (client-go's informer).

One informer is one watch, however many parts read it; a read never asks the server. The last known objects stay
readable while the server does not answer.
"""

import asyncio
import logging
import random
from collections.abc import Iterable, Iterator
from contextlib import aclosing
from datetime import timedelta
from enum import Enum, auto
from typing import Final, Generic, NamedTuple, TypeVar

from klet.aio.backoff import exponential_delays
from klet.aio.broadcast import Broadcast, Subscription
from klet.aio.clock import Clock
from klet.api.base import ApiObject
from klet.api.kinds import kind_of
from klet.api.meta import WatchEventType, metadata_of
from klet.errors import level_for
from klet.kube.authorizer_lag import AUTHORIZER_LAG
from klet.kube.client import KubeClient
from klet.kube.errors import ApiError, Expired, Forbidden, KubeError, TryLater, Unauthorized
from klet.kube.watch import Bookmark, Watcher, WatchScope

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=ApiObject)

FIRST_DELAY: Final = timedelta(milliseconds=800)
LONGEST_DELAY: Final = timedelta(seconds=30)
HEALTHY_AFTER: Final = timedelta(minutes=2)
"""A watch that held this long has ended in the ordinary way: the next one begins at once."""
STEADY_AFTER: Final = timedelta(seconds=5)
"""A watch that held this long had a server: delays that grew while there was none start from the first again."""


class RetryPace(Enum):
    """When to watch again."""

    AT_ONCE = auto()
    AFTER_FIRST_DELAY = auto()
    AFTER_NEXT_DELAY = auto()


def decide_pace(lasted: timedelta) -> RetryPace:
    """Return when to watch again after a watch that lasted so long."""
    if lasted >= HEALTHY_AFTER:
        return RetryPace.AT_ONCE
    return RetryPace.AFTER_FIRST_DELAY if lasted >= STEADY_AFTER else RetryPace.AFTER_NEXT_DELAY


class ObjectKey(NamedTuple):
    """Namespace and name of an object."""

    namespace: str
    name: str


class InformerSettings(NamedTuple):
    """What an informer needs besides its kind, the same for all of a client."""

    client: KubeClient
    watcher: Watcher
    clock: Clock
    randomness: random.Random


class Informer(Generic[T]):
    """The objects of one kind in one scope. Written by its own loop only."""

    def __init__(self, *, struct: type[T], scope: WatchScope, settings: InformerSettings) -> None:
        self._struct = struct
        self._scope = scope
        self._client = settings.client
        self._watcher = settings.watcher
        self._clock = settings.clock
        self._randomness = settings.randomness
        self._objects: dict[ObjectKey, T] = {}
        self._changes = Broadcast[ObjectKey]()
        self._synced = asyncio.Event()
        self._version = ""

    def get(self, name: str, namespace: str = "") -> T | None:
        return self._objects.get(ObjectKey(namespace, name))

    def all(self) -> tuple[T, ...]:
        return tuple(self._objects.values())

    @property
    def is_synced(self) -> bool:
        """Whether the first list is complete (client-go: HasSynced)."""
        return self._synced.is_set()

    async def until_synced(self) -> None:
        await self._synced.wait()

    def restore(self, objects: Iterable[T]) -> bool:
        """Serve kept objects until the first list is complete; return False if it is already."""
        if self._synced.is_set():
            return False
        self._replace({_key(obj): obj for obj in objects}, "")
        return True

    def changes(self) -> Subscription[ObjectKey]:
        """Subscribe to the keys of objects that are added, modified or deleted from now on."""
        return self._changes.subscribe()

    async def run(self) -> None:
        """List and watch until cancelled. A failure is logged, and retried after a growing delay."""
        delays = self._new_delays()
        early = iter(AUTHORIZER_LAG)
        was_expired = is_expired = False
        while True:
            began = self._clock.monotonic()
            is_away, was_expired, is_expired = False, is_expired, False
            try:
                await self._follow()
                logger.debug("Watch ended", extra={"resource": kind_of(self._struct).plural})
            except Expired as error:
                # 410 Gone: the server has compacted this version away. Without a version the next round lists again.
                is_expired = True
                self._version = ""
                logger.debug("Watch is too old", extra={"error": str(error)})
            except KubeError as error:
                if not self.is_synced and isinstance(error, Forbidden) and (soon := next(early, None)) is not None:
                    logger.debug("Not allowed yet", extra={"error": str(error)})
                    await self._pause(soon, is_away=False)
                    continue
                is_away = error.is_reported_elsewhere
                what = {"resource": kind_of(self._struct).plural, "namespace": self._scope.namespace}
                logger.log(level_for(error), "Not following the API server", extra={**what, "error": str(error)})
            # The version stays after every other error: the next watch resumes where this one ended, without a list.
            pace = decide_pace(timedelta(seconds=self._clock.monotonic() - began))
            if pace is not RetryPace.AFTER_NEXT_DELAY:
                delays = self._new_delays()
            if is_expired and not was_expired:
                # The server answers and only lacks the history, as after its restart: list soon. If the next watch
                # expires too, the ordinary delays apply, so that such a server is not asked all the time.
                await self._pause(FIRST_DELAY, is_away=False)
            elif pace is not RetryPace.AT_ONCE:
                await self._pause(next(delays), is_away=is_away)

    async def _pause(self, delay: timedelta, *, is_away: bool) -> None:
        """Wait for the delay or up to twice as long; less if another client of the server gets an answer meanwhile."""
        spread = 1 + self._randomness.random()
        first = min(delay, FIRST_DELAY)
        # Subscribed before the sleep: an answer that comes during it must not be missed.
        with self._client.reach.troubles() as troubles:
            await self._clock.sleep(first * spread)
            rest = (delay - first) * spread
            if rest:
                # A server that stops may end its watches in the ordinary way, so that this informer saw no error:
                # then the other clients must first fail, and then get an answer.
                back = _until_answered(troubles) if is_away else _until_back(troubles)
                await self._clock.wait(back, at_most=rest)

    def _new_delays(self) -> Iterator[timedelta]:
        return exponential_delays(first=FIRST_DELAY, longest=LONGEST_DELAY)

    async def _follow(self) -> None:
        if self._version or not await self._follow_with_list():
            if not self._version:
                await self._list()
            await self._watch()

    async def _follow_with_list(self) -> bool:
        """Watch with the initial events in the stream (WatchList); return False if the server cannot do that."""
        if not self._watcher.streams_lists:
            return False
        try:
            await self._watch()
        except (Expired, TryLater, Unauthorized, Forbidden):
            raise  # A plain list would get the same answer.
        except ApiError as error:
            if self._version:
                raise  # The initial events were complete, so the server can do it: this is some other error.
            # It refuses the parameter, or its storage is too old for it, which it calls an internal error.
            logger.debug("No streaming lists", extra={"error": str(error)})
            self._watcher.streams_lists = False
            return False
        return True

    async def _list(self) -> None:
        # Version 0 is served from the API server's watch cache, as client-go's first list is: no read of etcd per node.
        query = (*self._scope.selectors, ("resourceVersion", "0"))
        listed = await self._client.list(self._struct, self._scope.namespace, query=query)
        self._replace({_key(obj): obj for obj in listed.items}, listed.metadata.resource_version)

    async def _watch(self) -> None:
        # Initial events are collected apart and take effect together: readers never see half of a list, and what was
        # deleted while there was no watch is found by comparison.
        listing: dict[ObjectKey, T] | None = None if self._version else {}
        stream = self._watcher.watch(
            self._struct, self._scope, resource_version=self._version, with_list=listing is not None
        )
        async with aclosing(stream) as events:
            async for event in events:
                if isinstance(event, Bookmark):
                    if listing is not None and event.ends_list:
                        self._replace(listing, event.resource_version)
                        listing = None
                    elif listing is None:
                        self._version = event.resource_version
                elif listing is not None:
                    listing[_key(event.obj)] = event.obj
                else:
                    self._apply(event.type, event.obj)

    def _apply(self, change: WatchEventType, obj: T) -> None:
        key = _key(obj)
        self._version = metadata_of(obj).resource_version
        if change is WatchEventType.DELETED:
            self._objects.pop(key, None)
        else:
            self._objects[key] = obj
        self._changes.send(key)

    def _replace(self, objects: dict[ObjectKey, T], version: str) -> None:
        """Replace all objects at once, and publish the keys of those that differ from before."""
        before, self._objects, self._version = self._objects, objects, version
        self._synced.set()
        for key in before.keys() | objects.keys():
            old, new = before.get(key), objects.get(key)
            if old is None or new is None or metadata_of(old).resource_version != metadata_of(new).resource_version:
                self._changes.send(key)


async def _until_answered(troubles: Subscription[str]) -> None:
    while await troubles.next_item():
        pass


async def _until_back(troubles: Subscription[str]) -> None:
    """Wait for a failure of any client, and then for an answer."""
    while not await troubles.next_item():
        pass
    await _until_answered(troubles)


def _key(obj: ApiObject) -> ObjectKey:
    metadata = metadata_of(obj)
    return ObjectKey(metadata.namespace, metadata.name)

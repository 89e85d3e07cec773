"""A copy of the objects of a kind that follows the API server: list, then watch, for ever (client-go's informer).

One informer is one watch, however many read it; a read never asks the server. What was there stays readable while the
server is away.
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
from klet.api.meta import metadata_of
from klet.errors import level_for
from klet.kube.client import KubeClient
from klet.kube.errors import ApiError, Expired, Forbidden, KubeError, TryLater, Unauthorized
from klet.kube.watch import Bookmark, ChangeType, Scope, Watcher

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=ApiObject)

FIRST_DELAY: Final = timedelta(milliseconds=800)
LONGEST_DELAY: Final = timedelta(seconds=30)
HEALTHY_AFTER: Final = timedelta(minutes=2)
"""A watch that held this long has ended in the ordinary way: the next one begins at once."""
STEADY_AFTER: Final = timedelta(seconds=5)
"""A watch that held this long had a server: delays that grew while there was none begin anew."""


class Pace(Enum):
    """When to follow again."""

    AT_ONCE = auto()
    AFTER_FIRST_DELAY = auto()
    AFTER_NEXT_DELAY = auto()


def decide_pace(lasted: timedelta) -> Pace:
    """When to follow again after having followed for so long."""
    if lasted >= HEALTHY_AFTER:
        return Pace.AT_ONCE
    return Pace.AFTER_FIRST_DELAY if lasted >= STEADY_AFTER else Pace.AFTER_NEXT_DELAY


class ObjectKey(NamedTuple):
    """Where an object is."""

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

    def __init__(self, *, struct: type[T], scope: Scope, settings: InformerSettings) -> None:
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
        self._streams_lists = True

    def get(self, name: str, namespace: str = "") -> T | None:
        return self._objects.get(ObjectKey(namespace, name))

    def all(self) -> tuple[T, ...]:
        return tuple(self._objects.values())

    @property
    def is_synced(self) -> bool:
        """Whether everything there was has been seen once."""
        return self._synced.is_set()

    async def until_synced(self) -> None:
        await self._synced.wait()

    def restore(self, objects: Iterable[T]) -> bool:
        """Go by what was known earlier until the server has shown everything; False if it has done so already."""
        if self._synced.is_set():
            return False
        self._replace({_key(obj): obj for obj in objects}, "")
        return True

    def changes(self) -> Subscription[ObjectKey]:
        """Keys of objects that came, changed or went, from now on."""
        return self._changes.subscribe()

    async def run(self) -> None:
        """Follow until cancelled. A failure is logged, and tried again after a growing delay."""
        delays = self._new_delays()
        was_expired = is_expired = False
        while True:
            began = self._clock.monotonic()
            is_away, was_expired, is_expired = False, is_expired, False
            try:
                await self._follow()
                logger.debug("Watch ended", extra={"resource": kind_of(self._struct).plural})
            except Expired as error:
                is_expired = True
                self._version = ""
                logger.debug("Watch is too old", extra={"error": str(error)})
            except KubeError as error:
                is_away = error.is_told
                what = {"resource": kind_of(self._struct).plural, "namespace": self._scope.namespace}
                logger.log(level_for(error), "Not following the API server", extra={**what, "error": str(error)})
            pace = decide_pace(timedelta(seconds=self._clock.monotonic() - began))
            if pace is not Pace.AFTER_NEXT_DELAY:
                delays = self._new_delays()
            if is_expired and not was_expired:
                # The server is there, and has only forgotten what was before it started: a list will do.
                await self._pause(FIRST_DELAY, is_away=False)
            elif pace is not Pace.AT_ONCE:
                await self._pause(next(delays), is_away=is_away)

    async def _pause(self, delay: timedelta, *, is_away: bool) -> None:
        """Wait for so long, or up to twice as long. Who waits for a server learns from others that it is back."""
        spread = 1 + self._randomness.random()
        first = min(delay, FIRST_DELAY)
        with self._client.reach.troubles() as troubles:
            await self._clock.sleep(first * spread)
            rest = (delay - first) * spread
            if rest:
                # A watch of a server that dies may end as if it were over: others learn that the server was away.
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
        """One watch that begins with everything there is; False where the server has no such thing."""
        if not self._streams_lists:
            return False
        try:
            await self._watch()
        except (Expired, TryLater, Unauthorized, Forbidden):
            raise
        except ApiError as error:
            if self._version:
                raise
            # It refuses the parameter, or its storage is too old for it, which it calls an internal error.
            logger.debug("No streaming lists", extra={"error": str(error)})
            self._streams_lists = False
            return False
        return True

    async def _list(self) -> None:
        query = (*self._scope.selectors, ("resourceVersion", "0"))
        listed = await self._client.list(self._struct, self._scope.namespace, query=query)
        self._replace({_key(obj): obj for obj in listed.items}, listed.metadata.resource_version)

    async def _watch(self) -> None:
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

    def _apply(self, change: ChangeType, obj: T) -> None:
        key = _key(obj)
        self._version = metadata_of(obj).resource_version
        if change is ChangeType.DELETED:
            self._objects.pop(key, None)
        else:
            self._objects[key] = obj
        self._changes.send(key)

    def _replace(self, objects: dict[ObjectKey, T], version: str) -> None:
        """Everything at once: what is new, what changed while nobody watched, and what went."""
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
    """Wait until nobody was there to answer, and then somebody was."""
    while not await troubles.next_item():
        pass
    await _until_answered(troubles)


def _key(obj: ApiObject) -> ObjectKey:
    metadata = metadata_of(obj)
    return ObjectKey(metadata.namespace, metadata.name)

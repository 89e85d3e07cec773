"""One watch: a stream of changes to the objects of a kind, from a resource version on."""

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import timedelta
from typing import Final, Generic, TypeVar

from msgspec import Struct

from klet.api.base import ApiObject
from klet.api.codec import DecodeError, decode
from klet.api.kinds import kind_of
from klet.api.meta import ObjectMeta, Status, WatchEvent, WatchEventType
from klet.kube.client import refusal
from klet.kube.errors import KubeError, Unreachable, api_error
from klet.kube.transport import HttpRequest, Transport

T = TypeVar("T", bound=ApiObject)

SILENCE: Final = timedelta(minutes=1)
"""A watch may rightly be silent for hours: an API server sends no bookmark for a kind in which nothing happens. After
so long without any answer the server is asked for its version; only if that gets no answer is the watch broken."""
FIRST_ANSWER: Final = timedelta(minutes=3)
"""How long the server may take until the stream begins, even if it has nothing to send yet."""
PROBE_TIMEOUT: Final = timedelta(seconds=10)
SHORTEST_LIFE: Final = 300
LONGEST_LIFE: Final = 600
"""Seconds after which the API server is asked to end a watch: a random number between them."""
OVERTIME: Final = timedelta(seconds=30)
"""A watch that the server has not ended so long after its time is broken, as if a proxy had lost the server."""
WATCH_LAG: Final = timedelta(minutes=1)
"""A watch that shows less than the answer to our own write for longer than that is no longer late: the API
server may have been restored from a backup."""
_INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
_ERROR: Final = "ERROR"


class ObjectChange(Struct, Generic[T], frozen=True):
    """An object was added, modified or deleted."""

    type: WatchEventType
    obj: T


class Bookmark(Struct, frozen=True):
    """The server has sent everything up to this version."""

    resource_version: str
    ends_list: bool
    """Whether the initial events of the watch are complete with it."""


class WatchScope(Struct, frozen=True):
    """Which objects: a namespace, and selectors as query parameters."""

    namespace: str = ""
    selectors: Sequence[tuple[str, str]] = ()


class _Marked(ApiObject, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()


class WatchPatience(Struct, frozen=True, kw_only=True):
    """How long to wait for what, on one watch."""

    first_answer: timedelta = FIRST_ANSWER
    silence: timedelta = SILENCE
    probe_timeout: timedelta = PROBE_TIMEOUT
    shortest_life: int = SHORTEST_LIFE
    longest_life: int = LONGEST_LIFE
    overtime: timedelta = OVERTIME


class Watcher:
    """Opens watches on one API server. As upstream's they do not count as requests that `kubeAPIQPS` limits."""

    def __init__(
        self,
        *,
        transport: Transport,
        randomness: random.Random,
        patience: WatchPatience | None = None,
    ) -> None:
        self._transport = transport
        self._randomness = randomness
        self._patience = patience or WatchPatience()
        self._probing = asyncio.Lock()
        """One probe for all watches that are silent."""
        self.streams_lists = True
        """False once the server has refused a list in a stream: each of hundreds of informers need not ask again."""

    async def watch(
        self, struct: type[T], scope: WatchScope, *, resource_version: str = "", with_list: bool = False
    ) -> AsyncGenerator[ObjectChange[T] | Bookmark, None]:
        """Yield the changes after a version; with `with_list` first all objects. Ends when the server closes it.

        Raises Expired for a version that the server no longer knows, Unreachable when the stream breaks.
        """
        # Spread, so that the watches of a cluster do not all come back at one time.
        life = self._randomness.randint(self._patience.shortest_life, self._patience.longest_life)
        query = [
            *scope.selectors,
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", str(life)),
        ]
        if resource_version:
            query.append(("resourceVersion", resource_version))
        if with_list:
            # Upstream's WatchList, which requires NotOlderThan. Without a version the initial events are as new as the
            # request at least.
            query += [("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan")]
        request = HttpRequest("GET", kind_of(struct).path(scope.namespace), query)
        ends_at = asyncio.get_running_loop().time() + life + self._patience.overtime.total_seconds()

        async def check() -> None:
            await self._check(request, ends_at)

        async with self._transport.stream(request, silence=self._patience.first_answer) as stream:
            if stream.code >= 400:
                raise refusal(await stream.answer())
            async with aclosing(stream.lines(silence=self._patience.silence, when_silent=check)) as lines:
                async for line in lines:
                    if line:
                        yield _event(struct, line)

    async def _check(self, request: HttpRequest, ends_at: float) -> None:
        """Raise Unreachable if a silent watch is broken. A dead peer is noticed by TCP keep-alive (`transport.py`)."""
        loop = asyncio.get_running_loop()
        if loop.time() > ends_at:
            raise Unreachable(f'GET "{request.path}": the watch is silent, and was not ended in time')
        async with self._probing:
            if loop.time() - self._transport.answered_at >= self._patience.silence.total_seconds():
                # Any answer will do, also a refusal.
                await self._transport.send(HttpRequest("GET", "/version"), timeout=self._patience.probe_timeout)


def _event(struct: type[T], line: bytes) -> ObjectChange[T] | Bookmark:
    try:
        event = decode(WatchEvent, line)
        # An error after the headers comes as an event, with code 200 on the stream: 410 Gone above all.
        if event.type == _ERROR:
            raise api_error(decode(Status, bytes(event.object)))
        if event.type == "BOOKMARK":
            metadata = decode(_Marked, bytes(event.object)).metadata
            return Bookmark(metadata.resource_version, metadata.annotations.get(_INITIAL_EVENTS_END) == "true")
        return ObjectChange(WatchEventType(event.type), decode(struct, bytes(event.object)))
    except (DecodeError, ValueError) as error:
        # Skipping the event would lose a change for good. The error ends the watch, and it is retried.
        raise KubeError(f"watch of {kind_of(struct).plural}: an event cannot be read: {error}") from error

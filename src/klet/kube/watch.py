"""One watch: a stream of changes to the objects of a kind, from a resource version on."""

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
from klet.kube.errors import KubeError, api_error
from klet.kube.throttle import Throttle
from klet.kube.transport import HttpRequest, Transport

T = TypeVar("T", bound=ApiObject)

SILENCE: Final = timedelta(minutes=3)
"""An API server sends a bookmark about each minute: a stream without any line for longer than this is broken."""
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


class Watcher:
    """Opens watches on one API server."""

    def __init__(
        self, *, transport: Transport, throttle: Throttle, randomness: random.Random, silence: timedelta = SILENCE
    ) -> None:
        self._transport = transport
        self._throttle = throttle
        self._randomness = randomness
        self._silence = silence

    async def watch(
        self, struct: type[T], scope: WatchScope, *, resource_version: str = "", with_list: bool = False
    ) -> AsyncGenerator[ObjectChange[T] | Bookmark, None]:
        """Yield the changes after a version; with `with_list` first all objects. Ends when the server closes it.

        Raises Expired for a version that the server no longer knows, Unreachable when the stream breaks.
        """
        query = [
            *scope.selectors,
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            # Spread, so that the watches of a cluster do not all come back at one time.
            ("timeoutSeconds", str(self._randomness.randint(300, 600))),
        ]
        if resource_version:
            query.append(("resourceVersion", resource_version))
        if with_list:
            # Upstream's WatchList, which requires NotOlderThan. Without a version the initial events are as new as the
            # request at least.
            query += [("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan")]
        await self._throttle.wait()
        request = HttpRequest("GET", kind_of(struct).path(scope.namespace), query)
        # The silence ends a stream whose connection died without a FIN: TCP alone would wait for many minutes.
        async with self._transport.stream(request, silence=self._silence) as stream:
            if stream.code >= 400:
                raise refusal(await stream.answer())
            async with aclosing(stream.lines(silence=self._silence)) as lines:
                async for line in lines:
                    if line:
                        yield _event(struct, line)


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

"""One watch: a stream of changes to the objects of a kind, from a resource version on."""

import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import timedelta
from enum import StrEnum
from typing import Final, Generic, TypeVar

from msgspec import Struct

from klet.api.base import ApiObject
from klet.api.codec import DecodeError, decode
from klet.api.kinds import kind_of
from klet.api.meta import ObjectMeta, Status, WatchEvent
from klet.kube.client import refusal
from klet.kube.errors import KubeError, api_error
from klet.kube.throttle import Throttle
from klet.kube.transport import Request, Transport

T = TypeVar("T", bound=ApiObject)

SILENCE: Final = timedelta(minutes=3)
"""A server that sends bookmarks says something each minute or so: a stream quieter than this is dead."""
WATCH_LAG: Final = timedelta(minutes=1)
"""A watch that shows less than the answer to our own write for longer than that is no longer late: who runs the API
server may have put an older state of it back."""
_INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
_ERROR: Final = "ERROR"


class ChangeType(StrEnum):
    """What happened to an object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class Change(Struct, Generic[T], frozen=True):
    """An object came, changed or went."""

    type: ChangeType
    obj: T


class Bookmark(Struct, frozen=True):
    """Nothing older than this version will come any more."""

    resource_version: str
    ends_list: bool
    """Everything that was there when the watch began has been sent."""


class Scope(Struct, frozen=True):
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
        self, struct: type[T], scope: Scope, *, resource_version: str = "", with_list: bool = False
    ) -> AsyncGenerator[Change[T] | Bookmark, None]:
        """Changes after a version; with `with_list` first everything there is. Ends when the server closes it.

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
            query += [("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan")]
        await self._throttle.wait()
        request = Request("GET", kind_of(struct).path(scope.namespace), query)
        async with self._transport.stream(request, silence=self._silence) as stream:
            if stream.code >= 400:
                raise refusal(await stream.answer())
            async with aclosing(stream.lines(silence=self._silence)) as lines:
                async for line in lines:
                    if line:
                        yield _event(struct, line)


def _event(struct: type[T], line: bytes) -> Change[T] | Bookmark:
    try:
        event = decode(WatchEvent, line)
        if event.type == _ERROR:
            raise api_error(decode(Status, bytes(event.object)))
        if event.type == "BOOKMARK":
            metadata = decode(_Marked, bytes(event.object)).metadata
            return Bookmark(metadata.resource_version, metadata.annotations.get(_INITIAL_EVENTS_END) == "true")
        return Change(ChangeType(event.type), decode(struct, bytes(event.object)))
    except (DecodeError, ValueError) as error:
        raise KubeError(f"watch of {kind_of(struct).plural}: an event cannot be read: {error}") from error

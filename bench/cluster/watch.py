"""What a client of the API server sees of pods and nodes, dated when the client has it."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta

import msgspec

from klet.kube.transport import HttpRequest, Stream, Transport

PATIENCE = 180.0
SILENCE = timedelta(minutes=20)


class Metadata(msgspec.Struct, frozen=True):
    name: str = ""
    uid: str = ""


class Condition(msgspec.Struct, frozen=True):
    type: str
    status: str


class ContainerSeen(msgspec.Struct, frozen=True, rename="camel"):
    restart_count: int = 0
    container_id: str = msgspec.field(name="containerID", default="")


class StatusSeen(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerSeen, ...] = ()


class ObjectSeen(msgspec.Struct, frozen=True):
    metadata: Metadata = Metadata()
    status: StatusSeen = StatusSeen()


class Event(msgspec.Struct, frozen=True):
    type: str
    object: ObjectSeen


class Seen(msgspec.Struct, frozen=True):
    """One object at one instant."""

    at: float
    """Seconds since 1970."""
    uid: str
    status: StatusSeen
    is_gone: bool

    @property
    def lives(self) -> tuple[ContainerSeen, ...]:
        """What differs once a container was restarted."""
        return self.status.container_statuses

    @property
    def is_ready(self) -> bool:
        return any(each.type == "Ready" and each.status == "True" for each in self.status.conditions)


def is_running(seen: Seen) -> bool:
    return seen.status.phase == "Running"


def is_ready(seen: Seen) -> bool:
    return seen.is_ready


def has_succeeded(seen: Seen) -> bool:
    return seen.status.phase == "Succeeded"


def is_gone(seen: Seen) -> bool:
    return seen.is_gone


class Watch:
    """One watch. It keeps all events, by the objects' names."""

    def __init__(self) -> None:
        self.history: dict[str, list[Seen]] = {}
        self._changed = asyncio.Event()
        self._decoder = msgspec.json.Decoder(Event)

    async def follow(self, stream: Stream) -> None:
        async for line in stream.lines(silence=SILENCE):
            now = time.time()
            try:
                event = self._decoder.decode(line)
            except msgspec.ValidationError as error:
                raise RuntimeError(f"received something else than an event: {line.decode()}") from error
            found = Seen(
                at=now,
                uid=event.object.metadata.uid,
                status=event.object.status,
                is_gone=event.type == "DELETED",
            )
            self.history.setdefault(event.object.metadata.name, []).append(found)
            self._changed.set()
        raise RuntimeError("the API server has ended the watch")

    async def until(
        self, names: Iterable[str], holds: Callable[[Seen], bool], *, since: float = 0.0, patience: float = PATIENCE
    ) -> dict[str, float]:
        """When each was first seen to be so, not before an instant."""
        missing = set(names)
        found: dict[str, float] = {}
        try:
            async with asyncio.timeout(patience):
                while True:
                    self._changed.clear()
                    for name in tuple(missing):
                        if first := self.first(name, holds, since=since):
                            found[name] = first.at
                            missing.discard(name)
                    if not missing:
                        return found
                    await self._changed.wait()
        except TimeoutError:
            shown = {name: self.history.get(name, [])[-1:] for name in sorted(missing)[:3]}
            raise TimeoutError(f"{len(missing)} were never seen to be so ({holds.__name__}): {shown}") from None

    def first(self, name: str, holds: Callable[[Seen], bool], *, since: float = 0.0) -> Seen | None:
        return next((seen for seen in self.history.get(name, ()) if seen.at >= since and holds(seen)), None)

    def left(self) -> list[str]:
        """The names of all that is not gone."""
        return [name for name, events in self.history.items() if not events[-1].is_gone]

    def last(self, name: str) -> Seen:
        return self.history[name][-1]

    def since(self, name: str, instant: float) -> list[Seen]:
        """What held at an instant, and all that was seen of it later."""
        events = self.history[name]
        return [*[seen for seen in events if seen.at < instant][-1:], *[seen for seen in events if seen.at >= instant]]


@asynccontextmanager
async def open_watch(transport: Transport, resource: str) -> AsyncIterator[Watch]:
    """All objects of a resource from now on, those that are there first."""
    watch = Watch()
    # Version 0: from what the server has at hand. An old etcd lets it wait in vain for news of a resource at rest.
    query = (("watch", "true"), ("resourceVersion", "0"))
    async with (
        transport.stream(HttpRequest("GET", f"/api/v1/{resource}", query), silence=SILENCE) as stream,
        asyncio.TaskGroup() as group,
    ):
        task = group.create_task(watch.follow(stream))
        try:
            yield watch
        finally:
            task.cancel()

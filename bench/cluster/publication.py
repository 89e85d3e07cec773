"""How soon a client sees the first status of pods that start, and their Events; and what CPU the agent takes for it.

A status counts from the client's own request for the pod, an Event from the moment the container was created or started
as containerd dates it.
"""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec

from bench.cluster.node import NodeUnderTest
from bench.cluster.turns import Ground
from bench.cluster.watch import PATIENCE, SILENCE, Seen, is_running
from bench.manifests import make_manifest
from bench.rows import Row
from klet.cri.client import CriClient
from klet.kube.transport import HttpRequest, Stream, Transport
from klet.wire import cri_v1_pb2 as cri

MOST = {10: 1.0, 100: 5.0}
"""Seconds to the first status and to an Event, for 95 of 100 pods, by the number of pods that start."""
WORST = 95
CPU_RATIO = {100: 2 / 4.4}
CREATED = "Created"
STARTED = "Started"
REST = 5.0
"""Seconds after the last start: what the agent does late for it is counted too."""


class _Involved(msgspec.Struct, frozen=True):
    name: str = ""


class _EventObject(msgspec.Struct, frozen=True, rename="camel"):
    involved_object: _Involved = _Involved()
    reason: str = ""


class _WatchedEvent(msgspec.Struct, frozen=True):
    object: _EventObject


@dataclass(frozen=True, slots=True)
class Published:
    """What one start of many pods has shown."""

    statuses: tuple[float, ...]
    events: tuple[float, ...]
    cpu: float


class EventWatch:
    """When a client has seen each Event first, by pod and reason."""

    def __init__(self) -> None:
        self.seen: dict[tuple[str, str], float] = {}
        self._changed = asyncio.Event()

    async def follow(self, stream: Stream) -> None:
        decoder = msgspec.json.Decoder(_WatchedEvent)
        async for line in stream.lines(silence=SILENCE):
            event = decoder.decode(line).object
            self.seen.setdefault((event.involved_object.name, event.reason), time.time())
            self._changed.set()
        raise RuntimeError("the API server has ended the watch of Events")

    async def until(self, wanted: Sequence[tuple[str, str]]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not all(each in self.seen for each in wanted):
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def open_event_watch(transport: Transport) -> AsyncIterator[EventWatch]:
    watch = EventWatch()
    query = (("watch", "true"), ("resourceVersion", "0"))
    async with (
        transport.stream(HttpRequest("GET", "/api/v1/events", query), silence=SILENCE) as stream,
        asyncio.TaskGroup() as group,
    ):
        task = group.create_task(watch.follow(stream))
        try:
            yield watch
        finally:
            task.cancel()


async def measure_publication(ground: Ground, count: int) -> list[Row]:
    async def publish(node: NodeUnderTest, _number: int) -> Published:
        # The name of the node is in the pods' names: Events outlive the pods of the round before.
        names = [f"{node.name}-news-{pod}" for pod in range(count)]
        before = node.process.cpu_seconds()
        async with open_event_watch(ground.cluster.transport) as events:
            began = await node.create([make_manifest(name) for name in names])
            shown = await node.pods.until(names, _has_containers)
            await node.pods.until(names, is_running)
            await events.until([(name, reason) for name in names for reason in (CREATED, STARTED)])
            await asyncio.sleep(REST)
        happened = await _find_instants(ground.client)
        return Published(
            statuses=tuple(shown[name] - at for name, at in zip(names, began, strict=True)),
            events=tuple(events.seen[key] - happened[key] for key in happened if key[0] in set(names)),
            cpu=node.process.cpu_seconds() - before,
        )

    turns = await ground.take_turns(publish)
    rows: list[Row] = []
    for what, pick in (("first status", _statuses), ("Events", _events)):
        rows += [
            Row(
                what=f"{count} pods: {what} at a client, p{share}",
                klet=_percentile(turns.klet, pick, share),
                upstream=_percentile(turns.upstream, pick, share),
                unit="s",
                most=MOST[count] if share == WORST else None,
            )
            for share in (50, WORST)
        ]
    cpu = Row(
        what=f"{count} pods: CPU of the agent",
        klet=statistics.median(each.cpu for each in turns.klet),
        upstream=statistics.median(each.cpu for each in turns.upstream),
        unit="s",
        most_ratio=CPU_RATIO.get(count),
    )
    return [*rows, cpu]


def _statuses(published: Published) -> tuple[float, ...]:
    return published.statuses


def _events(published: Published) -> tuple[float, ...]:
    return published.events


def _percentile(rounds: Sequence[Published], pick: Callable[[Published], tuple[float, ...]], share: int) -> float:
    """Return the median of the rounds."""
    return statistics.median(statistics.quantiles(pick(each), n=100, method="inclusive")[share - 1] for each in rounds)


def _has_containers(seen: Seen) -> bool:
    """Return whether the kubelet has written a status: before, the API server says Pending alone."""
    return bool(seen.status.container_statuses)


async def _find_instants(client: CriClient) -> dict[tuple[str, str], float]:
    """Return when each container was created and started, by its pod's name and the reason of the Event."""
    found = {}
    for container in (await client.list_containers(cri.ListContainersRequest())).containers:
        answer = await client.container_status(cri.ContainerStatusRequest(container_id=container.id))
        pod = container.labels["io.kubernetes.pod.name"]
        found[pod, CREATED] = answer.status.created_at / 1e9
        found[pod, STARTED] = answer.status.started_at / 1e9
    return found

"""Publishes Kubernetes Events (event recorder): every cause record whose reason is an Event becomes one.

Recording never waits. An Event is published as soon as those before it are; the client limits the rate, as upstream's
does (eventRecordQPS). What cannot be written is tried again for a while; what comes too fast is dropped.
"""

import asyncio
import logging
import random
from collections import deque
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from klet.aio.clock import Clock
from klet.api.event import Event, EventSource
from klet.api.meta import ObjectMeta
from klet.api.pod import Pod
from klet.api.references import ObjectReference
from klet.api.times import Time
from klet.errors import KletError
from klet.events.correlator import LONGEST_MESSAGE, Correlator, Count, Discard, Post
from klet.model.causes import CauseId, CauseRecorder, Finding, FindingSubject
from klet.model.foreign_text import shorten
from klet.model.pods import PodUID
from klet.model.roles import EventApi, PodsByUid

logger = logging.getLogger(__name__)

QUEUE: Final = 1000
TRIES: Final = 12
PAUSE: Final = timedelta(seconds=10)
COMPONENT: Final = "kubelet"


class EventsUnreachable(KletError):
    """No answer; the request is retried."""


class EventRefused(KletError):
    """The API server refuses this Event."""


class EventGone(EventRefused):
    """The Event to update does not exist any more, or the namespace of a new one."""


class EventUnneeded(EventRefused):
    """The Event is there already, or its namespace is being deleted."""


class EventingRecorder:
    """Records causes, and queues those that are Events for the writer."""

    def __init__(self, *, inner: CauseRecorder, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock
        self._queue: deque[tuple[Finding, Time]] = deque()
        self._arrived = asyncio.Event()
        self._dropped = 0

    def record(self, finding: Finding, *, parent: CauseId | None = None) -> CauseId:
        cause = self._inner.record(finding, parent=parent)
        if finding.decision.event_type is not None:
            if len(self._queue) == QUEUE:
                # The oldest is dropped: when the API server is back, users need what happened last.
                oldest, _ = self._queue.popleft()
                logger.debug("Event dropped: too many wait", extra={"reason": str(oldest.decision)})
                self._dropped += 1
            if len(finding.message) > LONGEST_MESSAGE // 4:
                finding = replace(finding, message=shorten(finding.message, LONGEST_MESSAGE))
            self._queue.append((finding, Time.of(self._clock.now())))
            self._arrived.set()
        return cause

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def take_dropped(self) -> int:
        """Return how many were dropped since the last call."""
        dropped, self._dropped = self._dropped, 0
        return dropped

    async def next(self) -> tuple[Finding, Time]:
        """Return the oldest that was not published yet, and when it was recorded."""
        while not self._queue:
            self._arrived.clear()
            await self._arrived.wait()
        return self._queue.popleft()


class EventWriter:
    """Writes Events in the order in which things happened."""

    name = "events"

    def __init__(
        self,
        *,
        findings: EventingRecorder,
        pods: PodsByUid,
        api: EventApi,
        node_name: str,
        clock: Clock,
        randomness: random.Random,
    ) -> None:
        self._findings = findings
        self._pods = pods
        self._api = api
        self._node_name = node_name
        self._clock = clock
        self._randomness = randomness
        self._correlator = Correlator()
        self._given_up = 0
        self._begun: Post | Count | None = None
        """What is being written; it stays if the writer is cancelled meanwhile."""

    @property
    def waiting(self) -> int:
        return self._findings.waiting + (self._begun is not None)

    async def run(self) -> None:
        while True:
            await self._decide_next()
            await self._write_with_retries()

    async def drain(self) -> None:
        """Write what waits, when the agent stops and `run` has ended; without an answer the rest stays."""
        try:
            while self.waiting:
                if self._begun is None:
                    await self._decide_next()
                await self._write()
        except EventsUnreachable as error:
            logger.debug("Events not written before the end", extra={"error": str(error)})

    async def _decide_next(self) -> None:
        finding, at = await self._findings.next()
        event = self._make(finding, at)
        decision = self._correlator.decide(event, now=self._clock.now())
        if isinstance(decision, Discard):
            logger.debug("Event dropped: too many of its kind", extra={"reason": event.reason})
        else:
            self._begun = decision

    async def _write_with_retries(self) -> None:
        for turn in range(TRIES):
            try:
                await self._write()
                return
            except EventsUnreachable as error:
                logger.debug("Event not written yet", extra={"error": str(error)})
                await self._clock.sleep(PAUSE if turn else PAUSE * self._randomness.random())
        logger.debug("Event given up")
        self._begun = None
        self._given_up += 1

    async def _write(self) -> None:
        """Write what was begun; raises EventsUnreachable, and then it may be tried again."""
        begun = self._begun
        if begun is None:
            return
        try:
            if isinstance(begun, Count):
                await self._count(begun.event)
            else:
                await self._api.create(begun.event)
            self._log_losses()
        except (EventGone, EventUnneeded) as error:
            # Common for pods whose namespace is being deleted; and a request whose answer was lost had succeeded.
            logger.debug("Event not needed any more", extra={"reason": begun.event.reason, "error": str(error)})
        except EventRefused as error:
            logger.warning("Event refused", extra={"reason": begun.event.reason, "error": str(error)})
        self._begun = None

    async def _count(self, event: Event) -> None:
        try:
            await self._api.patch_count(event)
        except EventGone:
            # Events are kept for an hour or so: this one begins again.
            await self._api.create(event)

    def _log_losses(self) -> None:
        """Log dropped Events once, when Events can be written again."""
        lost, self._given_up = self._given_up + self._findings.take_dropped(), 0
        if lost:
            logger.warning("Events were not published: the API server took none", extra={"count": lost})

    def _make(self, finding: Finding, at: Time) -> Event:
        involved = finding.event_on or self._reference(finding.subject)
        kind = finding.decision.event_type
        assert kind is not None
        nanoseconds = int(self._clock.now().timestamp() * 1_000_000_000) + self._randomness.randrange(1000)
        return Event(
            metadata=ObjectMeta(name=f"{involved.name}.{nanoseconds:x}", namespace=involved.namespace or "default"),
            involved_object=involved,
            reason=str(finding.decision),
            message=finding.message,
            source=EventSource(component=COMPONENT, host=self._node_name),
            first_timestamp=at,
            last_timestamp=at,
            count=1,
            type=kind,
            reporting_component=COMPONENT,
            reporting_instance=self._node_name,
        )

    def _reference(self, subject: FindingSubject) -> ObjectReference:
        if not subject.name:
            return ObjectReference(api_version="v1", kind="Node", name=self._node_name)
        pod = self._pods.get(subject.uid) if isinstance(subject.uid, PodUID) else None
        return ObjectReference(
            api_version="v1",
            kind="Pod",
            namespace=subject.namespace,
            name=subject.name,
            uid=subject.uid,
            resource_version="" if pod is None else pod.metadata.resource_version,
            field_path=container_path(pod, subject.container) if subject.container else "",
        )


def container_path(pod: Pod | None, name: str) -> str:
    """Return where in its pod a container is, as Events write it."""
    if pod is not None:
        if any(each.name == name for each in pod.spec.init_containers):
            return f"spec.initContainers{{{name}}}"
        if any(each.name == name for each in pod.spec.ephemeral_containers):
            return f"spec.ephemeralContainers{{{name}}}"
    return f"spec.containers{{{name}}}"

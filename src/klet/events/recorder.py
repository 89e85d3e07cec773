"""Publishes Kubernetes Events (event recorder): every cause record whose reason is an Event becomes one.

Recording never waits. What cannot be written is tried again for a while; what comes too fast is dropped.
"""

import asyncio
import logging
import random
from collections import deque
from datetime import timedelta
from typing import Final, Protocol

from msgspec.structs import replace

from klet.aio.clock import Clock
from klet.aio.tasks import first_of
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
from klet.model.reasons import EventType
from klet.model.roles import EventApi, PodStarts

logger = logging.getLogger(__name__)

QUEUE: Final = 1000
CROWDED: Final = QUEUE // 2
"""When more wait, they are published at once, before some have to be dropped."""
TRIES: Final = 12
PAUSE: Final = timedelta(seconds=10)
AT_ONCE: Final = 10
"""So many are published without a pause."""
FLOOD: Final = timedelta(seconds=10)
"""The pause between two Events after that."""
PATIENCE: Final = timedelta(seconds=30)
"""How long at most Events wait for pods that start."""
COMPONENT: Final = "kubelet"


class EventsUnreachable(KletError):
    """No answer; the request is retried."""


class EventRefused(KletError):
    """The API server refuses this Event."""


class EventGone(EventRefused):
    """The Event to update does not exist any more."""


class Pods(Protocol):
    """Pods by UID."""

    def get(self, uid: PodUID) -> Pod | None: ...


class EventingRecorder:
    """Records causes, and queues those that are Events for the writer."""

    def __init__(self, *, inner: CauseRecorder, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock
        self._queue: deque[tuple[Finding, Time]] = deque()
        self._arrived = asyncio.Event()
        self._warnings = 0
        self._pressing = asyncio.Event()
        self._dropped = 0

    def record(self, finding: Finding, *, parent: CauseId | None = None) -> CauseId:
        cause = self._inner.record(finding, parent=parent)
        if finding.decision.event_type is not None:
            if len(self._queue) == QUEUE:
                # The oldest is dropped: when the API server is back, users need what happened last.
                oldest, _ = self._take()
                logger.debug("Event dropped: too many wait", extra={"reason": str(oldest.decision)})
                self._dropped += 1
            if len(finding.message) > LONGEST_MESSAGE // 4:
                finding = replace(finding, message=shorten(finding.message, LONGEST_MESSAGE))
            self._queue.append((finding, Time.of(self._clock.now())))
            self._arrived.set()
            self._warnings += finding.decision.event_type is EventType.WARNING
            self._note_pressing()
        return cause

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def has_warning(self) -> bool:
        """Whether a warning is among those that wait."""
        return self._warnings > 0

    def take_dropped(self) -> int:
        """Return how many were dropped since the last call."""
        dropped, self._dropped = self._dropped, 0
        return dropped

    async def next(self) -> tuple[Finding, Time]:
        """Return the oldest that was not published yet, and when it was recorded."""
        while not self._queue:
            self._arrived.clear()
            await self._arrived.wait()
        return self._take()

    async def until_pressing(self) -> None:
        """Return as soon as there is a warning among those that wait, or there are very many."""
        await self._pressing.wait()

    def _take(self) -> tuple[Finding, Time]:
        taken = self._queue.popleft()
        self._warnings -= taken[0].decision.event_type is EventType.WARNING
        self._note_pressing()
        return taken

    def _note_pressing(self) -> None:
        if self._warnings or len(self._queue) > CROWDED:
            self._pressing.set()
        else:
            self._pressing.clear()


class EventWriter:
    """Writes Events in the order in which things happened."""

    def __init__(
        self,
        *,
        findings: EventingRecorder,
        pods: Pods,
        api: EventApi,
        starts: PodStarts,
        node_name: str,
        clock: Clock,
        randomness: random.Random,
    ) -> None:
        self._findings = findings
        self._pods = pods
        self._api = api
        self._starts = starts
        self._node_name = node_name
        self._clock = clock
        self._randomness = randomness
        self._correlator = Correlator()
        self._given_up = 0

    async def run(self) -> None:
        flood = 0
        while True:
            finding, at = await self._findings.next()
            if finding.decision.event_type is EventType.NORMAL:
                await self._let_starts_go_first(at)
            event = self._make(finding, at)
            match self._correlator.decide(event, now=self._clock.now()):
                case Post(first):
                    await self._write(first, is_new=True)
                case Count(again):
                    await self._write(again, is_new=False)
                case Discard():
                    logger.debug("Event dropped: too many of its kind", extra={"reason": event.reason})
            waiting = self._findings.waiting
            flood = max(flood, waiting) if waiting > AT_ONCE else 0
            if flood and not self._findings.has_warning:
                # Many Events at once mean that pods start, and their statuses matter more.
                await self._clock.sleep(FLOOD / flood)

    async def _let_starts_go_first(self, at: Time) -> None:
        """Wait while pods start, because their requests go first, unless there is a warning."""
        patience = min(PATIENCE - (self._clock.now() - at), PATIENCE)
        if self._starts.is_busy and patience > timedelta(0):
            calm = first_of(self._starts.until_idle(), self._findings.until_pressing())
            await self._clock.wait(calm, at_most=patience)

    async def _write(self, event: Event, *, is_new: bool) -> None:
        for turn in range(TRIES):
            try:
                if is_new:
                    await self._api.create(event)
                else:
                    await self._api.patch_count(event)
                self._log_losses()
                return
            except EventRefused as error:
                if isinstance(error, EventGone) and not is_new:
                    is_new = True
                    continue
                # For a new Event the namespace is gone: upstream does not retry it either.
                logger.warning("Event refused", extra={"reason": event.reason, "error": str(error)})
                return
            except EventsUnreachable as error:
                logger.debug("Event not written yet", extra={"reason": event.reason, "error": str(error)})
                await self._clock.sleep(PAUSE if turn else PAUSE * self._randomness.random())
        logger.debug("Event given up", extra={"reason": event.reason})
        self._given_up += 1

    def _log_losses(self) -> None:
        """Log dropped Events once, when Events can be written again."""
        lost, self._given_up = self._given_up + self._findings.take_dropped(), 0
        if lost:
            logger.warning("Events were not published: the API server took none", extra={"count": lost})

    def _make(self, finding: Finding, at: Time) -> Event:
        involved = self._reference(finding.subject)
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

"""The pod lifecycle event generator (PLEG): streams, reads, tasks and clock around `PlegState`, which decides.

Events of the runtime (EventedPLEG) lead to a read of the pod they concern; a slow relist (GenericPLEG) is the safety
net. What is read goes into the pod cache, which publishes what changed.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from datetime import datetime, timedelta
from typing import Protocol, assert_never

from msgspec import Struct

from klet.aio.backoff import exponential_delays
from klet.aio.clock import Clock
from klet.aio.turns import Turns
from klet.aio.workqueue import WorkQueue
from klet.cri.errors import CriError, Unimplemented
from klet.cri.events import RuntimeEvent, RuntimeEventSource
from klet.errors import KletError
from klet.model.pods import PodUID
from klet.model.runtime import FirstStart, PodRuntimeStatus
from klet.model.verbosity import TRACE
from klet.pleg.cache import Reading, RuntimeCache
from klet.pleg.metrics import PlegMetrics
from klet.pleg.state import (
    AGREE_FOR,
    AGREE_PAUSE,
    CacheUpdate,
    FindOwner,
    PlegState,
    PodRead,
    ReadAgain,
    ReadPod,
    Relist,
    RelistNow,
    Step,
    written,
)

logger = logging.getLogger(__name__)

READERS = 16
LONGEST_READ = timedelta(seconds=1)
"""A read that takes longer no longer counts as one of READERS, so that a stuck pod does not block the others."""
FINDERS = 4
MOST_EVENTS = 1000
"""How many events wait for the read that is measured; those of containers that no pod has are dropped."""
LONGEST_SEARCH_PAUSE = timedelta(milliseconds=200)
FIRST_RETRY = timedelta(milliseconds=100)
LONGEST_RETRY = timedelta(seconds=3)


class PlegError(KletError):
    """The runtime status of a pod could not be read."""


class PodReading(Protocol):
    """The part of the runtime reader that the PLEG needs."""

    async def list_pods(self) -> dict[PodUID, PodRuntimeStatus]:
        """Return every pod, as far as the lists show it."""
        ...

    async def owner_of(self, container_id: str) -> PodUID | None: ...

    async def read(self, uid: PodUID) -> PodRuntimeStatus: ...

    async def read_first(self, uid: PodUID, first: FirstStart) -> PodRuntimeStatus:
        """Return the same for a pod that klet has just started: its sandbox and containers are known."""
        ...


class PlegSettings(Struct, frozen=True, kw_only=True):
    """How often to relist, and how long one read may take."""

    relist: timedelta = timedelta(seconds=1)
    """Without an event stream."""
    safety_relist: timedelta = timedelta(seconds=60)
    """Beside an event stream."""
    read_deadline: timedelta = timedelta(seconds=10)


class Pleg:
    """Watches the runtime and writes the runtime cache."""

    def __init__(
        self,
        *,
        reader: PodReading,
        sources: Sequence[RuntimeEventSource],
        cache: RuntimeCache,
        clock: Clock,
        settings: PlegSettings,
        metrics: PlegMetrics,
    ) -> None:
        self._metrics = metrics
        self._reader = reader
        self._sources = list(sources)
        self._cache = cache
        self._clock = clock
        self._deadline = settings.read_deadline
        self._relist_period = settings.relist
        self._state = PlegState(cache=cache, relist=settings.relist, safety_relist=settings.safety_relist)
        self._queue = WorkQueue[PodUID](clock=clock)
        self._turns = Turns(at_once=READERS, longest=LONGEST_READ, clock=clock)
        self._searches = WorkQueue[str](clock=clock)
        self._answers: dict[PodRead, asyncio.Future[Reading | None]] = {}
        """For callers that wait for the read of another caller; None: that caller was cancelled."""
        self._relist_now = asyncio.Event()
        self._relisted = asyncio.Event()
        self._relist_began: float | None = None
        self._events_at: dict[str, datetime] = {}
        """When something happened to containers and sandboxes whose pods have not been read since."""

    async def run(self) -> None:
        """Relist once, then follow events and relist as a safety net, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._relist_forever(), name="pleg-relist")
            group.create_task(self._follow_events(), name="pleg-events")
            group.create_task(self._read_forever(group), name="pleg-reads")
            for number in range(FINDERS):
                group.create_task(self._find_owners_forever(), name=f"pleg-finder-{number}")

    def health_error(self) -> str | None:
        """Return why the view of the runtime cannot be trusted, or None."""
        return self._state.health_error(self._clock.now())

    async def until_relisted(self) -> None:
        """Return when the cache has been filled once: before that, a running pod looks like one to be started."""
        await self._relisted.wait()

    @contextmanager
    def changing(self, uid: PodUID) -> Iterator[None]:
        """Mark that klet itself changes a pod; afterwards the pod is read without waiting for an event."""
        self._state.begin_change()
        try:
            yield
        finally:
            self._do(self._state.end_change(uid, now=self._clock.monotonic()))

    def note_first_start(self, uid: PodUID, first: FirstStart) -> None:
        """Note what the next read will find of a pod that klet is changing, unless something happens to it."""
        self._state.note_first_start(uid, first)

    async def read_now(self, uid: PodUID) -> PodRuntimeStatus:
        """Return a status that was read after this call."""
        return await self.fresh_status(uid, newer_than=self.mark())

    def mark(self) -> float:
        """Return the present for `fresh_status`: what begins to be read from now on is newer, even at the same time."""
        return self._state.mark(self._clock.monotonic())

    async def fresh_status(self, uid: PodUID, *, newer_than: float) -> PodRuntimeStatus:
        """Return a status that began to be read after an instant that `mark` gave; read now if there is none.

        The caller is the pod's worker: waking it for what it has just read would make it sync in a circle.
        """
        reading = self._state.usable_reading(uid, newer_than=newer_than)
        if reading is None:
            reading = await self._read(uid, newer_than=newer_than, quietly=True)
        if reading.error is not None:
            raise reading.error
        return reading.status

    def _do(self, step: Step | None) -> None:
        match step:
            case ReadPod():
                self._queue.add_after(step.uid, step.after)
            case FindOwner():
                self._searches.add_after(step.container_id, step.after)
            case RelistNow():
                self._relist_now.set()
            case None:
                pass
            case _:
                assert_never(step)

    async def _follow_events(self) -> None:
        """Follow the first event stream that the runtime has; open it again whenever it breaks."""
        delays = exponential_delays(first=FIRST_RETRY, longest=LONGEST_RETRY)
        while self._sources:
            try:
                async with aclosing(self._sources[0].subscribe()) as events:
                    # What happened while no stream was open has no event: opening one asks for a relist.
                    self._do(self._state.open_stream(now=self._clock.monotonic()))
                    self._metrics.streams_opened.add()
                    async for event in events:
                        # Only an event shows that the stream works: one that opens and breaks at once backs off.
                        delays = exponential_delays(first=FIRST_RETRY, longest=LONGEST_RETRY)
                        self._note(event)
            except Unimplemented:
                logger.info("The runtime has no such event stream", extra={"stream": type(self._sources[0]).__name__})
                self._sources.pop(0)
                self._do(self._state.lose_stream())
                continue
            except CriError as error:
                logger.warning("The runtime's event stream broke", extra={"error": str(error)})
                self._metrics.streams_failed.add()
            self._do(self._state.lose_stream())
            await self._clock.sleep(next(delays))
        logger.info("No event stream; relisting instead", extra={"duration": str(self._relist_period)})

    def _note(self, event: RuntimeEvent) -> None:
        if logger.isEnabledFor(TRACE):
            extra = {"event": event.kind.value, "container": event.container_id, "sandbox": event.sandbox_id or ""}
            logger.log(TRACE, "Event of the runtime", extra=extra)
        self._metrics.stream_latency.observe((self._clock.now() - event.at).total_seconds())
        if len(self._events_at) < MOST_EVENTS:
            self._events_at.setdefault(event.container_id, event.at)
        self._do(self._state.note_event(event, now=self._clock.monotonic()))

    async def _find_owners_forever(self) -> None:
        """Find owners in tasks of their own: a slow answer about one container must not delay events of the others."""
        while True:
            member = await self._searches.get()
            step: Step | None
            try:
                owner = await self._find_owner(member)
                step = self._state.end_search(member, owner, now=self._clock.monotonic())
            except (CriError, TimeoutError) as error:
                logger.debug("Owner of a container not found", extra={"error": str(error)})
                step = self._state.fail_search(member)
            finally:
                self._searches.done(member)
            self._do(step)

    async def _find_owner(self, member: str) -> PodUID | None:
        """Ask for up to a second: the runtime may send the event of a container some moments before it lists it."""
        async with asyncio.timeout(self._deadline.total_seconds()):
            waited = timedelta(0)
            for pause in exponential_delays(first=AGREE_PAUSE, longest=LONGEST_SEARCH_PAUSE):
                uid = self._state.owner_of(member) or await self._reader.owner_of(member)
                if uid is not None or waited >= AGREE_FOR:
                    return uid
                await self._clock.sleep(pause)
                waited += pause
        return None

    async def _relist_forever(self) -> None:
        delays = exponential_delays(first=FIRST_RETRY, longest=LONGEST_RETRY)
        while True:
            # Cleared before the lists are read: a request during a relist needs another one.
            self._relist_now.clear()
            try:
                pause = self._state.pause_after(await self._relist())
                delays = exponential_delays(first=FIRST_RETRY, longest=LONGEST_RETRY)
            except CriError as error:
                logger.warning("The runtime's pods could not be listed", extra={"error": str(error)})
                pause = next(delays)
            await self._clock.wait(self._relist_now.wait(), at_most=pause)

    async def _relist(self) -> Relist:
        """Read every pod whose lists differ from the last time."""
        relist = self._state.begin_relist(at=self._clock.now(), now=self._clock.monotonic())
        if self._relist_began is not None:
            self._metrics.relist_interval.observe(relist.began - self._relist_began)
        self._relist_began = relist.began
        self._metrics.last_seen.set(self._clock.now().timestamp())
        listed = await self._reader.list_pods()
        found = self._state.end_relist(relist, listed, now=self._clock.monotonic())
        self._cache.forget_empty(read_before=relist.began, keep=listed.keys())
        for step in found.reads:
            self._do(step)
        # The first relist completes only when the cache is filled: until then a running pod would look like one that is
        # not there, and its worker would start it a second time.
        if found.fill:
            await self._read_all(found.fill)
        self._state.complete_relist(relist)
        self._metrics.relist_duration.observe(self._clock.monotonic() - relist.began)
        # Whatever an event announced before, the lists show it now.
        self._events_at.clear()
        self._relisted.set()
        return relist

    async def _read_all(self, uids: Iterable[PodUID]) -> None:
        async def read(uid: PodUID) -> None:
            with self._turns.queue() as turn:
                await turn.take()
                await self._read_now(uid)

        async with asyncio.TaskGroup() as group:
            for uid in uids:
                group.create_task(read(uid), name=f"pleg-read-{uid}")

    async def _read_forever(self, group: asyncio.TaskGroup) -> None:
        """Read each pod in a task of its own: one that the runtime does not answer about must not delay the others."""
        while True:
            uid = await self._queue.get()
            group.create_task(self._read_queued(uid), name=f"pleg-read-{uid}")

    async def _read_queued(self, uid: PodUID) -> None:
        try:
            with self._turns.queue() as turn:
                await turn.take()
                await self._read_until_agreed(uid)
        finally:
            self._queue.done(uid)

    async def _read_until_agreed(self, uid: PodUID) -> None:
        confirmation = self._state.begin_confirmation(uid, now=self._clock.monotonic())
        while True:
            newer_than = self._state.next_read(confirmation, now=self._clock.monotonic())
            reading = await self._read(uid, newer_than=newer_than)
            verdict = self._state.judge(confirmation, reading, now=self._clock.monotonic())
            if not isinstance(verdict, ReadAgain):
                self._do(verdict)
                return
            await self._clock.sleep(verdict.after)

    async def _read(self, uid: PodUID, *, newer_than: float, quietly: bool = False) -> Reading:
        """Return a reading that began after an instant: join a read under way, or read."""
        read = self._state.join_read(uid, newer_than=newer_than, quietly=quietly)
        if read is not None:
            # Shielded: cancelling one of several callers must not cancel the answer for the others.
            reading = await asyncio.shield(self._answers[read])
            if reading is not None:
                return reading
        return await self._read_now(uid, quietly=quietly)

    async def _read_now(self, uid: PodUID, *, quietly: bool = False) -> Reading:
        read = self._state.begin_read(uid, quietly=quietly, now=self._clock.monotonic())
        answer = self._answers[read] = asyncio.get_running_loop().create_future()
        reading = None
        try:
            update = await self._ask_runtime(read)
            # The cache before `leave_read` below: a caller that finds no read under way must find its result here.
            self._do(update.retry)
            self._cache.put(update.reading, quietly=update.quietly)
            reading = update.reading
            if self._events_at:
                self._measure_lag(reading.status)
        finally:
            self._state.leave_read(read)
            del self._answers[read]
            answer.set_result(reading)
        return reading

    def _measure_lag(self, status: PodRuntimeStatus) -> None:
        now = self._clock.now()
        members = (*(each.id for each in status.sandboxes), *(each.id for each in status.containers))
        for member in members:
            if (happened := self._events_at.pop(member, None)) is not None:
                self._metrics.event_lag.observe((now - happened).total_seconds())

    async def _ask_runtime(self, read: PodRead) -> CacheUpdate:
        try:
            async with asyncio.timeout(self._deadline.total_seconds()):
                if read.first is None:
                    status = await self._reader.read(read.uid)
                else:
                    status = await self._reader.read_first(read.uid, read.first)
        except (CriError, TimeoutError) as error:
            text = str(error) or f"the runtime did not answer within {written(self._deadline)}"
            return self._state.fail_read(read, PlegError(text))
        return self._state.end_read(read, status)

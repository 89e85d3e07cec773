"""Keeps the runtime cache true: events wake a fresh read of the pod they concern, a slow relist is the safety net.

An event is a hint, never state. The runtime's own view may lag its events by some milliseconds, so a read that
contradicts the event that caused it is repeated: for a second at once, then now and then for a minute more
(pod lifecycle event generator).
"""

import asyncio
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from klet.aio.backoff import exponential_delays
from klet.aio.clock import Clock
from klet.aio.turns import Turns
from klet.aio.workqueue import WorkQueue
from klet.api.times import Duration
from klet.cri.errors import CriError, Unimplemented
from klet.cri.events import EventKind, EventSource, RuntimeEvent
from klet.errors import KletError
from klet.model.pods import PodUID
from klet.model.runtime import FirstStart, PodRuntimeStatus
from klet.pleg.agreement import agrees, is_news
from klet.pleg.cache import Reading, RuntimeCache

logger = logging.getLogger(__name__)

READERS = 16
LONGEST_READ = timedelta(seconds=1)
"""A pod that is being read for longer no longer counts as one of those."""
FINDERS = 4
OWN_STARTS = timedelta(seconds=5)
"""While klet changes pods, the owner of what comes up is not asked for so long: most often klet is about to read it."""
AGREE_FOR = timedelta(seconds=1)
AGREE_PAUSE = timedelta(milliseconds=5)
AGREE_GROWTH = 0.5
"""Each look costs a busy runtime time: what it shows late is seen later by half of that at most."""
LONGEST_SEARCH_PAUSE = timedelta(milliseconds=200)
FIRST_RETRY = timedelta(milliseconds=100)
LONGEST_RETRY = timedelta(seconds=3)
HEALTH_THRESHOLD = timedelta(minutes=3)
NEVER = float("-inf")
"""Older than any mark: for who has not seen the pod yet."""


@dataclass(frozen=True, slots=True)
class Stray:
    """An event about a container of which it is not known whose it is."""

    kind: EventKind
    seen_at: float


@dataclass(frozen=True, slots=True)
class Doubt:
    """What events said of a pod, and the runtime did not show within a second."""

    since: float
    expected: Mapping[str, EventKind]


class PlegError(KletError):
    """The runtime's view of a pod could not be read."""


@dataclass(slots=True, eq=False)
class ReadUnderWay:
    """A read of a pod that has begun; whoever needs one from now on may wait for it instead of asking again."""

    started: float
    quietly: bool
    done: "asyncio.Future[Reading | None]"
    """None: whoever read has gone."""


class PodReading(Protocol):
    """The part of the runtime reader that the PLEG needs."""

    async def list_pods(self) -> dict[PodUID, PodRuntimeStatus]:
        """Every pod, as far as the lists show it."""
        ...

    async def owner_of(self, container_id: str) -> PodUID | None: ...

    async def read(self, uid: PodUID) -> PodRuntimeStatus: ...

    async def read_first(self, uid: PodUID, first: FirstStart) -> PodRuntimeStatus:
        """The same of a pod of which it is known what there is."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PlegSettings:
    """How often to look when nothing calls, and how long one look may take."""

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
        sources: Sequence[EventSource],
        cache: RuntimeCache,
        clock: Clock,
        settings: PlegSettings,
    ) -> None:
        self._reader = reader
        self._sources = list(sources)
        self._cache = cache
        self._clock = clock
        self._settings = settings
        self._queue = WorkQueue[PodUID](clock=clock)
        self._turns = Turns(at_once=READERS, longest=LONGEST_READ, clock=clock)
        self._owners: dict[str, PodUID] = {}
        self._expected: dict[PodUID, dict[str, EventKind]] = {}
        self._doubts: dict[PodUID, Doubt] = {}
        self._listed: Mapping[PodUID, PodRuntimeStatus] = {}
        self._under_way: dict[PodUID, ReadUnderWay] = {}
        self._asked: dict[PodUID, float] = {}
        """When a pod was last to be read: any reading that begins later will do."""
        self._first: dict[PodUID, FirstStart] = {}
        """Pods that were started for the first time and not read yet."""
        self._last_mark = NEVER
        self._strays: dict[str, Stray] = {}
        self._changing = 0
        self._lookups = WorkQueue[str](clock=clock)
        self._streaming = False
        self._opened_at = NEVER
        self._relist_now = asyncio.Event()
        self._relisted_at: datetime | None = None
        self._relisted = asyncio.Event()

    async def run(self) -> None:
        """Relist once, then follow events and relist as a safety net, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._relist_forever(), name="pleg-relist")
            group.create_task(self._follow_events(), name="pleg-events")
            group.create_task(self._read_forever(group), name="pleg-reads")
            for number in range(FINDERS):
                group.create_task(self._find_owners_forever(), name=f"pleg-finder-{number}")

    def health_error(self) -> str | None:
        """Why the view of the runtime cannot be trusted, or None."""
        if self._relisted_at is None:
            return "pleg has yet to be successful"
        age = self._clock.now() - self._relisted_at
        if age <= HEALTH_THRESHOLD:
            return None
        return f"pleg was last seen active {_written(age)} ago; threshold is {_written(HEALTH_THRESHOLD)}"

    async def until_relisted(self) -> None:
        """Return when the cache has been filled once: before that, a running pod looks like one to be started."""
        await self._relisted.wait()

    @contextmanager
    def changing(self, uid: PodUID) -> Iterator[None]:
        """While klet itself changes a pod; afterwards it is read, without an event that says so."""
        self._changing += 1
        try:
            yield
        finally:
            self._changing -= 1
            self._ask(uid)

    def note_first_start(self, uid: PodUID, first: FirstStart) -> None:
        """What the next read will find of a pod that klet is changing, unless something happens to it."""
        reading = self._cache.get(uid)
        is_unseen = reading is None or reading.status.is_empty
        # If somebody had reason to look meanwhile, something may have happened: nothing would tell of that once more.
        if is_unseen and uid not in self._asked and uid not in self._under_way:
            self._first[uid] = first

    async def read_now(self, uid: PodUID) -> PodRuntimeStatus:
        """A status that was read after this call."""
        return await self.fresh_status(uid, newer_than=self.mark())

    def mark(self) -> float:
        """The present, for `fresh_status`: what begins to be read from now on is newer, even at the same time."""
        self._last_mark = max(self._clock.monotonic(), math.nextafter(self._last_mark, math.inf))
        return self._last_mark

    async def fresh_status(self, uid: PodUID, *, newer_than: float) -> PodRuntimeStatus:
        """A status that began to be read after an instant that `mark` gave, reading now if none is there.

        Asked by the pod's worker, which therefore is not woken by what is read.
        """
        reading = self._cache.get(uid)
        if reading is None and newer_than == NEVER and self._is_unheard_of(uid):
            return PodRuntimeStatus(uid=uid)
        if reading is None or reading.read_at <= newer_than:
            reading = await self._read(uid, newer_than=newer_than, quietly=True)
        if reading.error is not None:
            raise reading.error
        return reading.status

    def _is_unheard_of(self, uid: PodUID) -> bool:
        """Whether the runtime has shown all it has, nothing of that pod, and nothing that may be the pod's."""
        is_named = uid in self._listed or uid in self._asked or uid in self._under_way
        return self._relisted.is_set() and not is_named and not self._strays

    async def _follow_events(self) -> None:
        """Take the first stream that the runtime has; come back to it whenever it breaks."""
        delays = exponential_delays(first=FIRST_RETRY, longest=LONGEST_RETRY)
        while self._sources:
            try:
                async with aclosing(self._sources[0].subscribe()) as events:
                    self._streaming = True
                    self._opened_at = self._clock.monotonic()
                    # What happened before the stream was open is not in it.
                    self._relist_now.set()
                    async for event in events:
                        delays = exponential_delays(first=FIRST_RETRY, longest=LONGEST_RETRY)
                        self._note(event)
            except Unimplemented:
                logger.info("The runtime has no such event stream", extra={"stream": type(self._sources[0]).__name__})
                self._sources.pop(0)
                self._streaming = False
                self._relist_now.set()
                continue
            except CriError as error:
                logger.warning("The runtime's event stream broke", extra={"error": str(error)})
            self._streaming = False
            self._relist_now.set()
            await self._clock.sleep(next(delays))
        logger.info("No event stream; relisting instead", extra={"duration": str(self._settings.relist)})

    def _note(self, event: RuntimeEvent) -> None:
        uid = self._owners.get(event.container_id) or self._owners.get(event.sandbox_id or "")
        if uid is not None:
            self._expect(uid, event.container_id, event.kind)
            return
        self._strays[event.container_id] = Stray(event.kind, self.mark())
        may_be_own = self._changing > 0 and event.kind in {EventKind.CREATED, EventKind.STARTED}
        self._lookups.add_after(event.container_id, OWN_STARTS if may_be_own else timedelta(0))

    def _expect(self, uid: PodUID, member: str, kind: EventKind) -> None:
        if kind is not EventKind.OOM:
            self._expected.setdefault(uid, {})[member] = kind
        self._ask(uid)

    def _ask(self, uid: PodUID) -> None:
        """Have a pod read from now on."""
        self._asked[uid] = self.mark()
        self._queue.add(uid)

    async def _find_owners_forever(self) -> None:
        """Apart from the stream: a slow answer about one container must not hold up the events of the others."""
        while True:
            member = await self._lookups.get()
            try:
                uid = await self._find_owner(member)
            finally:
                self._lookups.done(member)
            stray = self._strays.pop(member, None)
            if uid is not None and stray is not None:
                self._owners[member] = uid
                if not self._is_shown(uid, member, stray):
                    self._expect(uid, member, stray.kind)

    def _is_shown(self, uid: PodUID, member: str, stray: Stray) -> bool:
        """Whether what the event said has been read since."""
        reading = self._cache.get(uid)
        if reading is None or reading.error is not None or reading.read_at <= stray.seen_at:
            return False
        return agrees(reading.status, {member: stray.kind})

    async def _find_owner(self, member: str) -> PodUID | None:
        """None: not a pod's container, or gone already; the relist sees what is left."""
        try:
            async with asyncio.timeout(self._settings.read_deadline.total_seconds()):
                # The runtime may announce a container some moments before it shows it.
                waited = timedelta(0)
                for pause in exponential_delays(first=AGREE_PAUSE, longest=LONGEST_SEARCH_PAUSE):
                    uid = self._owners.get(member) or await self._reader.owner_of(member)
                    if uid is not None or waited >= AGREE_FOR:
                        return uid
                    await self._clock.sleep(pause)
                    waited += pause
        except (CriError, TimeoutError) as error:
            logger.debug("Owner of a container not found", extra={"error": str(error)})
            # What the event said is still to be seen.
            self._relist_now.set()
        return None

    async def _relist_forever(self) -> None:
        delays = exponential_delays(first=FIRST_RETRY, longest=LONGEST_RETRY)
        while True:
            self._relist_now.clear()
            try:
                started = self._clock.monotonic()
                await self._relist()
                delays = exponential_delays(first=FIRST_RETRY, longest=LONGEST_RETRY)
                # When exactly the runtime began to send is not known: one more look soon after closes the gap.
                is_settled = started >= self._opened_at + self._settings.relist.total_seconds()
                pause = self._settings.safety_relist if self._streaming and is_settled else self._settings.relist
            except CriError as error:
                logger.warning("The runtime's pods could not be listed", extra={"error": str(error)})
                pause = next(delays)
            await self._clock.wait(self._relist_now.wait(), at_most=pause)

    async def _relist(self) -> None:
        """Read every pod whose lists differ from the last time."""
        started, began = self._clock.now(), self.mark()
        listed = await self._reader.list_pods()
        changed = [
            uid
            for uid in sorted(listed.keys() | self._listed.keys())
            if is_news(listed.get(uid), self._listed.get(uid), self._cache.get(uid))
        ]
        changed += self._cache.missing(read_before=began, listed=listed.keys() | self._listed.keys())
        self._listed = listed
        self._owners = {member: uid for uid, pod in listed.items() for member in pod.members()}
        self._cache.forget_empty(read_before=began, keep=listed.keys())
        if self._relisted_at is None:
            # Nobody may act on an empty cache: fill it before the first relist counts as done.
            await self._read_all(changed)
        else:
            for uid in changed:
                self._ask(uid)
        self._relisted_at = started
        self._relisted.set()

    async def _read_all(self, uids: Iterable[PodUID]) -> None:
        async def read(uid: PodUID) -> None:
            with self._turns.queue() as turn:
                await turn.take()
                await self._read_now(uid)

        async with asyncio.TaskGroup() as group:
            for uid in uids:
                group.create_task(read(uid), name=f"pleg-read-{uid}")

    async def _read_forever(self, group: asyncio.TaskGroup) -> None:
        """Each pod by itself: those that the runtime does not answer about hold up the others for a moment only."""
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
        known = self._doubts.get(uid)
        expected = dict(known.expected) if known is not None else {}
        said_at = give_up = self._clock.monotonic()
        asked = self._asked.pop(uid, None)
        while True:
            # What came meanwhile counts too: of a container that has gone since, nobody need wait for its start.
            if said := self._expected.pop(uid, {}):
                expected |= said
                said_at = self._clock.monotonic()
                give_up = said_at + AGREE_FOR.total_seconds()
            reading = await self._read(uid, newer_than=self.mark() if asked is None else asked)
            asked = None
            if reading.error is not None:
                self._expected[uid] = expected | self._expected.get(uid, {})
                return
            expected = self._without_gone(reading.status, expected)
            if agrees(reading.status, expected):
                self._doubts.pop(uid, None)
                return
            if self._clock.monotonic() >= give_up:
                self._doubt(uid, expected)
                return
            now = self._clock.monotonic()
            pause = max(AGREE_PAUSE.total_seconds(), min((now - said_at) * AGREE_GROWTH, give_up - now))
            await self._clock.sleep(timedelta(seconds=pause))

    def _without_gone(self, status: PodRuntimeStatus, expected: dict[str, EventKind]) -> dict[str, EventKind]:
        """What was there before and is no more does not start, whatever an event says that comes too late."""
        there = {record.id for record in status.containers} | {sandbox.id for sandbox in status.sandboxes}

        def is_gone(member: str) -> bool:
            return member in self._owners and member not in there

        return {
            member: kind for member, kind in expected.items() if kind is not EventKind.STARTED or not is_gone(member)
        }

    def _doubt(self, uid: PodUID, expected: dict[str, EventKind]) -> None:
        """A busy runtime's view may lag for seconds: look again now and then, until the safety relist would have."""
        now = self._clock.monotonic()
        known = self._doubts.pop(uid, None)
        since = known.since if known is not None else now
        if now - since < self._settings.safety_relist.total_seconds():
            self._doubts[uid] = Doubt(since, expected)
            self._queue.add_after(uid, self._settings.relist)

    async def _read(self, uid: PodUID, *, newer_than: float, quietly: bool = False) -> Reading:
        """A reading that began after an instant: one that is under way already, or one of its own."""
        under_way = self._under_way.get(uid)
        if under_way is not None and under_way.started > newer_than > NEVER:
            under_way.quietly |= quietly
            reading = await asyncio.shield(under_way.done)
            if reading is not None:
                return reading
        return await self._read_now(uid, quietly=quietly)

    async def _read_now(self, uid: PodUID, *, quietly: bool = False) -> Reading:
        mine = ReadUnderWay(self.mark(), quietly, asyncio.get_running_loop().create_future())
        self._under_way[uid] = mine
        reading = None
        try:
            reading = await self._ask_runtime(uid, started=mine.started)
            self._cache.put(reading, quietly=mine.quietly)
        finally:
            mine.done.set_result(reading)
            if self._under_way.get(uid) is mine:
                del self._under_way[uid]
        return reading

    async def _ask_runtime(self, uid: PodUID, *, started: float) -> Reading:
        try:
            async with asyncio.timeout(self._settings.read_deadline.total_seconds()):
                first = self._first.pop(uid, None)
                status = await (self._reader.read(uid) if first is None else self._reader.read_first(uid, first))
        except (CriError, TimeoutError) as error:
            text = str(error) or f"the runtime did not answer within {_written(self._settings.read_deadline)}"
            self._queue.add_after(uid, self._settings.relist)
            return Reading(self._last_seen(uid), started, PlegError(text))
        self._owners.update(dict.fromkeys((record.id for record in status.containers), uid))
        self._owners.update(dict.fromkeys((sandbox.id for sandbox in status.sandboxes), uid))
        return Reading(self._with_kept_ips(status), started)

    def _last_seen(self, uid: PodUID) -> PodRuntimeStatus:
        """What is known of a pod that cannot be read: of one that never could, what the lists show."""
        if (known := self._cache.get(uid)) is not None:
            return known.status
        return self._listed.get(uid, PodRuntimeStatus(uid=uid))

    def _with_kept_ips(self, status: PodRuntimeStatus) -> PodRuntimeStatus:
        """A dead sandbox has lost its addresses; the pod's status still shows them."""
        known = self._cache.get(status.uid)
        if status.ips or known is None or any(sandbox.ready for sandbox in status.sandboxes) or status.is_empty:
            return status
        return status.with_ips(known.status.ips)


def _written(length: timedelta) -> str:
    return Duration.of(length).wire()

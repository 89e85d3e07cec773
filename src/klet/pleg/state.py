"""What the PLEG knows and decides (GenericPLEG with EventedPLEG in front): pure, apart from reads, streams and clock.

An event is a hint, never state: it leads to a read of its pod, and reads are repeated until they show what it said.

State. A member is a sandbox or a container; instants are those of `mark`.
- owners: the pod of each member, from the last relist and the reads since.
- unowned: the newest event of each container whose pod is not known yet (FindOwner).
- expected: by pod, what events said that no read has been compared with yet.
- unconfirmed: by pod, what events said and no read has shown within a second.
- requested: by pod, the instant after which a read is wanted; any read that begins later will do.
- reads: by pod, the newest read under way.
- first starts: pods that klet has started and nothing has read yet, with what was made for them.
- pod records: every pod as the last relist listed it.
- stream and relist: whether events arrive and since when; when the last successful relist began.

Inputs, and the steps that they return to the caller:
- an event arrived: ReadPod, or FindOwner if its pod is not known; that search ended: ReadPod, RelistNow or nothing.
- the stream opened or was lost: RelistNow, and another pause between relists.
- a relist began, ended with lists, was completed: pods to read, at first before anything else may happen.
- klet began or ended to change a pod, started it for the first time: ReadPod at the end of each change.
- a read began, ended with a status or an error: CacheUpdate, after an error with another ReadPod.
- a read was compared with the events: ReadAgain, ReadPod while they are unconfirmed, or nothing.

The state reads the pod cache and never writes it: the caller stores each CacheUpdate before it gives the next input.
The cache announces what changed. It is changed in place: a copy for each event would cost more than the event.
"""

import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TypeAlias

from msgspec import Struct

from klet.api.times import Duration
from klet.cri.events import EventKind, RuntimeEvent
from klet.errors import KletError
from klet.model.pods import PodUID
from klet.model.runtime import FirstStart, PodRuntimeStatus
from klet.pleg.agreement import agrees, is_news
from klet.pleg.cache import Reading, RuntimeCache

OWN_STARTS = timedelta(seconds=5)
"""How long to wait before asking for an owner while klet changes pods: most often klet reads that pod anyway."""
AGREE_FOR = timedelta(seconds=1)
AGREE_PAUSE = timedelta(milliseconds=5)
AGREE_GROWTH = 0.5
"""The pause grows with the time waited so far: fewer reads of a busy runtime, for at most half as much delay again."""
HEALTH_THRESHOLD = timedelta(minutes=3)
AT_ONCE = timedelta(0)
NEVER = float("-inf")
"""Before any mark: for callers that have not seen the pod yet."""


class ReadPod(Struct, frozen=True):
    """Put the pod into the queue of reads; a pod is in it at most once."""

    uid: PodUID
    after: timedelta = AT_ONCE


class FindOwner(Struct, frozen=True):
    """Ask the runtime which pod a container belongs to."""

    container_id: str
    after: timedelta = AT_ONCE


class RelistNow(Struct, frozen=True):
    """Relist without waiting for the next regular one."""


Step: TypeAlias = ReadPod | FindOwner | RelistNow


class ReadAgain(Struct, frozen=True):
    """Read the same pod once more after a pause, without giving way to other pods."""

    after: timedelta


class CacheUpdate(Struct, frozen=True):
    """Store a reading. Quietly: the pod's worker asked for it and need not be woken."""

    reading: Reading
    quietly: bool
    retry: ReadPod | None = None


class UnownedEvent(Struct, frozen=True):
    """An event about a container whose pod is not known."""

    kind: EventKind
    seen_at: float
    may_be_own: bool
    """Of the start of a pod that klet was changing at this time."""


class UnconfirmedEvents(Struct, frozen=True):
    """What events said of a pod, and the runtime did not show within a second."""

    since: float
    expected: Mapping[str, EventKind]


class PodRead(Struct, eq=False):
    """A read of a pod that has begun; callers that need one from now on wait for it instead of asking again."""

    uid: PodUID
    began: float
    quietly: bool
    first: FirstStart | None
    """What the read will find, if it is known: then one call is enough."""


class Confirmation(Struct, eq=False):
    """The reads of one pod until they show what events said of it."""

    uid: PodUID
    expected: dict[str, EventKind]
    said_at: float
    """When the newest of the events was taken in."""
    give_up_at: float
    requested: float | None
    """For the first read: one that began after this instant will do."""


class Relist(Struct, frozen=True):
    """A relist that has begun."""

    at: datetime
    began: float


class RelistResult(Struct, frozen=True):
    """The pods that a relist found changed without an event that said so."""

    fill: tuple[PodUID, ...] = ()
    """To be read before the relist counts: nothing may act on an empty cache."""
    reads: tuple[ReadPod, ...] = ()


class PlegState:
    """Decides what is read and when. Changed by the PLEG only."""

    def __init__(self, *, cache: RuntimeCache, relist: timedelta, safety_relist: timedelta) -> None:
        self._cache = cache
        self._relist = relist
        self._safety_relist = safety_relist
        self._owners: dict[str, PodUID] = {}
        self._unowned: dict[str, UnownedEvent] = {}
        self._expected: dict[PodUID, dict[str, EventKind]] = {}
        self._unconfirmed: dict[PodUID, UnconfirmedEvents] = {}
        self._requested: dict[PodUID, float] = {}
        self._reads: dict[PodUID, PodRead] = {}
        self._first_starts: dict[PodUID, FirstStart] = {}
        self._records: Mapping[PodUID, PodRuntimeStatus] = {}
        self._changing = 0
        self._streaming = False
        self._opened_at = NEVER
        self._relisted_at: datetime | None = None
        self._last_mark = NEVER

    # Time

    def mark(self, now: float) -> float:
        """Return the present as an instant of its own: a read that begins later has a greater one, even at one time."""
        self._last_mark = max(now, math.nextafter(self._last_mark, math.inf))
        return self._last_mark

    def health_error(self, now: datetime) -> str | None:
        """Return why the view of the runtime cannot be trusted, or None."""
        if self._relisted_at is None:
            return "pleg has yet to be successful"
        age = now - self._relisted_at
        if age <= HEALTH_THRESHOLD:
            return None
        return f"pleg was last seen active {written(age)} ago; threshold is {written(HEALTH_THRESHOLD)}"

    # Events and owners

    def note_event(self, event: RuntimeEvent, *, now: float) -> ReadPod | FindOwner:
        """Take in an event of the stream."""
        uid = self._owners.get(event.container_id) or self._owners.get(event.sandbox_id or "")
        if uid is not None:
            return self._expect(uid, event.container_id, event.kind, now=now)
        # A new container of a pod that klet is just starting: its owner becomes known by the read that follows.
        may_be_own = self._changing > 0 and event.kind in {EventKind.CREATED, EventKind.STARTED}
        self._unowned[event.container_id] = UnownedEvent(event.kind, self.mark(now), may_be_own)
        return FindOwner(event.container_id, OWN_STARTS if may_be_own else AT_ONCE)

    def owner_of(self, member: str) -> PodUID | None:
        return self._owners.get(member)

    def end_search(self, member: str, owner: PodUID | None, *, now: float) -> ReadPod | None:
        """End a search. No owner: not a pod's container, or gone already; the relist sees what is left."""
        unowned = self._unowned.pop(member, None)
        if owner is None or unowned is None:
            return None
        self._owners[member] = owner
        return None if self._is_shown(owner, member, unowned) else self._expect(owner, member, unowned.kind, now=now)

    def fail_search(self, member: str) -> RelistNow:
        """Give up an event whose owner the runtime did not give: the lists show what it said."""
        self._unowned.pop(member, None)
        return RelistNow()

    # The stream

    def open_stream(self, *, now: float) -> RelistNow:
        """Count on events from now on. What happened before is not among them."""
        self._streaming = True
        self._opened_at = now
        return RelistNow()

    def lose_stream(self) -> RelistNow:
        self._streaming = False
        return RelistNow()

    # Relists

    def begin_relist(self, *, at: datetime, now: float) -> Relist:
        return Relist(at, self.mark(now))

    def end_relist(self, relist: Relist, listed: Mapping[PodUID, PodRuntimeStatus], *, now: float) -> RelistResult:
        """Compare the lists with the pod records and the cache, and keep them as the new records."""
        both = listed.keys() | self._records.keys()
        changed = [
            uid for uid in sorted(both) if is_news(listed.get(uid), self._records.get(uid), self._cache.get(uid))
        ]
        # A pod that came and went between two relists is in neither list, but a read has seen it.
        changed += self._cache.missing(read_before=relist.began, listed=both)
        self._records = listed
        self._owners = {member: uid for uid, pod in listed.items() for member in pod.members()}
        if self._relisted_at is None:
            return RelistResult(fill=tuple(changed))
        return RelistResult(reads=tuple(self.request_read(uid, now=now) for uid in changed))

    def complete_relist(self, relist: Relist) -> None:
        """Let a relist count for health, as of its beginning: its pods are in the cache or in the queue."""
        self._relisted_at = relist.at

    def pause_after(self, relist: Relist) -> timedelta:
        """Return how long to wait for the next relist, if nothing asks for one."""
        # When exactly the runtime began to send is not known: one more relist soon after closes the gap.
        is_settled = relist.began >= self._opened_at + self._relist.total_seconds()
        return self._safety_relist if self._streaming and is_settled else self._relist

    # Changes by klet itself

    def begin_change(self) -> None:
        self._changing += 1

    def end_change(self, uid: PodUID, *, now: float) -> ReadPod:
        """Read what klet has changed, without an event that says so."""
        self._changing -= 1
        return self.request_read(uid, now=now)

    def note_first_start(self, uid: PodUID, first: FirstStart) -> None:
        """Note what the next read will find of a pod that klet is changing, unless something happens to it."""
        reading = self._cache.get(uid)
        is_unseen = reading is None or reading.status.is_empty
        # A read that was wanted meanwhile had a reason: something may have happened, and no second event would say so.
        if is_unseen and uid not in self._requested and uid not in self._reads:
            self._first_starts[uid] = first

    # Reads

    def request_read(self, uid: PodUID, *, now: float) -> ReadPod:
        """Have a pod read from now on."""
        self._requested[uid] = self.mark(now)
        return ReadPod(uid)

    def usable_reading(self, uid: PodUID, *, newer_than: float) -> Reading | None:
        """Return what is known of a pod since an instant; None if it has to be read."""
        reading = self._cache.get(uid)
        if reading is None and newer_than == NEVER and self._is_unknown(uid):
            return Reading(PodRuntimeStatus(uid=uid), NEVER)
        return None if reading is None or reading.read_at <= newer_than else reading

    def join_read(self, uid: PodUID, *, newer_than: float, quietly: bool) -> PodRead | None:
        """Return the read under way that began after an instant, if there is one."""
        read = self._reads.get(uid)
        # A caller that has never seen the pod has no instant to compare with: it reads for itself.
        if read is None or not read.began > newer_than > NEVER:
            return None
        read.quietly |= quietly
        return read

    def begin_read(self, uid: PodUID, *, quietly: bool, now: float) -> PodRead:
        read = PodRead(uid, self.mark(now), quietly, self._first_starts.pop(uid, None))
        self._reads[uid] = read
        return read

    def end_read(self, read: PodRead, status: PodRuntimeStatus) -> CacheUpdate:
        """Take in what the runtime showed."""
        self._owners.update(dict.fromkeys((record.id for record in status.containers), read.uid))
        self._owners.update(dict.fromkeys((sandbox.id for sandbox in status.sandboxes), read.uid))
        return CacheUpdate(Reading(self._with_kept_ips(status), read.began), read.quietly)

    def fail_read(self, read: PodRead, error: KletError) -> CacheUpdate:
        """Take in that a pod could not be read; it is tried again."""
        reading = Reading(self._last_seen(read.uid), read.began, error)
        return CacheUpdate(reading, read.quietly, retry=ReadPod(read.uid, self._relist))

    def leave_read(self, read: PodRead) -> None:
        """Forget a read that is over, or whose reader is gone; never the one that has begun since."""
        if self._reads.get(read.uid) is read:
            del self._reads[read.uid]

    # Reads until they agree with the events

    def begin_confirmation(self, uid: PodUID, *, now: float) -> Confirmation:
        unconfirmed = self._unconfirmed.get(uid)
        expected = dict(unconfirmed.expected) if unconfirmed is not None else {}
        return Confirmation(uid, expected, now, now, self._requested.pop(uid, None))

    def next_read(self, confirmation: Confirmation, *, now: float) -> float:
        """Take in what events have said since, and return the instant after which the next read has to begin."""
        # An event during a read counts too: of a container that has gone since, nothing need wait for its start.
        if said := self._expected.pop(confirmation.uid, {}):
            confirmation.expected |= said
            confirmation.said_at = now
            confirmation.give_up_at = now + AGREE_FOR.total_seconds()
        requested, confirmation.requested = confirmation.requested, None
        return self.mark(now) if requested is None else requested

    def judge(self, confirmation: Confirmation, reading: Reading, *, now: float) -> ReadAgain | ReadPod | None:
        """Compare a reading with what events said: None if it shows all of it, or nothing more is to be done."""
        uid = confirmation.uid
        if reading.error is not None:
            # The failed read is tried again: what events said waits for it, and newer events go first.
            self._expected[uid] = confirmation.expected | self._expected.get(uid, {})
            return None
        confirmation.expected = self._without_gone(reading.status, confirmation.expected)
        if agrees(reading.status, confirmation.expected):
            self._unconfirmed.pop(uid, None)
            return None
        if now >= confirmation.give_up_at:
            return self._keep_unconfirmed(uid, confirmation.expected, now=now)
        grown = min((now - confirmation.said_at) * AGREE_GROWTH, confirmation.give_up_at - now)
        return ReadAgain(timedelta(seconds=max(AGREE_PAUSE.total_seconds(), grown)))

    # Helpers

    def _expect(self, uid: PodUID, member: str, kind: EventKind, *, now: float) -> ReadPod:
        # An OOM kill is no state that a read could show: the container may go on, or its exit has its own event.
        if kind is not EventKind.OOM:
            self._expected.setdefault(uid, {})[member] = kind
        return self.request_read(uid, now=now)

    def _is_shown(self, uid: PodUID, member: str, unowned: UnownedEvent) -> bool:
        """Return whether a read since the event shows what it said."""
        reading = self._cache.get(uid)
        if reading is None or reading.error is not None or reading.read_at <= unowned.seen_at:
            return False
        return agrees(reading.status, {member: unowned.kind})

    def _is_unknown(self, uid: PodUID) -> bool:
        """Return whether the runtime cannot have this pod: all is listed, and no event may be its own.

        While other pods start there is always one whose owner is not known yet. Should it be of this pod after all, by
        a request of an agent that was killed, then the runtime holds the name of its sandbox, which is found by that.
        """
        if self._relisted_at is None or uid in self._records or uid in self._requested or uid in self._reads:
            return False
        return all(event.may_be_own for event in self._unowned.values())

    def _without_gone(self, status: PodRuntimeStatus, expected: dict[str, EventKind]) -> dict[str, EventKind]:
        """Drop the start of what was there before and is gone: its event came too late."""
        there = {record.id for record in status.containers} | {sandbox.id for sandbox in status.sandboxes}

        def is_gone(member: str) -> bool:
            return member in self._owners and member not in there

        return {
            member: kind for member, kind in expected.items() if kind is not EventKind.STARTED or not is_gone(member)
        }

    def _keep_unconfirmed(self, uid: PodUID, expected: Mapping[str, EventKind], *, now: float) -> ReadPod | None:
        """Read again every relist period, as a busy runtime may lag for seconds, until the safety relist is due."""
        known = self._unconfirmed.pop(uid, None)
        since = known.since if known is not None else now
        if now - since >= self._safety_relist.total_seconds():
            return None
        self._unconfirmed[uid] = UnconfirmedEvents(since, expected)
        return ReadPod(uid, self._relist)

    def _last_seen(self, uid: PodUID) -> PodRuntimeStatus:
        """Return the last known status of a pod that cannot be read; if it never could, what the relist listed."""
        if (known := self._cache.get(uid)) is not None:
            return known.status
        return self._records.get(uid, PodRuntimeStatus(uid=uid))

    def _with_kept_ips(self, status: PodRuntimeStatus) -> PodRuntimeStatus:
        """Return the status with its last addresses: a dead sandbox has none, but the pod's status keeps them."""
        known = self._cache.get(status.uid)
        if status.ips or known is None or any(sandbox.ready for sandbox in status.sandboxes) or status.is_empty:
            return status
        return status.with_ips(known.status.ips)


def written(length: timedelta) -> str:
    """Return a duration as Go writes it."""
    return Duration.of(length).wire()

"""A journal without a file, for simulations: no I/O, no threads, the same answers."""

from collections import deque
from datetime import datetime
from typing import Final

from klet.aio.broadcast import Broadcast, Subscription
from klet.aio.clock import Clock
from klet.api.klet_v1 import RecordedPod
from klet.journal.records import CauseQuery, bound_finding, next_number, recorded_pods, select_causes, to_id
from klet.model.causes import Cause, CauseId, Finding

DEFAULT_RECORDS: Final = 50_000


class MemoryJournal:
    """Keeps the newest records in memory."""

    def __init__(self, *, clock: Clock, max_records: int = DEFAULT_RECORDS) -> None:
        self._clock = clock
        self._causes: deque[Cause] = deque(maxlen=max_records)
        self._last = 0
        self._news = Broadcast[Cause]()

    def record(self, finding: Finding, *, parent: CauseId | None = None) -> CauseId:
        at = self._clock.now()
        self._last = next_number(self._last, at=at)
        cause = Cause(id=to_id(self._last), parent=parent, at=at, finding=bound_finding(finding))
        self._causes.append(cause)
        self._news.send(cause)
        return cause.id

    @property
    def last_record_at(self) -> datetime | None:
        """Return when the newest record was made, in this run or a previous one."""
        return self._causes[-1].at if self._causes else None

    def all(self) -> tuple[Cause, ...]:
        """Return every record that is kept, oldest first."""
        return tuple(self._causes)

    def follow(self) -> Subscription[Cause]:
        return self._news.subscribe()

    async def find(self, query: CauseQuery) -> tuple[Cause, ...]:
        return select_causes(self._causes, query)

    async def pods(self) -> tuple[RecordedPod, ...]:
        found = recorded_pods(self._causes)
        return tuple(sorted(found, key=lambda pod: (pod.namespace, pod.name)))

    async def chain(self, cause_id: CauseId) -> tuple[Cause, ...]:
        known = {cause.id: cause for cause in self._causes}
        chain: list[Cause] = []
        wanted: CauseId | None = cause_id
        while wanted is not None and (cause := known.pop(wanted, None)) is not None:
            chain.append(cause)
            wanted = cause.parent
        return tuple(reversed(chain))

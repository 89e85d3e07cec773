"""The journal of the agent: cause records in a bounded SQLite file that survives a restart.

Recording is a synchronous append to a buffer, which questions see too; a task writes the buffer out in batches on a
thread of its own. No error of the disk reaches the caller: the buffer keeps the newest, and the file is tried
again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, TypeVar

from klet.aio.broadcast import Broadcast, Subscription
from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.api.klet_v1 import RecordedPod
from klet.journal.database import Database, JournalDamaged, JournalError, set_aside
from klet.journal.memory import DEFAULT_RECORDS
from klet.journal.records import (
    CauseQuery,
    bound_finding,
    from_microseconds,
    next_number,
    recorded_pods,
    select_causes,
    to_id,
)
from klet.model.causes import Cause, CauseId, Finding
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.model.verbosity import CHANGES

logger = logging.getLogger(__name__)

T = TypeVar("T")

GATHER: Final = timedelta(milliseconds=100)
"""How long the first record of a batch waits for more."""
RETRY: Final = timedelta(seconds=5)
"""How long to wait after a failed write."""
MOST_UNWRITTEN: Final = 10_000
DECIDER: Final = "journal.store"


class Journal:
    """Records causes and answers questions about them."""

    def __init__(self, *, path: Path, clock: Clock, max_records: int = DEFAULT_RECORDS) -> None:
        self._path = path
        self._clock = clock
        self._max_records = max_records
        self._threads = Threads(limit=1, name="klet-journal")
        self._database: Database | None = None
        self._unwritten: deque[Cause] = deque()
        self._filled = asyncio.Event()
        self._last = 0
        self._dropped = 0
        self._dropped_ever = 0
        self._damaged: list[tuple[str, Path]] = []
        """Files that were set aside and not recorded yet: records are made on the loop, files handled on the thread."""
        self._is_failing = False
        self._is_closed = False
        self._news = Broadcast[Cause]()

    async def open(self) -> None:
        """Read where the ids stand. A file that cannot be opened is tried again later; records wait in memory."""
        try:
            last = await self._threads.run(self._last_written)
        except JournalError as error:
            self._note_failure(error)
        else:
            self._last = max(self._last, last)
            self._record_damage()

    @property
    def unwritten(self) -> int:
        """How many records are not on disk yet."""
        return len(self._unwritten)

    @property
    def dropped(self) -> int:
        """How many records were given up since the journal was opened."""
        return self._dropped_ever

    @property
    def last_record_at(self) -> datetime | None:
        """Return when the newest record was made, in this run or a previous one."""
        return from_microseconds(self._last) if self._last else None

    async def run(self) -> None:
        """Write out what is recorded, until cancelled; `close` writes the rest."""
        while True:
            await self._filled.wait()
            self._filled.clear()
            await self._clock.sleep(GATHER)
            if not await self.flush():
                await self._clock.sleep(RETRY)
                self._filled.set()

    async def flush(self) -> bool:
        """Write what has been recorded until now; False when it could not be written."""
        batch = tuple(self._unwritten)
        if not batch:
            return True
        try:
            await self._threads.run(self._write, batch)
        except JournalError as error:
            self._note_failure(error)
            return False
        self._record_damage()
        # What was dropped meanwhile is older than what was just written and no longer at the front.
        while self._unwritten and self._unwritten[0].id <= batch[-1].id:
            self._unwritten.popleft()
        if self._is_failing:
            self._is_failing = False
            logger.info("Journal written again", extra={"path": str(self._path), "dropped": self._dropped})
            self._dropped = 0
        return True

    async def close(self) -> None:
        """Write what is left and close the file. Records made afterwards are lost."""
        if self._is_closed:
            return
        self._is_closed = True
        await self.flush()
        await self._threads.run(self._close)
        self._threads.close()

    def record(self, finding: Finding, *, parent: CauseId | None = None) -> CauseId:
        at = self._clock.now()
        self._last = next_number(self._last, at=at)
        cause = Cause(id=to_id(self._last), parent=parent, at=at, finding=bound_finding(finding))
        if len(self._unwritten) >= MOST_UNWRITTEN:
            self._unwritten.popleft()
            self._dropped += 1
            self._dropped_ever += 1
        self._unwritten.append(cause)
        self._filled.set()
        self._news.send(cause)
        _log_decision(cause)
        return cause.id

    def follow(self) -> Subscription[Cause]:
        """Return new records from now on, as they are made."""
        return self._news.subscribe()

    async def find(self, query: CauseQuery) -> tuple[Cause, ...]:
        """Return the newest records that the query selects, oldest first."""
        unwritten = tuple(self._unwritten)
        written = await self._threads.run(self._find_written, query)
        return select_causes((*written, *unwritten), query)

    async def pods(self) -> tuple[RecordedPod, ...]:
        """Return every pod that there are records about, also those that are gone."""
        unwritten = recorded_pods(self._unwritten)
        found = {(pod.namespace, pod.name): pod for pod in await self._threads.run(self._pods_written)}
        found |= {(pod.namespace, pod.name): pod for pod in unwritten}
        return tuple(found[key] for key in sorted(found))

    async def chain(self, cause_id: CauseId) -> tuple[Cause, ...]:
        """Return what led to a record: its known ancestors, the first one first, and itself."""
        unwritten = {cause.id: cause for cause in self._unwritten}
        return await self._threads.run(self._chain, cause_id, unwritten)

    def _note_failure(self, error: JournalError) -> None:
        if not self._is_failing:
            self._is_failing = True
            logger.warning("Journal not written, will try again", extra={"error": str(error)})

    def _record_damage(self) -> None:
        while self._damaged:
            error, aside = self._damaged.pop()
            DecisionRecorder(self, decider=DECIDER).for_node().record(
                Reason.STATE_FILE_DAMAGED,
                f"{error}; it is set aside as {aside.name}",
                measurements={"file": str(self._path), "setAside": str(aside)},
                next_step="begin a new journal",
            )

    def _last_written(self) -> int:
        return self._with_database(Database.last_number)

    def _write(self, batch: tuple[Cause, ...]) -> None:
        self._with_database(lambda database: database.append(batch, max_records=self._max_records))

    def _find_written(self, query: CauseQuery) -> tuple[Cause, ...]:
        try:
            return self._with_database(lambda database: database.find(query))
        except JournalError as error:
            logger.warning("Journal not read", extra={"error": str(error)})
            return ()

    def _pods_written(self) -> tuple[RecordedPod, ...]:
        try:
            return self._with_database(Database.pods)
        except JournalError as error:
            logger.warning("Journal not read", extra={"error": str(error)})
            return ()

    def _get_written(self, cause_id: CauseId) -> Cause | None:
        try:
            return self._with_database(lambda database: database.get(cause_id))
        except JournalError as error:
            logger.warning("Journal not read", extra={"error": str(error)})
            return None

    def _chain(self, cause_id: CauseId, unwritten: dict[CauseId, Cause]) -> tuple[Cause, ...]:
        chain: deque[Cause] = deque()
        wanted: CauseId | None = cause_id
        while wanted is not None and (cause := unwritten.get(wanted) or self._get_written(wanted)) is not None:
            chain.appendleft(cause)
            # A parent must be older than its child: a damaged file with a circle ends here.
            wanted = cause.parent if cause.parent is not None and cause.parent < cause.id else None
        return tuple(chain)

    def _with_database(self, action: Callable[[Database], T]) -> T:
        """Open the file if needed and use it; a damaged one is renamed and a new one started."""
        try:
            return action(self._open())
        except JournalDamaged as error:
            self._set_aside(error)
            return action(self._open())

    def _open(self) -> Database:
        if self._database is None:
            self._database = Database.open(self._path)
        return self._database

    def _close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def _set_aside(self, error: JournalDamaged) -> None:
        self._close()
        try:
            target = set_aside(self._path, stamp=self._clock.now().strftime("%Y%m%d-%H%M%S"))
        except OSError as reason:
            raise JournalError(f"cannot set the damaged journal {self._path} aside: {reason.strerror}") from reason
        logger.error("Journal damaged, renamed and a new one started", extra={"error": str(error), "path": str(target)})
        self._damaged.append((str(error), target))


def _log_decision(cause: Cause) -> None:
    """Log a decision as a line of the module that took it, so that `--vmodule` finds it there."""
    finding, subject = cause.finding, cause.finding.subject
    decider = logging.getLogger(f"klet.{finding.decider}")
    if not decider.isEnabledFor(CHANGES):
        return
    extra = {"decision": str(finding.decision), "decider": finding.decider, "reason": finding.message}
    if subject.name:
        extra |= {"pod": f"{subject.namespace}/{subject.name}", "uid": subject.uid}
    if subject.container:
        extra["container"] = subject.container
    decider.log(CHANGES, "Decision", extra=extra)

"""Reports processes that the kernel kills for memory (upstream's OOM watcher).

A kill because the whole machine is out of memory is upstream's Event SystemOOM on the Node. One at a limit is an Event
on the pod, also when the container goes on without that process: upstream has none, and a worker that dies again and
again would be a riddle. What the kernel logs names the process; the counters of the cgroups say how many there were,
since the kernel logs only some of a long series. Both are read after a kill alone.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from contextlib import aclosing
from datetime import timedelta
from typing import Final, Protocol

from msgspec import Struct

from klet.aio.clock import Clock
from klet.aio.tasks import first_of
from klet.host.kmsg import KernelMessage, OomKill, OomParser
from klet.model.causes import CauseRecorder
from klet.model.pods import PodUID
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.model.roles import PodsInRuntime
from klet.model.runtime import PodRuntimeStatus
from klet.node.oom_report import Owner, describe_kill, describe_system, find_owner, measure_kill

logger = logging.getLogger(__name__)

DECIDER: Final = "node.oom"
SETTLING: Final = timedelta(milliseconds=200)
"""How long is waited for more lines: a container whose processes all die is one Event."""
PAUSE: Final = timedelta(seconds=10)
"""The shortest time between two records about one container, and the window of those about the node."""
MOST_SYSTEM: Final = 20
"""Records about the node in one window."""
MOST_UNKNOWN: Final = 100
"""Kills of unknown cgroups that are kept until the counters are read."""


class KernelMessages(Protocol):
    """The kernel's log."""

    def messages(self) -> AsyncGenerator[KernelMessage, None]: ...


class OomCounts(Protocol):
    """The counters of the containers' cgroups."""

    async def read(self, containers: Collection[str]) -> Mapping[str, int]: ...


class _Tally(Struct):
    """What happened in one container since it was last recorded."""

    kill: OomKill | None
    """The first; None if it is not known which it was."""
    logged: int = 0
    counted: int = 0

    @property
    def kills(self) -> int:
        return max(self.logged, self.counted)


class OomWatcher:
    """Watches the kernel's log for kills."""

    def __init__(
        self,
        *,
        log: KernelMessages,
        seen: PodsInRuntime,
        until_seen: Callable[[], Awaitable[None]],
        counts: OomCounts,
        recorder: CauseRecorder,
        clock: Clock,
    ) -> None:
        self._log = log
        self._seen = seen
        self._until_seen = until_seen
        self._counts = counts
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)
        self._clock = clock
        self._kills: deque[OomKill] = deque(maxlen=MOST_UNKNOWN)
        """Those at a limit that are not sorted yet."""
        self._overlooked = 0
        self._tallies: dict[Owner, _Tally] = {}
        self._due: dict[Owner, float] = {}
        """When the next record about a container may be made."""
        self._counted: dict[str, int] = {}
        self._come = asyncio.Event()
        self._system_window, self._system_kills = 0.0, 0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            await self._until_seen()
            # What was counted before, in containers of a previous run, is no news.
            self._counted = dict(await self._read_counts())
            await self._report()

    async def _watch(self) -> None:
        parser = OomParser()
        async with aclosing(self._log.messages()) as messages:
            async for message in messages:
                kill = parser.feed(message)
                if kill is None:
                    continue
                if kill.is_system:
                    self._record_system(kill)
                self._overlooked += len(self._kills) == MOST_UNKNOWN
                self._kills.append(kill)
                self._come.set()

    def _record_system(self, kill: OomKill) -> None:
        now = self._clock.monotonic()
        if now - self._system_window >= PAUSE.total_seconds():
            self._system_window, self._system_kills = now, 0
        self._system_kills += 1
        if self._system_kills > MOST_SYSTEM:
            if self._system_kills == MOST_SYSTEM + 1:
                logger.warning("Got more sys oom events than are recorded", extra={"recorded": MOST_SYSTEM})
            return
        logger.info("Got sys oom event", extra={"victim": kill.process, "pid": kill.pid})
        self._decisions.for_node().record(
            Reason.SYSTEM_OOM, describe_system(kill), measurements=measure_kill(kill, kills=1)
        )

    async def _report(self) -> None:
        while True:
            await self._until_due()
            await self._clock.sleep(SETTLING)
            self._come.clear()
            await self._sort()
            self._record_due()

    async def _until_due(self) -> None:
        """Wait for the next kill, or until one that is held back may be recorded."""
        if not self._tallies:
            await self._come.wait()
            return
        next_at = min(self._due.get(owner, 0.0) for owner in self._tallies)
        wait = timedelta(seconds=max(0.0, next_at - self._clock.monotonic()))
        await first_of(self._come.wait(), self._clock.sleep(wait))
        if self._come.is_set() and wait:
            # Kills without end must not make this a busy loop.
            await self._clock.sleep(min(wait, timedelta(seconds=1)))

    async def _sort(self) -> None:
        """Find out in which containers processes were killed."""
        kills, overlooked = tuple(self._kills), self._overlooked
        self._kills.clear()
        self._overlooked = 0
        pods = self._seen.pods()
        unknown = [kill for kill in kills if not self._tally(kill, pods)]
        counts = await self._read_counts()
        risen = {id_: rise for id_, count in counts.items() if (rise := count - self._counted.get(id_, 0)) > 0}
        self._counted = dict(counts)
        owners = {id_: owner for id_ in risen if (owner := find_owner(id_, pods)) is not None}
        unnamed = [owner for owner in owners.values() if owner not in self._tallies]
        # The kernel left out in which cgroup an unknown one was: only where one is possible, it was that.
        guess = unknown[0] if unknown and len(unnamed) == 1 else None
        for id_, owner in owners.items():
            self._tallies.setdefault(owner, _Tally(guess)).counted += risen[id_]
        if overlooked:
            logger.warning("More OOM kills than are looked at one by one", extra={"kills": overlooked})

    def _tally(self, kill: OomKill, pods: Mapping[PodUID, PodRuntimeStatus]) -> bool:
        """Note a kill in a container of ours; return whether its cgroup is known at all."""
        if not kill.process_memcg and not kill.is_system:
            return False
        owner = find_owner(kill.process_memcg, pods)
        if owner is None:
            logger.debug("Got an oom event outside of pods", extra={"cgroup": kill.process_memcg, "pid": kill.pid})
        else:
            self._tallies.setdefault(owner, _Tally(kill)).logged += 1
        return True

    def _record_due(self) -> None:
        now = self._clock.monotonic()
        self._due = {owner: due for owner, due in self._due.items() if due > now}
        for owner in [owner for owner in self._tallies if owner not in self._due]:
            tally = self._tallies.pop(owner)
            self._due[owner] = now + PAUSE.total_seconds()
            self._decisions.about(owner.subject).record(
                Reason.OOM_KILLING,
                describe_kill(tally.kill, owner, kills=tally.kills),
                measurements=measure_kill(tally.kill, kills=tally.kills),
            )

    async def _read_counts(self) -> Mapping[str, int]:
        running = [record.id for pod in self._seen.pods().values() for record in pod.running()]
        return await self._counts.read(running) if running else {}

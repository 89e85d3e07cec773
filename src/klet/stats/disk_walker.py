"""Measures again and again what is asked for on disks (the background half of upstream's resource analyzer).

Nothing is measured that nobody has asked for in the last minutes. A large tree is measured apart from the others, and
the more rarely the longer it takes, so that neither the CPU nor the small ones have to wait for it.
"""

import asyncio
import logging
import math
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from klet.aio.broadcast import Broadcast, Lagged
from klet.aio.clock import Clock
from klet.aio.workqueue import WorkQueue
from klet.host.disk_usage import DiskReading, DiskTarget, DiskTargetKind, DiskUsage, NotMeasured
from klet.metrics import Histogram

logger = logging.getLogger(__name__)

DEMAND: Final = timedelta(minutes=5)
"""How long something is measured after it was last asked for."""
QUICK_ENTRIES: Final = 2_000
"""A tree with more entries is large."""
BATCH: Final = 64
"""Targets that are measured in one go: in between, those come first that nothing is known of yet."""
SHORTEST_WAIT: Final = 1.0
"""Seconds in which targets become due that are measured together."""
BREATH: Final = timedelta(milliseconds=20)
SLOW_LANES: Final = 2
PERIOD_PER_WALK: Final = 10
"""A tree is left alone for at least so many times as long as its last walk took."""


_VOLUMES: Final = frozenset({DiskTargetKind.TREE, DiskTargetKind.FILESYSTEM, DiskTargetKind.DRIVER})


class DiskMeter(Protocol):
    """Measures what is on disks."""

    async def measure(
        self, targets: Iterable[DiskTarget], *, most: int | None = None
    ) -> Mapping[DiskTarget, DiskReading]:
        """Measure targets one after the other, none with more than `most` entries."""
        ...


class Measurement(Struct, frozen=True):
    """What a target took, and when."""

    usage: DiskUsage
    at: datetime


class WatchedTarget(Struct, frozen=True, kw_only=True):
    """What is known of one target."""

    period: timedelta
    due: float
    """On the monotonic clock."""
    last: Measurement | None = None
    was_tried: bool = False
    is_large: bool = False


class DiskWalker:
    """Keeps the newest measurement of everything that is asked for."""

    def __init__(self, *, meter: DiskMeter, durations: Histogram, clock: Clock) -> None:
        self._meter = meter
        self._durations = durations
        self._clock = clock
        self._targets: dict[DiskTarget, WatchedTarget] = {}
        self._asked: float | None = None
        self._wake = asyncio.Event()
        self._tried = Broadcast[DiskTarget]()
        self._slow = WorkQueue[DiskTarget](clock=clock)
        self._warned: set[DiskTarget] = set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(SLOW_LANES):
                group.create_task(self._measure_slow(), name="slow disk measurements")
            await self._measure_quick()

    def ask(self, targets: Mapping[DiskTarget, timedelta]) -> None:
        """Have these measured, each after its period; all others are forgotten."""
        now = self._clock.monotonic()
        # What was measured long ago is not better than nothing.
        before: Mapping[DiskTarget, WatchedTarget] = self._targets if self._is_asked(now) else {}
        self._targets = {}
        for target, period in targets.items():
            known = before.get(target)
            if known is None:
                known = WatchedTarget(period=period, due=now)
            elif known.period != period:
                known = replace(known, period=period, due=min(known.due, now + period.total_seconds()))
            self._targets[target] = known
        self._warned &= self._targets.keys()
        self._asked = now
        self._wake.set()

    def get(self, target: DiskTarget) -> Measurement | None:
        """Return the newest measurement; None if there is none, or the last one failed."""
        known = self._targets.get(target)
        return known.last if known is not None else None

    async def until_tried(self, targets: Collection[DiskTarget], *, at_most: timedelta) -> None:
        """Wait until each target was measured once, or that failed. One that is large is not waited for."""
        with self._tried.subscribe() as tried:
            if not self._untried(targets):
                return

            async def wait() -> None:
                async for target in tried:
                    if (isinstance(target, Lagged) or target in targets) and not self._untried(targets):
                        return

            await self._clock.wait(wait(), at_most=at_most)

    def expire(self) -> None:
        """Make everything due at once, as if it had never been tried."""
        now = self._clock.monotonic()
        self._targets = {target: replace(known, due=now, was_tried=False) for target, known in self._targets.items()}
        self._wake.set()

    def _is_asked(self, now: float) -> bool:
        return self._asked is not None and now <= self._asked + DEMAND.total_seconds()

    def _untried(self, targets: Collection[DiskTarget]) -> bool:
        known = (self._targets.get(target) for target in targets)
        return any(each is not None and not each.was_tried for each in known)

    async def _measure_quick(self) -> None:
        while True:
            self._wake.clear()
            now = self._clock.monotonic()
            if not self._is_asked(now):
                await self._wake.wait()
                continue
            due = self._take_due(now)
            if due:
                self._take_in(await self._meter.measure(due, most=QUICK_ENTRIES))
                await self._clock.sleep(BREATH)
            else:
                await self._clock.wait(self._wake.wait(), at_most=self._until_due(now))

    def _take_due(self, now: float) -> list[DiskTarget]:
        """Return what is to be measured next; what may take long is handed to the slow lanes."""
        quick: list[DiskTarget] = []
        for target, known in self._targets.items():
            if known.due > now:
                continue
            if is_slow(target, known):
                self._slow.add(target)
                self._targets[target] = replace(known, due=math.inf)
            else:
                quick.append(target)
        quick.sort(key=lambda target: self._targets[target].was_tried)
        return quick[:BATCH]

    def _until_due(self, now: float) -> timedelta:
        due = min((known.due for known in self._targets.values()), default=math.inf)
        return timedelta(seconds=min(max(due - now, SHORTEST_WAIT), DEMAND.total_seconds()))

    async def _measure_slow(self) -> None:
        while True:
            target = await self._slow.get()
            try:
                if target in self._targets:
                    started = self._clock.monotonic()
                    readings = await self._meter.measure((target,))
                    self._take_in(readings, took=self._clock.monotonic() - started)
            finally:
                self._slow.done(target)

    def _take_in(self, readings: Mapping[DiskTarget, DiskReading], *, took: float = 0.0) -> None:
        now, at = self._clock.monotonic(), self._clock.now()
        for target, reading in readings.items():
            known = self._targets.get(target)
            if known is None:
                continue
            self._targets[target] = take_in(known, reading, took=took, now=now, at=at)
            if isinstance(reading, DiskUsage):
                if target.kind in _VOLUMES:
                    self._durations.observe(reading.duration, reading.driver or reading.source)
                if not reading.is_complete:
                    self._warn(target, "it is too deep, too wide or changes too much")
            elif not reading.is_missing and not reading.is_large:
                self._warn(target, reading.reason)
            self._tried.send(target)

    def _warn(self, target: DiskTarget, reason: str) -> None:
        if target not in self._warned:
            self._warned.add(target)
            logger.warning("Disk usage not measured completely", extra={"path": target.path, "error": reason})


def is_slow(target: DiskTarget, known: WatchedTarget) -> bool:
    """Return whether a target may take long: a large tree, and a filesystem that others serve."""
    return known.is_large or target.kind in {DiskTargetKind.FILESYSTEM, DiskTargetKind.DRIVER}


def take_in(known: WatchedTarget, reading: DiskReading, *, took: float, now: float, at: datetime) -> WatchedTarget:
    """Return what is known of a target after a measurement, and when the next one is due.

    `took` are the seconds of one that was made apart from the others, with all pauses.
    """
    due = now + max(known.period.total_seconds(), PERIOD_PER_WALK * took)
    match reading:
        case NotMeasured(is_large=True):
            # It is measured again at once, apart from the others. Until then the old number is the best one.
            return replace(known, is_large=True, was_tried=True, due=now)
        case NotMeasured():
            return replace(known, last=None, was_tried=True, due=due)
        case DiskUsage():
            is_large = reading.entries > QUICK_ENTRIES
            return replace(known, last=Measurement(reading, at), was_tried=True, is_large=is_large, due=due)

"""Measures what directories and files take on disk, at a bounded pace.

The work is done in slices on threads of its own, with a pause after each: a large tree takes long, but never much of
the CPU, and no thread is busy for long. What hangs, as a dead network filesystem does, is left alone until it answers.
"""

import os
import stat
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.host.beneath import open_directory, split_end
from klet.host.disk import FilesystemUsage, filesystem_of, filesystem_usage
from klet.host.errors import FileError, FileMissing, file_error
from klet.host.tree_usage import BLOCK, TreeUsage, TreeWalk
from klet.model.volumes import UsageSource

SLICE: Final = 500
"""Entries of one slice, which takes one or two milliseconds."""
PAUSE: Final = timedelta(milliseconds=50)
"""After each slice: at most 10,000 entries in a second."""
PATIENCE: Final = timedelta(seconds=20)
"""For one slice; what takes longer is taken for dead."""
MOST_STUCK: Final = 2
"""While so many threads hang, no filesystem of a volume is looked at: each dead server would take one more thread,
until none is left for what lies on the disks of this machine."""
_BEGINNING: Final = 10
"""What it costs to find and open a directory, in entries."""


class DiskTargetKind(StrEnum):
    """What is measured."""

    TREE = "tree"
    """A directory with all in it, and its filesystem."""
    FILES = "files"
    """The regular files directly in a directory."""
    FILE = "file"
    FILESYSTEM = "filesystem"
    """The filesystem that is mounted there."""
    DRIVER = "driver"
    """A volume whose driver counts: it is asked, nothing is looked at."""


class DiskTarget(Struct, frozen=True):
    """Something to be measured."""

    kind: DiskTargetKind
    path: str
    depth: int
    """How many of the path's last names pods may have a hand in: no link is followed there."""


class DiskUsage(Struct, frozen=True, kw_only=True):
    """What a target takes."""

    used: int
    inodes: int
    filesystem: FilesystemUsage | None = None
    """That of a tree, or the target itself."""
    source: UsageSource = UsageSource.DU
    entries: int = 0
    duration: float = 0.0
    """Seconds of work, without pauses."""
    is_complete: bool = True
    driver: str = ""
    """Who counted, if that was a driver."""
    is_abnormal: bool | None = None
    """Whether the driver found the volume abnormal; None if it does not say."""
    condition: str = ""
    """How the driver describes that."""


class NotMeasured(Struct, frozen=True, kw_only=True):
    """A target without a number."""

    reason: str
    is_large: bool = False
    """It has more entries than were allowed."""
    is_missing: bool = False


DiskReading: TypeAlias = DiskUsage | NotMeasured


class QuotaReader(Protocol):
    """Knows what the kernel counts for directories with a project quota. It blocks."""

    def usage_of(self, directory: int) -> TreeUsage | None:
        """Return what an open directory takes with all in it; None if that is not counted. Raises OSError."""
        ...


class HostDiskMeter:
    """Measures what is on this machine's disks."""

    def __init__(self, *, threads: Threads, clock: Clock, quotas: QuotaReader) -> None:
        self._threads = threads
        self._clock = clock
        self._quotas = quotas
        self._stuck: dict[DiskTarget, _Job] = {}

    async def filesystem(self, path: Path) -> FilesystemUsage:
        """Return the filesystem that holds a path; raises FileError, also if there is no answer in time."""
        found: list[FilesystemUsage] = []

        async def read() -> None:
            found.append(await self._threads.run(filesystem_usage, path))

        await self._clock.wait(read(), at_most=PATIENCE)
        if not found:
            raise FileError(f"cannot read the filesystem of {path}: it does not answer", path=path)
        return found[0]

    async def measure(
        self, targets: Iterable[DiskTarget], *, most: int | None = None
    ) -> Mapping[DiskTarget, DiskReading]:
        """Measure targets one after the other, none with more than `most` entries."""
        self._stuck = {target: job for target, job in self._stuck.items() if job.is_busy}
        readings: dict[DiskTarget, DiskReading] = {
            target: NotMeasured(reason="a previous measurement has not ended") for target in self._stuck
        }
        wanted = [target for target in targets if target not in self._stuck]
        if len(self._stuck) >= MOST_STUCK:
            risky = [target for target in wanted if target.kind is DiskTargetKind.FILESYSTEM]
            readings |= {target: NotMeasured(reason="too many filesystems do not answer") for target in risky}
            wanted = [target for target in wanted if target not in readings]
        job = _Job(wanted, most, self._quotas, self._clock)
        try:
            while not await self._run_slice(job):
                await self._clock.sleep(PAUSE)
        finally:
            job.abandon()
        return readings | job.readings

    async def _run_slice(self, job: "_Job") -> bool:
        """Return whether the job has ended, or does not answer any more."""
        ended: list[bool] = []

        async def run() -> None:
            ended.append(await self._threads.run(job.run, SLICE))

        await self._clock.wait(run(), at_most=PATIENCE)
        if ended:
            return ended[0]
        if job.current is not None:
            self._stuck[job.current] = job
            job.readings[job.current] = NotMeasured(reason="the filesystem does not answer")
        return True


class _Job:
    """Targets that are measured in slices, each of which may run on another thread."""

    def __init__(self, targets: Iterable[DiskTarget], most: int | None, quotas: QuotaReader, clock: Clock) -> None:
        self.readings: dict[DiskTarget, DiskReading] = {}
        self._waiting = deque(targets)
        self._most = most
        self._quotas = quotas
        self._clock = clock
        self._walk: TreeWalk | None = None
        self._filesystem: FilesystemUsage | None = None
        self._spent = 0.0
        self._lock = threading.Lock()
        self._is_abandoned = False

    @property
    def current(self) -> DiskTarget | None:
        return self._waiting[0] if self._waiting else None

    @property
    def is_busy(self) -> bool:
        """Whether a thread is at work for it."""
        return self._lock.locked()

    def run(self, units: int) -> bool:
        """Measure until the units are used up; return whether all targets are done."""
        with self._lock:
            while self._waiting and units > 0 and not self._is_abandoned:
                units = self._go_on(self._waiting[0], units)
            is_done = not self._waiting
        if self._is_abandoned:
            self._close_if_idle()
        return is_done

    def abandon(self) -> None:
        """Close what is open, as soon as no thread is at work any more."""
        self._is_abandoned = True
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self._lock.acquire(blocking=False):
            try:
                self._close()
            finally:
                self._lock.release()

    def _close(self) -> None:
        if self._walk is not None:
            self._walk.close()
            self._walk = None

    def _go_on(self, target: DiskTarget, units: int) -> int:
        started = self._clock.monotonic()
        reading: DiskReading | None
        try:
            if self._walk is None:
                units -= _BEGINNING
                self._spent, self._filesystem = 0.0, None
                reading = self._begin(target)
            else:
                reading = None
            if self._walk is not None:
                left = self._walk.step(max(units, 1))
                reading, units = self._look_at(self._walk.usage, is_done=left > 0), left
        except FileMissing as error:
            reading = NotMeasured(reason=str(error), is_missing=True)
        except FileError as error:
            reading = NotMeasured(reason=str(error))
        except OSError as error:
            reading = NotMeasured(reason=str(file_error("measure", Path(target.path), error)))
        self._spent += self._clock.monotonic() - started
        if reading is not None:
            self._close()
            self.readings[target] = (
                replace(reading, duration=self._spent) if isinstance(reading, DiskUsage) else reading
            )
            self._waiting.popleft()
        return units

    def _begin(self, target: DiskTarget) -> DiskReading | None:
        """Return what can be said at once; None if a walk has begun."""
        root, names = split_end(target.path, target.depth)
        with ExitStack() as opened:
            if target.kind is DiskTargetKind.FILE:
                directory = opened.enter_context(open_directory(root, *names[:-1], action="measure"))
                found = os.lstat(names[-1], dir_fd=directory)
                if not stat.S_ISREG(found.st_mode):
                    return NotMeasured(reason=f"{target.path} is not a regular file")
                return DiskUsage(used=found.st_blocks * BLOCK, inodes=1)
            directory = opened.enter_context(open_directory(root, *names, action="measure"))
            if target.kind is DiskTargetKind.FILESYSTEM:
                filesystem = filesystem_of(directory)
                return DiskUsage(
                    used=filesystem.used,
                    inodes=filesystem.inodes_used,
                    filesystem=filesystem,
                    source=UsageSource.STATFS,
                )
            if target.kind is DiskTargetKind.TREE:
                self._filesystem = filesystem_of(directory)
                counted = self._quotas.usage_of(directory)
                if counted is not None:
                    return self._found(counted, UsageSource.FSQUOTA)
            self._walk = TreeWalk(directory, is_flat=target.kind is DiskTargetKind.FILES)
        return None

    def _look_at(self, usage: TreeUsage, *, is_done: bool) -> DiskReading | None:
        if is_done:
            return self._found(usage, UsageSource.DU)
        if self._most is not None and usage.entries > self._most:
            return NotMeasured(reason=f"it has more than {self._most} entries", is_large=True)
        return None

    def _found(self, usage: TreeUsage, source: UsageSource) -> DiskUsage:
        return DiskUsage(
            used=usage.used,
            inodes=usage.inodes,
            filesystem=self._filesystem,
            source=source,
            entries=usage.entries,
            is_complete=usage.is_complete,
        )

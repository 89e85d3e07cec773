"""Mounts and unmounts, one step of one volume of one pod after the other (volume manager: reconciler).

Volumes are handled independently: a slow one delays no other. A failed operation is retried after a back-off.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Final, TypeVar, assert_never

from msgspec.structs import replace

from klet.aio.clock import Clock
from klet.aio.workqueue import WorkQueue
from klet.errors import KletError
from klet.model.causes import CauseRecorder
from klet.model.foreign_text import shorten
from klet.model.pods import PodUID, subject_of
from klet.volumes import findings
from klet.volumes.errors import VolumeSetupError
from klet.volumes.metrics import MOUNTED, VolumeMetrics
from klet.volumes.mount_checks import check_mount
from klet.volumes.names import MountKey
from klet.volumes.operations import Operation, OperationBackoff
from klet.volumes.plugins.base import MountRequest
from klet.volumes.state import (
    ActualMount,
    DesiredMount,
    Leave,
    Mount,
    MountState,
    Unmount,
    VolumeBoards,
    decide_step,
)

T = TypeVar("T")

logger = logging.getLogger(__name__)

_LONGEST_ERROR: Final = 512
JITTER: Final = 0.5


class MountReconciler:
    """Brings the actual state of volumes to the desired one."""

    def __init__(
        self,
        *,
        boards: VolumeBoards,
        find_labels: Callable[[], Mapping[str, str] | None],
        recorder: CauseRecorder,
        metrics: VolumeMetrics,
        refresh: timedelta,
        randomness: random.Random,
        clock: Clock,
    ) -> None:
        self._metrics = metrics
        self._wanted_since: dict[MountKey, float] = {}
        self._boards = boards
        self._find_labels = find_labels
        self._recorder = recorder
        self._refresh = refresh
        self._random = randomness
        self._clock = clock
        self._backoff = OperationBackoff()
        self._queue = WorkQueue[MountKey](clock=clock)
        self._busy: dict[PodUID, int] = {}
        self._mounting: set[MountKey] = set()

    async def run(self) -> None:
        """Run the operations until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                # The queue hands out no key twice at once: operations on one volume of one pod never overlap.
                key = await self._queue.get()
                group.create_task(self._handle(key), name=f"volume {key.volume}")

    def add(self, key: MountKey) -> None:
        """Handle a volume of a pod: its state may not be the desired one."""
        if not self._boards.actual.is_mounted(key):
            self._wanted_since.setdefault(key, self._clock.monotonic())
        self._queue.add(key)

    def renew(self, key: MountKey) -> None:
        """Bring a volume up to date, at once even if its last try failed."""
        self._boards.desired.touch(key)
        self._backoff.forget(key)
        self._queue.add(key)

    def is_busy(self, uid: PodUID) -> bool:
        """Return whether an operation on a volume of a pod has begun."""
        return uid in self._busy

    async def _handle(self, key: MountKey) -> None:
        """Carry out the next step of one volume of one pod."""
        boards = self._boards
        try:
            with self._working(key.uid):
                desired, actual, now = boards.desired.get(key), boards.actual.get(key), self._clock.monotonic()
                step = decide_step(
                    desired, actual, is_leaving=key.uid in boards.leaving, may_mount=self._may_mount(desired), now=now
                )
                match step:
                    case Mount():
                        assert desired is not None  # there is nothing to mount otherwise
                        await self._mount(desired, step)
                    case Unmount():
                        assert actual is not None  # there is nothing to unmount otherwise
                        await self._unmount(actual)
                    case Leave(until=until):
                        if desired is None:
                            self._wanted_since.pop(key, None)
                        if until is not None:
                            self._queue.add_after(key, timedelta(seconds=until - now))
                    case _:
                        assert_never(step)
        finally:
            self._queue.done(key)
            boards.waiters.notify(key.uid)

    def _may_mount(self, desired: DesiredMount | None) -> bool:
        if desired is None or not desired.is_attachable:
            return True
        # Upstream: mounted only once the node's status reports it in use, so that no controller detaches it meanwhile.
        name = desired.key.volume
        return self._boards.desired.is_reported(name) or self._boards.actual.has(name)

    async def _mount(self, desired: DesiredMount, step: Mount) -> None:
        key = desired.key
        if self._must_wait(key, Operation.MOUNT):
            return
        try:
            # A change during this call raises the revision on the board, not here: the next pass sees the difference.
            with self._measured(desired.plugin.name, Operation.MOUNT):
                old_at = await _carry_out(self._set_up(desired, step), key)
        except KletError as error:
            retry_at = self._try_later(key, Operation.MOUNT)
            self._recorder.record(findings.mount_failed(desired, error, retry_at=retry_at))
            return
        self._backoff.forget(key)
        mounted = ActualMount(
            key=key,
            plugin=desired.plugin,
            name=desired.spec.name,
            state=MountState.MOUNTED,
            subject=subject_of(desired.pod),
            is_attachable=desired.is_attachable,
            revision=desired.revision,
        )
        if desired.plugin.requires_remount:
            now = self._clock.now()
            wait = self._refresh * (1 + JITTER * self._random.random())
            if old_at is not None and now < old_at < now + wait:
                wait = old_at - now
            mounted = replace(mounted, refresh_at=self._clock.monotonic() + wait.total_seconds())
            self._queue.add_after(key, wait)
        self._boards.actual.put(mounted)
        if (since := self._wanted_since.pop(key, None)) is not None:
            self._metrics.whole.observe(self._clock.monotonic() - since, desired.plugin.name, MOUNTED)

    async def _set_up(self, desired: DesiredMount, step: Mount) -> datetime | None:
        key = desired.key
        check_mount(desired.spec, desired.plugin, labels=self._find_labels(), is_elsewhere=self._is_elsewhere(key))
        request = MountRequest(
            pod=desired.pod, allocation=desired.allocation, spec=desired.spec, is_remount=step.is_remount
        )
        self._mounting.add(key)
        try:
            return await desired.plugin.set_up(request)
        finally:
            self._mounting.discard(key)

    def _is_elsewhere(self, key: MountKey) -> bool:
        """Return whether another pod has the volume, or is about to."""
        if self._boards.actual.is_elsewhere(key):
            return True
        return any(each.volume == key.volume and each.uid != key.uid for each in self._mounting)

    async def _unmount(self, actual: ActualMount) -> None:
        key = actual.key
        if self._must_wait(key, Operation.UNMOUNT):
            return
        try:
            with self._measured(actual.plugin.name, Operation.UNMOUNT):
                await _carry_out(actual.plugin.tear_down(key.uid, actual.name), key)
        except KletError as error:
            # It may be half gone: containers must not get it, and only a whole set-up makes it mounted again.
            self._boards.actual.put(replace(actual, state=MountState.UNCERTAIN))
            retry_at = self._try_later(key, Operation.UNMOUNT)
            self._recorder.record(findings.unmount_failed(actual, str(error), retry_at=retry_at))
            return
        self._backoff.forget(key)
        self._queue.forget(key)
        self._wanted_since.pop(key, None)
        self._boards.actual.remove(key)
        self._boards.publish_use(key, is_attachable=actual.is_attachable)

    def _must_wait(self, key: MountKey, operation: Operation) -> bool:
        remaining = self._backoff.remaining(key, operation, now=self._clock.monotonic())
        if remaining is not None:
            self._queue.add_after(key, remaining)
        return remaining is not None

    def _try_later(self, key: MountKey, operation: Operation) -> datetime:
        """Schedule the retry of a failed operation; return when it is due."""
        delay = self._backoff.failed(key, operation, now=self._clock.monotonic())
        self._queue.add_after(key, delay)
        return self._clock.now() + delay

    @contextmanager
    def _measured(self, plugin: str, operation: Operation) -> Iterator[None]:
        began, is_done = self._clock.monotonic(), False
        try:
            yield
            is_done = True
        finally:
            self._metrics.note(plugin, operation, seconds=self._clock.monotonic() - began, is_done=is_done)

    @contextmanager
    def _working(self, uid: PodUID) -> Iterator[None]:
        self._busy[uid] = self._busy.get(uid, 0) + 1
        try:
            yield
        finally:
            self._busy[uid] -= 1
            if not self._busy[uid]:
                del self._busy[uid]


async def _carry_out(operation: Awaitable[T], key: MountKey) -> T:
    """Run a plugin's operation. Any failure of it concerns this volume alone, and is retried."""
    try:
        return await operation
    except KletError:
        raise
    except Exception as error:
        logger.exception("A volume could not be handled", extra={"uid": key.uid, "volume": str(key.volume)})
        raise VolumeSetupError(shorten(f"{type(error).__name__}: {error}", _LONGEST_ERROR)) from error

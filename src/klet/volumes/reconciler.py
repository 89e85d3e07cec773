"""Mounts and unmounts, one step of one volume after the other (volume manager: reconciler).

Volumes are handled independently: a slow one delays no other. Operations that exclude one another take turns
(`operations.py`), and a failed one is retried after a back-off.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Final, Protocol, assert_never

from msgspec import Struct
from msgspec.structs import replace

from klet.aio.clock import Clock
from klet.aio.workqueue import WorkQueue
from klet.errors import KletError
from klet.model.causes import CauseRecorder, Finding
from klet.model.pods import PodUID
from klet.volumes import findings
from klet.volumes.attaching import AttachView
from klet.volumes.device_stage import DeviceStage
from klet.volumes.devices import NodeDevice
from klet.volumes.expansion import VolumeExpander
from klet.volumes.metrics import MeasuredKind, VolumeMetrics, kind_of
from klet.volumes.names import MountKey, VolumeName
from klet.volumes.operations import WHOLE, Operation, OperationBackoff, RunningOperations, whole
from klet.volumes.pod_stage import PodStage, describe
from klet.volumes.state import ActualMount, DesiredMount, MountState, VolumeBoards
from klet.volumes.steps import (
    Attach,
    AttachWay,
    DetachDevice,
    Expand,
    ForgetDevice,
    Leave,
    Mount,
    Unmount,
    UnmountDevice,
    decide_device_step,
    decide_step,
    has_other_label,
)

JITTER: Final = 0.5


class DescribeFailure(Protocol):
    """Says what has failed, for the journal and for Events."""

    def __call__(self, error: KletError, *, retry_at: datetime) -> Finding: ...


class Stages(Struct, frozen=True):
    """Who carries out operations."""

    pods: PodStage
    devices: DeviceStage
    expander: VolumeExpander


class MountReconciler:
    """Brings the actual state of volumes to the desired one."""

    def __init__(
        self,
        *,
        boards: VolumeBoards,
        stages: Stages,
        attach_view: AttachView,
        recorder: CauseRecorder,
        metrics: VolumeMetrics,
        refresh: timedelta,
        randomness: random.Random,
        clock: Clock,
    ) -> None:
        self._boards = boards
        self._stages = stages
        self._attach_view = attach_view
        self._recorder = recorder
        self._metrics = metrics
        self._refresh = refresh
        self._random = randomness
        self._clock = clock
        self._backoff = OperationBackoff()
        self._running = RunningOperations()
        self._queue = WorkQueue[MountKey](clock=clock)
        self._busy: dict[PodUID, int] = {}
        self._wanted_since: dict[MountKey, float] = {}

    async def run(self) -> None:
        """Run the operations until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                # The queue hands out no key twice at once: the steps of one volume of one pod never overlap.
                key = await self._queue.get()
                group.create_task(self._handle(key), name=f"volume {key.volume}")

    def add(self, key: MountKey) -> None:
        """Handle a volume of a pod: its state may not be the desired one."""
        if not self._boards.actual.is_mounted(key):
            self._wanted_since.setdefault(key, self._clock.monotonic())
        self._queue.add(key)

    def add_device(self, name: VolumeName) -> None:
        """Handle a device: perhaps nobody needs it any more."""
        self._queue.add(whole(name))

    def drop(self, key: MountKey) -> None:
        """Forget a volume that its pod does not want any more, unless it has it: its failures do not count any more."""
        if self._boards.actual.get(key) is None:
            self._wanted_since.pop(key, None)
            self._backoff.forget(key)

    def renew(self, key: MountKey) -> None:
        """Bring a volume up to date, at once even if its last try failed."""
        self._boards.desired.touch(key)
        self.retry(key)

    def retry(self, key: MountKey) -> None:
        """Handle a volume at once even if its last try failed: the reason may be gone."""
        self._backoff.forget(key)
        self._backoff.forget(whole(key.volume))
        self._queue.add(key)

    def is_busy(self, uid: PodUID) -> bool:
        """Return whether an operation on a volume of a pod has begun."""
        return uid in self._busy

    async def _handle(self, key: MountKey) -> None:
        """Carry out the next step of one volume of one pod, or of one device."""
        try:
            if key.uid == WHOLE:
                await self._handle_device(key)
            else:
                with self._working(key.uid):
                    await self._handle_mount(key)
        finally:
            self._queue.done(key)
            self._boards.waiters.notify(key.uid)

    async def _handle_mount(self, key: MountKey) -> None:
        boards = self._boards
        desired, actual, device = boards.desired.get(key), boards.actual.get(key), boards.devices.get(key.volume)
        step = decide_step(
            desired,
            actual,
            device,
            is_leaving=key.uid in boards.leaving,
            attach=self._attach_view.decide(desired, device),
            now=self._clock.monotonic(),
        )
        match step:
            case Leave(until=until):
                if desired is None and actual is None:
                    self.drop(key)
                self._wake_at(key, until)
            case Unmount():
                assert actual is not None  # there is nothing to unmount otherwise
                await self._unmount(actual)
            case Mount(is_remount=is_remount):
                assert desired is not None  # there is nothing to mount otherwise
                await self._mount(desired, is_remount=is_remount)
            case Attach(way=way):
                assert desired is not None  # there is nothing to attach otherwise
                await self._attach(desired, way)
            case Expand():
                assert desired is not None  # a volume that nobody wants does not grow
                assert device is not None
                await self._expand(desired, device)
                self._wake_at(key, None if actual is None else actual.refresh_at)
            case _:
                assert_never(step)

    async def _handle_device(self, key: MountKey) -> None:
        boards, name = self._boards, key.volume
        device = boards.devices.get(name)
        step = decide_device_step(
            device,
            is_used=boards.actual.has(name),
            is_wanted=device is not None
            and any(not has_other_label(each, device) for each in boards.desired.of_volume(name)),
            may_release=boards.pods_are_known.is_set(),
            awaits_node=boards.devices.awaits_node(name),
            by_agent=self._attach_view.by_agent,
        )
        match step:
            case Leave():
                if device is None and not boards.desired.of_volume(name):
                    self._backoff.forget(key)
            case UnmountDevice():
                assert device is not None  # there is nothing to unmount otherwise
                await self._unmount_device(device)
            case DetachDevice():
                assert device is not None
                await self._detach(device)
            case ForgetDevice():
                assert device is not None
                self._forget(device)
            case _:
                assert_never(step)

    def _forget(self, device: NodeDevice) -> None:
        """Take a device off the board, but not from under a step for a pod that is over meanwhile."""
        key = whole(device.name)
        if not self._running.begin(key, waiter=key):
            return
        self._stages.devices.forget(device)
        self._stages.expander.forget(device.name)
        self._backoff.forget(key)
        for each in self._running.end(key):
            self._queue.add(each)

    async def _mount(self, desired: DesiredMount, *, is_remount: bool) -> None:
        # A change during this call raises the revision on the board, not here: the next pass sees the difference.
        key = desired.key

        async def mount() -> None:
            old_at = await self._stages.pods.mount(desired, is_remount=is_remount)
            mounted = describe(desired, MountState.MOUNTED)
            if desired.remounts:
                mounted = replace(mounted, refresh_at=self._plan_refresh(old_at))
            self._boards.actual.put(mounted)
            self._wake_at(key, mounted.refresh_at)
            if (since := self._wanted_since.pop(key, None)) is not None:
                self._metrics.mounted(kind_of(desired.plugin, desired.spec), seconds=self._clock.monotonic() - since)

        await self._run(
            whole(key.volume) if desired.is_staged else key,
            Operation.MAP if desired.spec.is_block else Operation.MOUNT,
            waiter=key,
            kind=kind_of(desired.plugin, desired.spec),
            work=mount,
            describe_failure=partial(findings.mount_failed, desired),
        )

    async def _unmount(self, actual: ActualMount) -> None:
        key, device = actual.key, self._boards.devices.get(actual.key.volume)

        async def unmount() -> None:
            if actual.is_unreadable:
                self._metrics.left.cleaned.add()
            await self._stages.pods.unmount(actual)
            self._queue.forget(key)
            self._wanted_since.pop(key, None)
            self.add_device(key.volume)

        await self._run(
            key,
            Operation.UNMAP if actual.is_block else Operation.UNMOUNT,
            waiter=key,
            kind=kind_of(actual.plugin, None if device is None else device.spec),
            work=unmount,
            describe_failure=partial(self._unmount_failed, actual),
        )

    def _unmount_failed(self, actual: ActualMount, error: KletError, *, retry_at: datetime) -> Finding:
        if not actual.is_unreadable:
            return findings.unmount_failed(actual, str(error), retry_at=retry_at)
        # Upstream: one attempt. What is still mounted then keeps the directory of the pod.
        self._metrics.left.not_cleaned.add()
        self._boards.actual.remove(actual.key)
        return findings.unmount_failed(actual, str(error), retry_at=None)

    async def _attach(self, desired: DesiredMount, way: AttachWay) -> None:
        async def attach() -> None:
            await self._stages.devices.attach(desired, way)
            self._queue.add(desired.key)
            if self._boards.desired.get(desired.key) is None:
                self.add_device(desired.key.volume)  # its pod has gone meanwhile

        is_ours = way is AttachWay.ATTACH
        await self._run(
            whole(desired.key.volume),
            Operation.ATTACH if is_ours else Operation.VERIFY_ATTACHED,
            waiter=desired.key,
            kind=kind_of(desired.plugin, desired.spec),
            work=attach,
            describe_failure=partial(findings.attach_failed if is_ours else findings.not_attached, desired),
        )

    async def _expand(self, desired: DesiredMount, device: NodeDevice) -> None:
        path = device.path if desired.spec.is_block else desired.plugin.path(desired.key.uid, desired.spec)
        await self._run(
            whole(device.name),
            Operation.EXPAND,
            waiter=desired.key,
            kind=kind_of(desired.plugin, desired.spec),
            work=partial(self._stages.expander.expand_online, desired, device, mount_path=path),
            describe_failure=partial(findings.expansion_failed, desired),
        )

    async def _unmount_device(self, device: NodeDevice) -> None:
        async def unmount() -> None:
            await self._stages.devices.unmount(device)
            self.add_device(device.name)
            for each in self._boards.desired.of_volume(device.name):
                self._queue.add(each.key)  # it waited for this, with another label

        await self._run(
            whole(device.name),
            Operation.UNMAP_DEVICE if device.spec.is_block else Operation.UNMOUNT_DEVICE,
            waiter=whole(device.name),
            kind=kind_of(device.plugin, device.spec),
            work=unmount,
            describe_failure=partial(findings.device_failed, device, is_detach=False),
        )

    async def _detach(self, device: NodeDevice) -> None:
        await self._run(
            whole(device.name),
            Operation.DETACH,
            waiter=whole(device.name),
            kind=kind_of(device.plugin, device.spec),
            work=partial(self._stages.devices.detach, device),
            describe_failure=partial(findings.device_failed, device, is_detach=True),
        )

    async def _run(
        self,
        turn: MountKey,
        operation: Operation,
        *,
        waiter: MountKey,
        kind: MeasuredKind,
        work: Callable[[], Awaitable[None]],
        describe_failure: DescribeFailure,
    ) -> None:
        """Carry an operation out when it is its turn, and its back-off is over. Else `waiter` comes again."""
        remaining = self._backoff.remaining(turn, operation, now=self._clock.monotonic())
        if remaining is not None:
            self._queue.add_after(waiter, remaining)
            return
        if not self._running.begin(turn, waiter=waiter):
            return
        try:
            with self._metrics.measured(kind, operation, self._clock):
                await work()
        except KletError as error:
            delay = self._backoff.failed(turn, operation, now=self._clock.monotonic())
            self._queue.add_after(waiter, delay)
            self._recorder.record(describe_failure(error, retry_at=self._clock.now() + delay))
        else:
            self._backoff.forget(turn)
        finally:
            for each in self._running.end(turn):
                self._queue.add(each)

    def _plan_refresh(self, old_at: datetime | None) -> float:
        """Return when a volume that was just set up is brought up to date again, on the monotonic clock."""
        now = self._clock.now()
        wait = self._refresh * (1 + JITTER * self._random.random())
        if old_at is not None and now < old_at < now + wait:
            wait = old_at - now
        return self._clock.monotonic() + wait.total_seconds()

    def _wake_at(self, key: MountKey, until: float | None) -> None:
        if until is not None:
            self._queue.add_after(key, timedelta(seconds=until - self._clock.monotonic()))

    @contextmanager
    def _working(self, uid: PodUID) -> Iterator[None]:
        self._busy[uid] = self._busy.get(uid, 0) + 1
        try:
            yield
        finally:
            self._busy[uid] -= 1
            if not self._busy[uid]:
                del self._busy[uid]

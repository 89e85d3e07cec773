"""Mounts and unmounts the volumes of pods (volume manager: populator and reconciler).

Nothing is polled: a volume is handled when its pod changes, an object that it shows changes or an operation on it
ends, when a back-off ends and when its content is due. Volumes are handled independently: a slow one delays no other.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Final, Protocol, TypeVar, assert_never

from msgspec import Struct
from msgspec.structs import replace

from klet.aio.broadcast import Broadcast, Subscription
from klet.aio.clock import Clock
from klet.aio.workqueue import WorkQueue
from klet.api.pod import Pod
from klet.api.volume import Volume
from klet.errors import KletError
from klet.model.allocation import PodAllocation
from klet.model.causes import CauseRecorder
from klet.model.foreign_text import shorten
from klet.model.objects import ObjectRef
from klet.model.pods import PodUID, subject_of, uid_of
from klet.model.roles import Allocations
from klet.model.volumes import MeasurableVolume, claim_of, is_local_ephemeral
from klet.volumes import findings
from klet.volumes.attaching import FoundVolumes, find_attached, key_of, list_in_use, read_leftover
from klet.volumes.errors import TIMED_OUT, NoPlugin, VolumeSetupError, WaitFailed
from klet.volumes.names import MountKey, VolumeName, go_list
from klet.volumes.operations import Operation, OperationBackoff
from klet.volumes.plugins.base import MountRequest, VolumeAttributes, VolumePlugin
from klet.volumes.pod_waiters import PodWaiters
from klet.volumes.state import (
    ActualMount,
    ActualState,
    DesiredMount,
    DesiredState,
    Leave,
    Mount,
    MountState,
    Unmount,
    decide_step,
    has_changed,
)
from klet.volumes.usage import used_volumes

T = TypeVar("T")

logger = logging.getLogger(__name__)

_LONGEST_ERROR: Final = 512

PATIENCE: Final = timedelta(minutes=2, seconds=3)
"""How long a pod waits for its volumes to come or to go."""
JITTER: Final = 0.5


class MountedVolume(Struct, frozen=True):
    """A volume that containers can mount."""

    path: str
    """On the host; empty for one that only the runtime sees."""
    attributes: VolumeAttributes


class VolumeDisk(FoundVolumes, Protocol):
    """Finds the volumes of pods on disk, also those of a previous run of the agent."""

    async def has_mounts(self, uid: PodUID) -> bool:
        """Return whether one of them is a mount, or that cannot be read."""
        ...


class VolumeManager:
    """Owns the volumes of the node's pods."""

    def __init__(
        self,
        *,
        plugins: Sequence[VolumePlugin],
        allocations: Allocations,
        disk: VolumeDisk,
        recorder: CauseRecorder,
        refresh: timedelta,
        randomness: random.Random,
        clock: Clock,
    ) -> None:
        self._plugins = tuple(plugins)
        self._allocations = allocations
        self._disk = disk
        self._recorder = recorder
        self._refresh = refresh
        self._random = randomness
        self._clock = clock
        self._desired = DesiredState()
        self._actual = ActualState()
        self._backoff = OperationBackoff()
        self._queue = WorkQueue[MountKey](clock=clock)
        self._busy: dict[PodUID, int] = {}
        self._leaving: set[PodUID] = set()
        self._waiters = PodWaiters(clock=clock)
        self._in_use_changes = Broadcast[VolumeName]()
        self._has_found_attached = False

    async def run(self) -> None:
        """Run the operations until cancelled."""
        # First what a previous run left attached: a status without these volumes would let the controller detach them.
        for mount in await find_attached({plugin.name: plugin for plugin in self._plugins}, self._disk):
            self._actual.put(mount)
        self._has_found_attached = True
        async with asyncio.TaskGroup() as group:
            while True:
                # The queue hands out no key twice at once: operations on one volume of one pod never overlap.
                key = await self._queue.get()
                group.create_task(self._handle(key), name=f"volume {key.volume}")

    def process(self, pod: Pod) -> None:
        """Add a pod or its changes to the desired state. Called in every sync; what has not changed is left alone."""
        uid = uid_of(pod)
        # A late sync must not bring back a volume that wait_for_unmount is taking down.
        if uid in self._leaving or not pod.spec.volumes:
            return
        used, allocation = used_volumes(pod), self._allocations.of(pod)
        for volume in pod.spec.volumes:
            if volume.name in used:
                self._want(uid, pod, allocation, volume)
        self._waiters.notify(uid)

    def objects_changed(self, ref: ObjectRef) -> None:
        """Bring every volume that shows an object up to date, at once even if its last try failed."""
        for key in sorted(self._desired.users_of(ref)):
            self._renew(key)

    def refresh_all(self) -> None:
        """Bring everything up to date that may have changed."""
        for mount in list(self._desired.all()):
            if mount.plugin.requires_remount:
                self._renew(mount.key)

    async def wait_for_attach_and_mount(self, pod: Pod) -> None:
        """Return when every volume that the pod uses is mounted; raises WaitFailed. May be cancelled at any time."""
        uid, expected = uid_of(pod), used_volumes(pod)
        if not expected:
            return
        self.process(pod)
        errors: list[str] = []

        def is_settled() -> bool:
            errors.extend(self._desired.pop_errors(uid))
            return bool(errors) or not self._unmounted(uid, expected)

        await self._waiters.wait_until(uid, is_settled, patience=PATIENCE)
        unmounted = self._unmounted(uid, expected)
        if not unmounted:
            return
        wanted = {mount.volume.name for mount in self._desired.of_pod(uid)}
        lists = (
            f"unmounted volumes={go_list(unmounted)}, unattached volumes={go_list(self._unattached(uid))}, "
            f"failed to process volumes={go_list(sorted(expected - wanted))}"
        )
        raise WaitFailed(f"{lists}: {'; '.join(sorted(errors)) or TIMED_OUT}", is_timeout=not errors)

    async def wait_for_unmount(self, uid: PodUID) -> None:
        """Unmount all volumes of a terminated pod, also those of a previous run of the agent; raises WaitFailed.

        No container of the pod may run any more.
        """
        self._leaving.add(uid)
        try:
            self._drop_desired(uid)
            # An operation that has begun runs to its end: only then is the disk what it will stay, and can be read.
            await self._waiters.wait_until(uid, lambda: uid not in self._busy, patience=PATIENCE)
            await self._take_in_leftovers(uid)
            for mount in self._actual.of_pod(uid):
                self._queue.add(mount.key)
            await self._waiters.wait_until(uid, lambda: not self._actual.of_pod(uid), patience=PATIENCE)
            left = self._actual.of_pod(uid)
        finally:
            self._leaving.discard(uid)
        if left:
            names = go_list(sorted(mount.key.volume for mount in left))
            raise WaitFailed(f"mounted volumes={names}: {TIMED_OUT}", is_timeout=True)

    async def pod_volumes_exist(self, uid: PodUID) -> bool:
        """Return whether a pod has, or may have, a volume: then its directory and cgroup must stay."""
        if self._actual.of_pod(uid):
            return True
        return await self._disk.has_mounts(uid)

    def mounted_volumes(self, uid: PodUID) -> Mapping[str, MountedVolume]:
        """Return the volumes that containers of a pod can mount, by their name in the pod."""
        return {
            mount.volume.name: MountedVolume(
                mount.plugin.path(uid, mount.volume), mount.plugin.attributes(mount.volume)
            )
            for mount in self._desired.of_pod(uid)
            if self._actual.is_mounted(mount.key)
        }

    def measurable(self, uid: PodUID) -> tuple[MeasurableVolume, ...]:
        """Return the mounted volumes of a pod whose use can be measured."""
        return tuple(
            MeasurableVolume(
                name=mount.volume.name,
                path=mount.plugin.path(uid, mount.volume),
                source=source,
                is_ephemeral=is_local_ephemeral(mount.volume),
                claim=claim_of(mount.volume, mount.pod),
            )
            for mount in self._desired.of_pod(uid)
            if (source := mount.plugin.usage_source) is not None and self._actual.is_mounted(mount.key)
        )

    def volumes_in_use(self) -> tuple[VolumeName, ...] | None:
        """Return the attachable volumes for the node's status (volumesInUse); None until they are known."""
        return list_in_use(self._desired.all(), self._actual.all()) if self._has_found_attached else None

    def in_use_changes(self) -> Subscription[VolumeName]:
        """Subscribe to volumes that came into use or may be out of it."""
        return self._in_use_changes.subscribe()

    def mark_reported_in_use(self, names: Iterable[str]) -> None:
        """Set up the volumes that waited until the API server knows them as in use."""
        for key in self._desired.report(names):
            self._queue.add(key)

    def _want(self, uid: PodUID, pod: Pod, allocation: PodAllocation, volume: Volume) -> None:
        plugin = next((plugin for plugin in self._plugins if plugin.supports(volume)), None)
        if plugin is None:
            self._desired.add_error(uid, str(NoPlugin(volume.name)))
            return
        key, is_attachable = key_of(plugin, uid, volume)
        before = self._desired.get(key)
        if before is None:
            self._desired.put(
                DesiredMount(
                    key=key,
                    pod=pod,
                    allocation=allocation,
                    volume=volume,
                    plugin=plugin,
                    is_attachable=is_attachable,
                )
            )
            self._queue.add(key)
            self._publish_use(key, is_attachable=is_attachable)
        elif before.pod is not pod or before.allocation is not allocation:
            after = replace(before, pod=pod, allocation=allocation, volume=volume)
            self._desired.put(after)
            if plugin.requires_remount and has_changed(before, after):
                self._renew(key)

    def _renew(self, key: MountKey) -> None:
        self._desired.touch(key)
        self._backoff.forget(key)
        self._queue.add(key)

    def _unmounted(self, uid: PodUID, expected: frozenset[str]) -> list[str]:
        there = {mount.volume.name for mount in self._desired.of_pod(uid) if self._actual.is_mounted(mount.key)}
        return sorted(expected - there)

    def _unattached(self, uid: PodUID) -> list[str]:
        mounts = (mount for mount in self._desired.of_pod(uid) if mount.is_attachable)
        return sorted(mount.volume.name for mount in mounts if not self._actual.has(mount.key.volume))

    def _drop_desired(self, uid: PodUID) -> None:
        dropped = self._desired.of_pod(uid)
        self._desired.remove_pod(uid)
        for mount in dropped:
            self._publish_use(mount.key, is_attachable=mount.is_attachable)

    def _publish_use(self, key: MountKey, *, is_attachable: bool) -> None:
        if is_attachable:
            self._in_use_changes.send(key.volume)

    def _may_mount(self, desired: DesiredMount | None) -> bool:
        if desired is None or not desired.is_attachable:
            return True
        # Upstream: mounted only once the node's status reports it in use, so that no controller detaches it meanwhile.
        name = desired.key.volume
        return self._desired.is_reported(name) or self._actual.has(name)

    async def _take_in_leftovers(self, uid: PodUID) -> None:
        """Add volumes on disk that this run of the agent did not set up, or only in part."""
        by_name = {plugin.name: plugin for plugin in self._plugins}
        for found in await self._disk.find(uid):
            plugin = by_name.get(found.plugin)
            if plugin is None:
                continue
            left = await read_leftover(plugin, uid, found)
            if self._actual.get(left.key) is None:
                self._actual.put(left)

    async def _handle(self, key: MountKey) -> None:
        """Carry out the next step of one volume of one pod."""
        try:
            with self._working(key.uid):
                desired, actual, now = self._desired.get(key), self._actual.get(key), self._clock.monotonic()
                step = decide_step(
                    desired, actual, is_leaving=key.uid in self._leaving, may_mount=self._may_mount(desired), now=now
                )
                match step:
                    case Mount():
                        assert desired is not None  # there is nothing to mount otherwise
                        await self._mount(desired, step)
                    case Unmount():
                        assert actual is not None  # there is nothing to unmount otherwise
                        await self._unmount(actual)
                    case Leave(until=until):
                        if until is not None:
                            self._queue.add_after(key, timedelta(seconds=until - now))
                    case _:
                        assert_never(step)
        finally:
            self._queue.done(key)
            self._waiters.notify(key.uid)

    async def _mount(self, desired: DesiredMount, step: Mount) -> None:
        key = desired.key
        if self._must_wait(key, Operation.MOUNT):
            return
        request = MountRequest(
            pod=desired.pod, allocation=desired.allocation, volume=desired.volume, is_remount=step.is_remount
        )
        try:
            # A change during this call raises the revision on the board, not here: the next pass sees the difference.
            old_at = await _carry_out(desired.plugin.set_up(request), key)
        except KletError as error:
            retry_at = self._try_later(key, Operation.MOUNT)
            self._recorder.record(findings.mount_failed(desired, str(error), retry_at=retry_at))
            return
        self._backoff.forget(key)
        mounted = ActualMount(
            key=key,
            plugin=desired.plugin,
            name=desired.volume.name,
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
        self._actual.put(mounted)

    async def _unmount(self, actual: ActualMount) -> None:
        key = actual.key
        if self._must_wait(key, Operation.UNMOUNT):
            return
        try:
            await _carry_out(actual.plugin.tear_down(key.uid, actual.name), key)
        except KletError as error:
            # It may be half gone: containers must not get it, and only a whole set-up makes it mounted again.
            self._actual.put(replace(actual, state=MountState.UNCERTAIN))
            retry_at = self._try_later(key, Operation.UNMOUNT)
            self._recorder.record(findings.unmount_failed(actual, str(error), retry_at=retry_at))
            return
        self._backoff.forget(key)
        self._queue.forget(key)
        self._actual.remove(key)
        self._publish_use(key, is_attachable=actual.is_attachable)

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

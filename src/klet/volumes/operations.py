"""Which operations exclude one another, and how long one that failed has to wait (nestedpendingoperations). Pure.

An operation on a device excludes every other one on the same volume; those on different pods' parts of a volume run
side by side.
"""

from datetime import timedelta
from enum import StrEnum
from typing import Final

from msgspec import Struct

from klet.model.pods import PodUID
from klet.volumes.names import MountKey, VolumeName

FIRST_DELAY: Final = timedelta(milliseconds=500)
LONGEST_DELAY: Final = timedelta(minutes=2, seconds=2)
TICK: Final = 1e-6
"""What is as close as this is now: seconds are counted in fractions that do not add up exactly."""
WHOLE: Final = str.__new__(PodUID, "")
"""In place of a pod, of which it is no UID: the operation is on the device, and so on the volume of every pod."""


class Operation(StrEnum):
    """What is done to a volume, by upstream's names."""

    MOUNT = "volume_mount"
    UNMOUNT = "volume_unmount"
    MAP = "map_volume"
    UNMAP = "unmap_volume"
    UNMOUNT_DEVICE = "unmount_device"
    UNMAP_DEVICE = "unmap_device"
    VERIFY_ATTACHED = "verify_controller_attached_volume"
    ATTACH = "volume_attach"
    DETACH = "volume_detach"
    EXPAND = "volume_fs_resize"


def whole(name: VolumeName) -> MountKey:
    """Return the key of operations on a device."""
    return MountKey(name, WHOLE)


def conflicts(first: MountKey, second: MountKey) -> bool:
    """Return whether two operations must not run at once."""
    return first.volume == second.volume and (first.uid == second.uid or WHOLE in {first.uid, second.uid})


class RunningOperations:
    """The operations that run now, and what waits for one of them to end."""

    def __init__(self) -> None:
        self._running: dict[VolumeName, set[MountKey]] = {}
        self._waiting: dict[VolumeName, set[MountKey]] = {}

    def begin(self, key: MountKey, *, waiter: MountKey) -> bool:
        """Begin an operation; False if it has to wait: then `end` of another returns the waiter."""
        running = self._running.get(key.volume, set())
        if any(conflicts(key, each) for each in running):
            self._waiting.setdefault(key.volume, set()).add(waiter)
            return False
        self._running.setdefault(key.volume, set()).add(key)
        return True

    def end(self, key: MountKey) -> list[MountKey]:
        """End an operation; return what waited for it."""
        running = self._running[key.volume]
        running.discard(key)
        if not running:
            del self._running[key.volume]
        return sorted(self._waiting.pop(key.volume, ()))


class _Failure(Struct, frozen=True):
    operation: Operation
    delay: timedelta
    until: float


class OperationBackoff:
    """Doubling delays per volume of a pod, or per device. A delay holds only for the operation that failed.

    `now` is of the clock that never steps: setting the time neither lengthens a delay nor ends it.
    """

    def __init__(self) -> None:
        self._failures: dict[MountKey, _Failure] = {}

    def remaining(self, key: MountKey, operation: Operation, *, now: float) -> timedelta | None:
        """Return how long the operation has to wait; None if it may be tried."""
        failure = self._failures.get(key)
        if failure is None or failure.operation is not operation or now > failure.until - TICK:
            return None
        return timedelta(seconds=failure.until - now)

    def failed(self, key: MountKey, operation: Operation, *, now: float) -> timedelta:
        """Count a failure; return how long to wait before the next try."""
        before = self._failures.get(key)
        delay = FIRST_DELAY
        if before is not None and before.operation is operation:
            delay = min(before.delay * 2, LONGEST_DELAY)
        self._failures[key] = _Failure(operation, delay, now + delay.total_seconds())
        return delay

    def forget(self, key: MountKey) -> None:
        """Drop the back-off: it succeeded, or the reason for its failure may be gone."""
        self._failures.pop(key, None)

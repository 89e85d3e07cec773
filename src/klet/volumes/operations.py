"""How long an operation that failed has to wait before it is tried again (upstream: nestedpendingoperations). Pure."""

from datetime import timedelta
from enum import StrEnum
from typing import Final

from msgspec import Struct

from klet.volumes.names import MountKey

FIRST_DELAY: Final = timedelta(milliseconds=500)
LONGEST_DELAY: Final = timedelta(minutes=2, seconds=2)
TICK: Final = 1e-6
"""What is as close as this is now: seconds are counted in fractions that do not add up exactly."""


class Operation(StrEnum):
    """What is done to a volume, by upstream's names."""

    MOUNT = "volume_mount"
    UNMOUNT = "volume_unmount"


class _Failure(Struct, frozen=True):
    operation: Operation
    delay: timedelta
    until: float


class OperationBackoff:
    """Doubling delays per volume of a pod. A delay holds only for the operation that failed.

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

"""How long an operation that failed has to wait before it is tried again (upstream: nestedpendingoperations). Pure."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from klet.volumes.names import MountKey

FIRST_DELAY: Final = timedelta(milliseconds=500)
LONGEST_DELAY: Final = timedelta(minutes=2, seconds=2)


class Operation(StrEnum):
    """What is done to a volume, by upstream's names."""

    MOUNT = "volume_mount"
    UNMOUNT = "volume_unmount"


@dataclass(frozen=True, slots=True)
class _Failure:
    operation: Operation
    delay: timedelta
    at: datetime


class OperationBackoff:
    """Doubling delays per volume of a pod. A delay holds only for the operation that failed."""

    def __init__(self) -> None:
        self._failures: dict[MountKey, _Failure] = {}

    def waiting_until(self, key: MountKey, operation: Operation, *, now: datetime) -> datetime | None:
        """When the operation may be tried; None for now."""
        failure = self._failures.get(key)
        if failure is None or failure.operation is not operation or now >= failure.at + failure.delay:
            return None
        return failure.at + failure.delay

    def failed(self, key: MountKey, operation: Operation, *, now: datetime) -> datetime:
        """Count a failure; tells when to try again."""
        before = self._failures.get(key)
        delay = FIRST_DELAY
        if before is not None and before.operation is operation:
            delay = min(before.delay * 2, LONGEST_DELAY)
        self._failures[key] = _Failure(operation, delay, now)
        return now + delay

    def forget(self, key: MountKey) -> None:
        """It succeeded, or the reason for its failure may be gone."""
        self._failures.pop(key, None)

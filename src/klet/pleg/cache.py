"""The newest runtime view of each pod (pod cache). The PLEG writes it; pod workers and the API read it.

Housekeeping drops or expires entries of pods that it has just stopped or removed.
"""

from collections.abc import Collection

from msgspec import Struct
from msgspec.structs import replace

from klet.aio.broadcast import Broadcast, Subscription
from klet.errors import KletError
from klet.model.pods import PodUID
from klet.model.runtime import PodRuntimeStatus


class Reading(Struct, frozen=True):
    """What one read of a pod gave, and when it began on the monotonic clock."""

    status: PodRuntimeStatus
    read_at: float
    error: KletError | None = None


class RuntimeCache:
    """Newest reading per pod. An older reading never replaces a newer one."""

    def __init__(self) -> None:
        self._readings: dict[PodUID, Reading] = {}
        self._changes = Broadcast[PodUID]()

    def get(self, uid: PodUID) -> Reading | None:
        return self._readings.get(uid)

    def status_of(self, uid: PodUID) -> PodRuntimeStatus | None:
        """Return the runtime status of a pod; None if it is not known, or could not be read the last time."""
        reading = self._readings.get(uid)
        return None if reading is None or reading.error is not None else reading.status

    def is_live(self, uid: PodUID) -> bool:
        """Return whether something of the pod may run: it does, or the pod could not be read."""
        reading = self._readings.get(uid)
        return reading is not None and (reading.error is not None or reading.status.is_live)

    def pods(self) -> dict[PodUID, PodRuntimeStatus]:
        """Return every pod of which the runtime had something at its last reading."""
        return {uid: reading.status for uid, reading in self._readings.items() if not reading.status.is_empty}

    def put(self, reading: Reading, *, quietly: bool = False) -> bool:
        """Store a reading unless a newer one is there; publish the change if the pod looks different now.

        Quietly: do not publish it, because the pod's worker itself asked for the read.
        """
        uid = reading.status.uid
        known = self._readings.get(uid)
        if known is not None and known.read_at > reading.read_at:
            return False
        changed = known is None or known.status != reading.status or (known.error is None) != (reading.error is None)
        self._readings[uid] = reading
        if changed and not quietly:
            self._changes.send(uid)
        return changed

    def forget(self, uid: PodUID) -> None:
        self._readings.pop(uid, None)

    def expire(self, uid: PodUID) -> None:
        """Make a reading older than any mark: the pod is still known to exist, but its worker has to read it again."""
        known = self._readings.get(uid)
        if known is not None:
            self._readings[uid] = replace(known, read_at=float("-inf"))

    def forget_empty(self, *, read_before: float, keep: Collection[PodUID]) -> None:
        """Drop pods of which the runtime has nothing left, so that the cache does not grow."""
        gone = [
            uid
            for uid, reading in self._readings.items()
            if uid not in keep and reading.status.is_empty and reading.error is None and reading.read_at < read_before
        ]
        for uid in gone:
            del self._readings[uid]

    def missing(self, *, read_before: float, listed: Collection[PodUID]) -> list[PodUID]:
        """Return pods that existed when they were read and are not listed: they came and went between two relists."""
        return [
            uid
            for uid, reading in self._readings.items()
            if uid not in listed and not reading.status.is_empty and reading.read_at < read_before
        ]

    def changes(self) -> Subscription[PodUID]:
        return self._changes.subscribe()

"""The newest probe results: written by the probe workers, read by status and sync (results.Manager)."""

from types import MappingProxyType

from msgspec import Struct

from klet.aio.broadcast import Broadcast, Subscription
from klet.model.causes import CauseId
from klet.model.pods import PodUID
from klet.model.probes import ProbeKey, ProbeResult, ProbeView


class ProbeChange(Struct, frozen=True):
    """A result that is new, or differs from the one before."""

    uid: PodUID
    key: ProbeKey
    result: ProbeResult
    cause: CauseId | None = None
    """The finding that led to it, for consequences to name as their parent."""


class ProbeResults:
    """Newest result per container instance and probe."""

    def __init__(self) -> None:
        self._results: dict[ProbeKey, ProbeResult] = {}
        self._view = MappingProxyType(self._results)
        self._changes = Broadcast[ProbeChange]()

    def get(self, key: ProbeKey) -> ProbeResult | None:
        return self._results.get(key)

    def put(self, uid: PodUID, key: ProbeKey, result: ProbeResult, *, cause: CauseId | None = None) -> None:
        if self._results.get(key) is not result:
            self._results[key] = result
            self._changes.send(ProbeChange(uid, key, result, cause))

    def remove(self, key: ProbeKey) -> None:
        """Forget an instance without a change: it is gone, or not probed any more."""
        self._results.pop(key, None)

    def view(self) -> ProbeView:
        """Return a live view of all results: read it between two awaits."""
        return self._view

    def changes(self) -> Subscription[ProbeChange]:
        return self._changes.subscribe()

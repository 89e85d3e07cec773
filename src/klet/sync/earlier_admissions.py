"""Which pods a previous run of the agent has admitted: this one does not ask about them again."""

from collections.abc import Callable

from klet.api.pod import PodStatus
from klet.model.pods import PodUID
from klet.pleg.cache import RuntimeCache


class EarlierAdmissions:
    """Knows them by the statuses that were saved, and by what the runtime had of them at the start.

    A status is saved at once, but a power cut may lose it. What the runtime has is on a disk of its own.
    """

    def __init__(self, *, cache: RuntimeCache, status_of: Callable[[PodUID], PodStatus | None]) -> None:
        self._cache = cache
        self._status_of = status_of
        self._in_runtime: set[PodUID] | None = None

    def status_of(self, uid: PodUID) -> PodStatus | None:
        """Return what was last reported of a pod. One that waits for its admission has a status from before alone."""
        return self._status_of(uid)

    def has(self, uid: PodUID) -> bool:
        if self._in_runtime is None:
            # The first pod is admitted after the first list of the runtime, and before anything is started.
            self._in_runtime = set(self._cache.pods())
        return self._status_of(uid) is not None or uid in self._in_runtime

    def forget(self, uid: PodUID) -> None:
        """Drop a pod that is gone; should its UID come back, that is a new pod."""
        if self._in_runtime is not None:
            self._in_runtime.discard(uid)

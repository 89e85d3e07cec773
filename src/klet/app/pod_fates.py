"""What has become of the pods, as the container garbage collector asks for it."""

from collections.abc import Callable

from klet.aio.broadcast import Subscription
from klet.model.pods import PodUID
from klet.model.runtime import PodRuntimeStatus
from klet.pleg.cache import RuntimeCache
from klet.sync.ledger import WorkerLedger
from klet.sync.worker_state import Stage


class LedgerFates:
    """The pod workers' ledger. A pod without a worker is gone for good once all sources have been seen."""

    def __init__(self, *, ledger: WorkerLedger, sources_ready: Callable[[], bool]) -> None:
        self._ledger = ledger
        self._sources_ready = sources_ready

    def are_sources_ready(self) -> bool:
        return self._sources_ready()

    def should_content_be_removed(self, uid: PodUID) -> bool:
        state = self._ledger.get(uid)
        if state is None:
            return self._sources_ready()
        if state.restart_requested:
            return False  # it comes back under the same UID, and counts on from what it was
        # Not before it has finished: its last status is still to be made from what is left of it.
        return state.is_evicted or (state.is_deleted and state.stage is Stage.FINISHED)

    def should_runtime_be_removed(self, uid: PodUID) -> bool:
        state = self._ledger.get(uid)
        if state is None:
            return self._sources_ready()
        return state.terminated_at is not None


class CachedPods:
    """The runtime cache."""

    def __init__(self, *, cache: RuntimeCache) -> None:
        self._cache = cache

    def changes(self) -> Subscription[PodUID]:
        return self._cache.changes()

    def status_of(self, uid: PodUID) -> PodRuntimeStatus | None:
        reading = self._cache.get(uid)
        return None if reading is None or reading.error is not None else reading.status

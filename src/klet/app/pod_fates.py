"""What has become of the pods, as the container garbage collector asks for it."""

from collections.abc import Callable

from klet.aio.broadcast import Subscription
from klet.model.pods import PodUID
from klet.model.runtime import PodRuntimeStatus
from klet.pleg.cache import RuntimeCache
from klet.sync.ledger import WorkerLedger
from klet.sync.pod_queries import PodQueries


class LedgerFates:
    """The pod workers' answers."""

    def __init__(self, *, ledger: WorkerLedger, sources_ready: Callable[[], bool]) -> None:
        self._queries = PodQueries(ledger=ledger)
        self._sources_ready = sources_ready

    def are_sources_ready(self) -> bool:
        return self._sources_ready()

    def should_content_be_removed(self, uid: PodUID) -> bool:
        return self._queries.should_content_be_removed(uid)

    def should_runtime_be_removed(self, uid: PodUID) -> bool:
        return self._queries.should_runtime_be_removed(uid)


class CachedPods:
    """The runtime cache."""

    def __init__(self, *, cache: RuntimeCache) -> None:
        self._cache = cache

    def changes(self) -> Subscription[PodUID]:
        return self._cache.changes()

    def status_of(self, uid: PodUID) -> PodRuntimeStatus | None:
        reading = self._cache.get(uid)
        return None if reading is None or reading.error is not None else reading.status

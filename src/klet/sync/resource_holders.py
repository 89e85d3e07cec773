"""Which containers may still use what resource managers gave them (the active pods of removeStaleState)."""

from collections.abc import Callable
from typing import Final

from klet.model.pods import PodUID
from klet.sync.ledger import WorkerLedger
from klet.sync.worker_state import Stage

_OVER: Final = frozenset({Stage.TERMINATED, Stage.FINISHED})


class LedgerHolders:
    """Asks the pod workers, and the runtime for pods that no worker knows yet."""

    def __init__(
        self, *, ledger: WorkerLedger, is_live: Callable[[PodUID], bool], sources_ready: Callable[[], bool]
    ) -> None:
        self._ledger = ledger
        self._is_live = is_live
        self._sources_ready = sources_ready

    def may_hold(self, uid: PodUID, container: str) -> bool:
        """Return False once a container is in no pod that may run; True while not all pods are known."""
        if not self._sources_ready():
            return True
        state = self._ledger.get(uid)
        if state is None or state.stage in _OVER:
            return self._is_live(uid)
        spec = state.pod.spec
        # A pod that is known from the runtime alone is made up, and so is its spec.
        return state.is_runtime_only or any(
            each.name == container for each in (*spec.init_containers, *spec.containers)
        )

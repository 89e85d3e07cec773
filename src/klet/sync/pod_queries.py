"""What others ask about where a pod stands (upstream's queries of the pod workers).

Of a pod without a worker nothing is certain before the ledger is complete: the agent may just have started.
"""

from collections.abc import Callable

from klet.model.pods import PodUID, full_name, is_static
from klet.sync.ledger import WorkerLedger
from klet.sync.worker_state import Stage


class PodQueries:
    """Answers from the pod workers' ledger."""

    def __init__(self, *, ledger: WorkerLedger, sources_ready: Callable[[], bool]) -> None:
        self._ledger = ledger
        self._sources_ready = sources_ready

    def are_sources_ready(self) -> bool:
        """Every source has been seen: what no source has is not wanted."""
        return self._sources_ready()

    def is_known_terminated(self, uid: PodUID) -> bool:
        state = self._ledger.get(uid)
        return state is not None and state.has_stopped

    def could_have_running_containers(self, uid: PodUID) -> bool:
        """Until then nobody is told that it is over. Of a pod that ended by itself only the sandbox may be left."""
        state = self._ledger.get(uid)
        return not self._ledger.is_complete if state is None else not (state.has_stopped or state.is_over)

    def should_be_finished(self, uid: PodUID) -> bool:
        """Everything it held is released."""
        state = self._ledger.get(uid)
        return self._ledger.is_complete if state is None else state.stage is Stage.FINISHED

    def is_termination_requested(self, uid: PodUID) -> bool:
        state = self._ledger.get(uid)
        return state is not None and state.is_terminating

    def should_containers_be_terminating(self, uid: PodUID) -> bool:
        """No container of it is started any more."""
        state = self._ledger.get(uid)
        return self._ledger.is_complete if state is None else state.is_stopping

    def should_runtime_be_removed(self, uid: PodUID) -> bool:
        """Nothing of it runs any more."""
        state = self._ledger.get(uid)
        return self._ledger.is_complete if state is None else state.has_stopped

    def should_content_be_removed(self, uid: PodUID) -> bool:
        """Nobody will look at its containers and logs any more.

        Not before it has finished: its last status is still to be made from what is left of it. And a pod that comes
        back under its UID counts on from what it was.
        """
        state = self._ledger.get(uid)
        if state is None:
            return self._ledger.is_complete
        if state.restart_requested:
            return False
        return state.is_evicted or (state.is_deleted and state.stage is Stage.FINISHED)

    def is_static_terminating(self, name: str) -> bool:
        """A static pod of that full name has started and is being stopped: its mirror has to stay until then."""
        return any(
            is_static(state.pod)
            and full_name(state.pod) == name
            and state.started_at is not None
            and state.stage is Stage.TERMINATING
            for state in self._ledger.all().values()
        )

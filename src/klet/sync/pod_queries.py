"""Questions of other parts about the state of a pod (upstream's queries of the pod workers).

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
        """Return whether every source has been seen: only then is a pod that no source has not wanted."""
        return self._sources_ready()

    def could_have_running_containers(self, uid: PodUID) -> bool:
        """Return whether it must not be reported as ended yet. If it ended by itself, only its sandbox is left."""
        state = self._ledger.get(uid)
        return not self._ledger.is_complete if state is None else not (state.has_stopped or state.is_over)

    def should_runtime_be_removed(self, uid: PodUID) -> bool:
        """Return whether nothing of it runs any more."""
        state = self._ledger.get(uid)
        return self._ledger.is_complete if state is None else state.has_stopped

    def should_content_be_removed(self, uid: PodUID) -> bool:
        """Return whether its containers and logs are needed no more.

        Not before it has finished, evicted or deleted: its last status, with the exit codes, is computed from them. And
        a pod that comes back with its UID goes on counting restarts from them.
        """
        state = self._ledger.get(uid)
        if state is None:
            return self._ledger.is_complete
        if state.restart_requested:
            return False
        return (state.is_evicted or state.is_deleted) and state.stage is Stage.FINISHED

    def is_static_terminating(self, name: str) -> bool:
        """Return whether a static pod of that full name is being stopped: its mirror has to stay until it has."""
        return any(
            is_static(state.pod)
            and full_name(state.pod) == name
            and state.started_at is not None
            and state.stage is Stage.TERMINATING
            for state in self._ledger.all().values()
        )

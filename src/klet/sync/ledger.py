"""The worker state of each pod. Written by the pod workers only, read by housekeeping and the API."""

from klet.model.pods import PodUID, full_name, is_static
from klet.sync.worker_state import Stage, WorkerState


class WorkerLedger:
    """Worker state per pod."""

    def __init__(self) -> None:
        self._states: dict[PodUID, WorkerState] = {}
        self._is_complete = False

    @property
    def is_complete(self) -> bool:
        """True once every pod of every source has had a worker: a pod without one is gone for good."""
        return self._is_complete

    def mark_complete(self) -> None:
        self._is_complete = True

    def get(self, uid: PodUID) -> WorkerState | None:
        return self._states.get(uid)

    def state_of(self, uid: PodUID) -> WorkerState:
        """Return the state of a pod that has a worker."""
        return self._states[uid]

    def put(self, uid: PodUID, state: WorkerState) -> None:
        self._states[uid] = state

    def forget(self, uid: PodUID) -> None:
        self._states.pop(uid, None)

    def all(self) -> dict[PodUID, WorkerState]:
        return dict(self._states)

    def may_start(self, uid: PodUID) -> bool:
        """Return False for a static pod while an earlier one of its name has not finished: they share ports."""
        state = self._states[uid]
        if not is_static(state.pod):
            return True
        name = full_name(state.pod)
        for other, other_state in self._states.items():
            if other == uid:
                return True  # insertion order: those before came earlier, those after wait for this one
            rival = is_static(other_state.pod) and full_name(other_state.pod) == name
            if rival and other_state.stage is not Stage.FINISHED:
                return False
        return True

"""Stands before the pod workers: a new pod gets its worker only if this node takes it in (HandlePodAdditions).

A pod is admitted once. What runs already, or has a worker, is never asked again, so a restart of the agent rejects
nobody.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from klet.admission.checks import Rejection
from klet.api.pod import Pod
from klet.model.causes import CauseId, CauseRecorder
from klet.model.pods import PodUID, uid_of
from klet.model.recording import DecisionRecorder
from klet.pods.store import PodStore
from klet.status.phase import is_terminal
from klet.sync.ledger import WorkerLedger
from klet.sync.worker_state import PodUpdate, UpdateKind
from klet.sync.workers import PodWorkers

DECIDER = "sync.admission"


class Admission(Protocol):
    """Says why a pod cannot join the others, or None."""

    def __call__(self, pod: Pod, others: Sequence[Pod]) -> Rejection | None: ...


class AdmittedWorkers:
    """The pod workers, for pods that were taken in."""

    def __init__(
        self,
        *,
        workers: PodWorkers,
        pods: PodStore,
        ledger: WorkerLedger,
        remembers: Callable[[PodUID], bool],
        admission: Admission,
        reject: Callable[[Pod, Rejection, CauseId], None],
        recorder: CauseRecorder,
    ) -> None:
        self._workers = workers
        self._pods = pods
        self._ledger = ledger
        self._remembers = remembers
        """Whether an earlier life of the agent took a pod in."""
        self._admission = admission
        self._reject = reject
        """Tells the pod's status."""
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)
        self._rejected: set[PodUID] = set()

    def wake(self, uid: PodUID) -> None:
        self._workers.wake(uid)

    def has(self, uid: PodUID) -> bool:
        return self._workers.has(uid)

    def update(self, update: PodUpdate, *, runtime_is_quiet: bool = False) -> None:
        """Hand on news of a pod; of one that was rejected there is nothing to do."""
        uid = uid_of(update.pod)
        if update.kind is UpdateKind.CREATE:
            self._rejected.discard(uid)
            if runtime_is_quiet and not self._admit(update.pod, update.cause):
                # Of one that went before every source was heard nobody says so: it is forgotten here.
                self._rejected &= self._pods.uids()
                self._rejected.add(uid)
        if uid not in self._rejected:
            self._workers.update(update, runtime_is_quiet=runtime_is_quiet)
        elif update.kind is UpdateKind.KILL:
            self._rejected.discard(uid)

    def _admit(self, pod: Pod, cause: CauseId | None) -> bool:
        uid = uid_of(pod)
        is_over = is_terminal(pod.status.phase) or pod.metadata.deletion_timestamp is not None
        if is_over or self._workers.has(uid) or self._remembers(uid):
            return True
        rejection = self._admission(pod, [other for other in self._pods.all() if self._is_active(other, uid)])
        if rejection is None:
            return True
        recorded = self._decisions.for_pod(pod).record(
            rejection.reason, rejection.message, measurements=rejection.measurements, parent=cause
        )
        self._reject(pod, rejection, recorded)
        return False

    def _is_active(self, other: Pod, uid: PodUID) -> bool:
        state = self._ledger.get(uid_of(other))
        return uid_of(other) != uid and state is not None and not state.has_stopped

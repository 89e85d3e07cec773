"""Admits or rejects a pod: the first stage of every pod, before anything is done for it (canAdmitPod).

A pod is admitted once, and given its resources then. A pod that runs already or was admitted by a previous run of the
agent is not checked again, so that a restart rejects no pod.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final, assert_never

from klet.admission.declared_features import describe_missing, find_missing_for_update
from klet.allocation.admitted import compute_admitted, find_resized
from klet.allocation.book import AllocationBook
from klet.api.pod import Pod
from klet.model.causes import CauseId, CauseRecorder
from klet.model.pods import PodUID, is_static, uid_of
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.model.verdicts import Admit, AdmitHandler, Preempt, Reject, Verdict, Wait
from klet.pods.store import PodStore
from klet.status.phase import is_terminal
from klet.sync.earlier_admissions import EarlierAdmissions
from klet.sync.ledger import WorkerLedger
from klet.sync.worker_state import Stage

logger = logging.getLogger(__name__)

DECIDER: Final = "sync.admission"


class PodAdmission:
    """Calls the handlers in their order; the first that does not admit a pod decides."""

    def __init__(
        self,
        *,
        handlers: Sequence[AdmitHandler],
        declared_features: Sequence[str] | None,
        pods: PodStore,
        ledger: WorkerLedger,
        allocations: AllocationBook,
        earlier: EarlierAdmissions,
        report_rejection: Callable[[Pod, Reject, CauseId], None],
        recorder: CauseRecorder,
    ) -> None:
        self._handlers = tuple(handlers)
        self._declared_features = declared_features
        """What the node declares that it can do; None: this is not checked."""
        self._pods = pods
        self._ledger = ledger
        self._allocations = allocations
        self._earlier = earlier
        self._report_rejection = report_rejection
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)

    async def admit(self, pod: Pod) -> Verdict:
        """Return the verdict on a pod for which nothing has been done yet."""
        verdict = await self._decide(pod)
        if isinstance(verdict, Admit):
            self.take_over(pod)
        return verdict

    def take_over(self, pod: Pod, *, cause: CauseId | None = None) -> None:
        """Keep the resources of a pod that needs no admission: it runs already, or has ended."""
        self._allocations.admit(uid_of(pod), compute_admitted(pod))
        self._note_resize(pod, cause)

    def note_change(self, pod: Pod, known: Pod, *, cause: CauseId | None) -> None:
        """Record that the spec of a pod now asks for other resources than it was given.

        A manifest that names its UID itself may change as well: a static pod has what its manifest says.
        """
        self._check_features(pod, known, cause)
        if pod is not known and is_static(pod):
            self.take_over(pod, cause=cause)
        elif pod.metadata.generation != known.metadata.generation:
            self._note_resize(pod, cause)

    def reject(self, pod: Pod, rejection: Reject, *, cause: CauseId | None) -> None:
        """Record and report that the node rejects a pod."""
        cause = self._decisions.for_pod(pod).record(
            rejection.reason, rejection.message, measurements=rejection.measurements, parent=cause
        )
        self._report_rejection(pod, rejection, cause)

    def note_wait(self, pod: Pod, wait: Wait, *, cause: CauseId | None) -> None:
        """Record what a pod waits for."""
        self._decisions.for_pod(pod).record(Reason.ADMISSION_WAITS, wait.message, next_step="ask again", parent=cause)

    def note_preempted(self, victim: Pod, preempt: Preempt) -> None:
        """Log that a pod has stopped to make room for another one."""
        extra = {"pod": victim.metadata.name, "uid": victim.metadata.uid, "resource": preempt.resource}
        logger.info("Pod preempted", extra=extra)

    def others_of(self, pod: Pod) -> tuple[Pod, ...]:
        """Return the pods that the node has admitted besides this one, and that still hold what they were given."""
        own = uid_of(pod)
        return tuple(other for uid, other in self._pods.by_uid().items() if uid != own and self._has_room(uid))

    async def _decide(self, pod: Pod) -> Verdict:
        if is_terminal(pod.status.phase) or pod.metadata.deletion_timestamp is not None:
            return Admit()
        if self._earlier.has(uid_of(pod)):
            return Admit()
        others = self.others_of(pod)
        making_room: Preempt | None = None
        for handler in self._handlers:
            verdict = await handler.admit(pod, others)
            match verdict:
                case Admit():
                    pass
                case Preempt():
                    # No pod has to stop for one that would be rejected all the same.
                    making_room = making_room or verdict
                case Reject() | Wait():
                    return verdict
                case _:
                    assert_never(verdict)
        return making_room or Admit()

    def _check_features(self, pod: Pod, known: Pod, cause: CauseId | None) -> None:
        """Warn of a change that needs what the node does not declare. Nothing is done about it, as upstream has it."""
        if pod is known or self._declared_features is None:
            return
        if missing := find_missing_for_update(known, pod, self._declared_features):
            reason = Reason.NODE_DECLARED_FEATURES_CHECK_FAILED
            self._decisions.for_pod(pod).record(reason, describe_missing(missing), parent=cause)

    def _note_resize(self, pod: Pod, cause: CauseId | None) -> None:
        if resized := find_resized(pod, self._allocations.of(pod)):
            message = f"other resources are wanted for {', '.join(resized)}; klet does not resize pods that run"
            following = "keep the resources that it was admitted with"
            self._decisions.for_pod(pod).record(Reason.RESIZE_PENDING, message, next_step=following, parent=cause)

    def _has_room(self, uid: PodUID) -> bool:
        """Return whether a pod was admitted, and still holds what it was given."""
        state, status = self._ledger.get(uid), self._earlier.status_of(uid)
        match state.stage if state is not None else None:
            case Stage.TERMINATING:
                return True
            case Stage.SYNCING:
                return status is None or not is_terminal(status.phase)
            case Stage.ADMITTING:
                # After a restart it waits for its turn, and will not be asked about again.
                return self._earlier.has(uid) and (status is None or not is_terminal(status.phase))
            case _:
                return False

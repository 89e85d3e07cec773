"""Records decisions under the name of the part that takes them."""

from collections.abc import Mapping
from datetime import datetime

from klet.api.pod import Pod
from klet.model.causes import CauseId, CauseRecorder, Finding, FindingSubject, Measurement
from klet.model.pods import subject_of
from klet.model.reasons import RejectionReason


class SubjectRecorder:
    """Records what one part of the agent decides about one pod, one container or the node."""

    __slots__ = ("_decider", "_recorder", "_subject")

    def __init__(self, recorder: CauseRecorder, *, decider: str, subject: FindingSubject) -> None:
        self._recorder = recorder
        self._decider = decider
        self._subject = subject

    def record(
        self,
        decision: RejectionReason,
        message: str,
        *,
        parent: CauseId | None = None,
        measurements: Mapping[str, Measurement] | None = None,
        since: datetime | None = None,
        next_step: str = "",
        next_at: datetime | None = None,
    ) -> CauseId:
        """Record a decision; the fields are those of `Finding`."""
        finding = Finding(
            subject=self._subject,
            decider=self._decider,
            decision=decision,
            message=message,
            measurements=measurements or {},
            since=since,
            next=next_step,
            next_at=next_at,
        )
        return self._recorder.record(finding, parent=parent)


class DecisionRecorder:
    """Records the decisions of one part of the agent."""

    __slots__ = ("_decider", "_recorder")

    def __init__(self, recorder: CauseRecorder, *, decider: str) -> None:
        self._recorder = recorder
        self._decider = decider

    def for_pod(self, pod: Pod, container: str = "") -> SubjectRecorder:
        """Return a recorder of decisions about a pod, or about one of its containers."""
        return self.about(subject_of(pod, container))

    def for_node(self) -> SubjectRecorder:
        return self.about(FindingSubject())

    def about(self, subject: FindingSubject) -> SubjectRecorder:
        return SubjectRecorder(self._recorder, decider=self._decider, subject=subject)

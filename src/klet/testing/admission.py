"""Admission for tests: takes every pod in, unless a test sets another verdict."""

from klet.api.pod import Pod
from klet.model.causes import CauseId
from klet.model.pods import PodUID, uid_of
from klet.model.verdicts import Admit, Preempt, Reject, Verdict, Wait


class ScriptedAdmission:
    """Says what was put down for a pod, one verdict after the other; after the last, and of all others, Admit."""

    def __init__(self) -> None:
        self.verdicts: dict[PodUID, list[Verdict]] = {}
        self.asked: list[PodUID] = []
        self.taken_over: list[PodUID] = []
        self.changes: list[tuple[Pod, Pod]] = []
        """Pods that were admitted, before and after an update."""
        self.rejected: list[tuple[PodUID, Reject]] = []
        self.waits: list[tuple[PodUID, Wait]] = []
        self.preempted: list[tuple[PodUID, str]] = []
        """Pods that have stopped for others, and for want of what."""

    async def admit(self, pod: Pod) -> Verdict:
        self.asked.append(uid_of(pod))
        script = self.verdicts.get(uid_of(pod))
        return script.pop(0) if script else Admit()

    def take_over(self, pod: Pod, *, cause: CauseId | None) -> None:  # noqa: ARG002 - of the protocol
        self.taken_over.append(uid_of(pod))

    def note_change(self, pod: Pod, known: Pod, *, cause: CauseId | None) -> None:  # noqa: ARG002 - of the protocol
        self.changes.append((known, pod))

    def reject(self, pod: Pod, rejection: Reject, *, cause: CauseId | None) -> None:  # noqa: ARG002 - of the protocol
        self.rejected.append((uid_of(pod), rejection))

    def note_wait(self, pod: Pod, wait: Wait, *, cause: CauseId | None) -> None:  # noqa: ARG002 - of the protocol
        self.waits.append((uid_of(pod), wait))

    def note_preempted(self, victim: Pod, preempt: Preempt) -> None:
        self.preempted.append((uid_of(victim), preempt.resource))

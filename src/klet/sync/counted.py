"""Counts what pod workers do: the steps of pods, and the verdicts of admission."""

from collections.abc import Callable
from datetime import datetime

from klet.aio.clock import Clock
from klet.api.pod import Pod, PodStatus
from klet.api.pod_annotations import SEEN_ANNOTATION
from klet.model.causes import CauseId
from klet.model.pods import PodUID, uid_of
from klet.model.runtime import PodRuntimeStatus
from klet.model.verdicts import Preempt, Reject, Verdict, Wait
from klet.status.phase import PENDING, RUNNING
from klet.sync.metrics import AdmissionMetrics, PodWorkerMetrics, rejection_label
from klet.sync.worker_roles import Admission, PodSteps, StepResult
from klet.sync.worker_state import StatusChange


class CountedSteps:
    """The steps of another one, measured."""

    def __init__(
        self,
        *,
        inner: PodSteps,
        metrics: PodWorkerMetrics,
        reported: Callable[[PodUID], PodStatus | None],
        clock: Clock,
    ) -> None:
        self._inner = inner
        self._metrics = metrics
        self._reported = reported
        self._clock = clock
        self._synced: dict[PodUID, Pod] = {}
        """Each pod as it was last synced."""

    async def sync(self, pod: Pod, status: PodRuntimeStatus, *, cause: CauseId | None) -> StepResult:
        uid = uid_of(pod)
        before = self._synced.get(uid)
        self._synced[uid] = pod
        if before is None:
            operation = "create"
            self._metrics.containers.observe(len(pod.spec.containers))
            if (seen := first_seen(pod)) is not None:
                self._metrics.first_step.observe((self._clock.now() - seen).total_seconds())
        else:
            operation = "sync" if before is pod else "update"
        known = self._reported(uid)
        is_coming = known is None or known.phase == PENDING
        began = self._clock.monotonic()
        try:
            return await self._inner.sync(pod, status, cause=cause)
        finally:
            self._metrics.duration.observe(self._clock.monotonic() - began, operation)
            if is_coming:
                self._note_start(pod)

    async def terminate(
        self,
        pod: Pod,
        status: PodRuntimeStatus,
        *,
        grace: int | None,
        change: StatusChange | None,
        is_runtime_only: bool,
        cause: CauseId | None,
    ) -> None:
        began = self._clock.monotonic()
        try:
            await self._inner.terminate(
                pod, status, grace=grace, change=change, is_runtime_only=is_runtime_only, cause=cause
            )
        finally:
            self._metrics.duration.observe(self._clock.monotonic() - began, "kill")

    async def finish(self, pod: Pod, status: PodRuntimeStatus, *, was_over: bool, cause: CauseId | None) -> None:
        self._synced.pop(uid_of(pod), None)
        began = self._clock.monotonic()
        try:
            await self._inner.finish(pod, status, was_over=was_over, cause=cause)
        finally:
            self._metrics.duration.observe(self._clock.monotonic() - began, "terminated")

    def _note_start(self, pod: Pod) -> None:
        """Measure a start, if the pod was reported as running in this sync for the first time."""
        reported, seen = self._reported(uid_of(pod)), first_seen(pod)
        if reported is not None and reported.phase == RUNNING and seen is not None:
            self._metrics.start.observe((self._clock.now() - seen).total_seconds())


class CountedAdmission:
    """The admission of another one, whose rejections and preemptions are counted."""

    def __init__(self, *, inner: Admission, metrics: AdmissionMetrics) -> None:
        self._inner = inner
        self._metrics = metrics

    async def admit(self, pod: Pod) -> Verdict:
        return await self._inner.admit(pod)

    def take_over(self, pod: Pod, *, cause: CauseId | None) -> None:
        self._inner.take_over(pod, cause=cause)

    def note_change(self, pod: Pod, known: Pod, *, cause: CauseId | None) -> None:
        self._inner.note_change(pod, known, cause=cause)

    def reject(self, pod: Pod, rejection: Reject, *, cause: CauseId | None) -> None:
        self._metrics.rejections.add(rejection_label(str(rejection.reason)))
        self._inner.reject(pod, rejection, cause=cause)

    def note_wait(self, pod: Pod, wait: Wait, *, cause: CauseId | None) -> None:
        self._inner.note_wait(pod, wait, cause=cause)

    def note_preempted(self, victim: Pod, preempt: Preempt) -> None:
        self._metrics.preemptions.add(preempt.resource)
        self._inner.note_preempted(victim, preempt)


def first_seen(pod: Pod) -> datetime | None:
    """Return when a source first had the pod; None if no source has noted it, or not in a way that can be read."""
    text = pod.metadata.annotations.get(SEEN_ANNOTATION, "")
    try:
        seen = datetime.fromisoformat(text)
    except ValueError:
        return None
    return seen if seen.tzinfo is not None else None

"""What the node gives a pod before its containers start, and releases when it has ended: an ordered list of steps.

Steps prepare in the order of the list and release in reverse order. A new resource (CPUs, memory, devices, claims)
is one more step in the list that `app/wiring.py` makes; no other part knows which steps there are.
"""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from klet.aio.clock import Clock
from klet.api.pod import Pod, PodStatus
from klet.metrics import Histogram
from klet.model.causes import CauseId
from klet.model.pods import PodUID, uid_of
from klet.model.runtime import PodRuntimeStatus
from klet.model.stopping_pods import StoppingPods
from klet.model.verdicts import Reject
from klet.sync.requeue import StepFailure


class SyncedPod(Struct, frozen=True):
    """A pod in one pass of its worker."""

    pod: Pod
    status: PodRuntimeStatus
    reported: PodStatus
    cause: CauseId | None


class StepIncomplete(Struct, frozen=True):
    """A step is not done: this pass of the pod ends here, and its worker retries."""

    failure: StepFailure = StepFailure.ERROR
    retry_at: datetime | None = None
    rejection: Reject | None = None
    """The node cannot give it at all: the pod fails, and its controller makes another one."""


class Stopped(Struct, frozen=True):
    """The step stopped the pod, so the runtime status that this pass has is out of date."""


class PreparationStep:
    """One thing that pods are given. A step overrides what it needs; an error fails only this pod's pass."""

    name = "other"
    """What metrics call it."""
    may_be_left_out = False
    """Whether `prepare` may be cancelled when the pod is to stop, because it leaves nothing half-done."""

    async def keep(self, synced: SyncedPod) -> StepIncomplete | Stopped | None:
        """Check, in every pass, that a running pod still has what it needs."""

    def refresh(self, pod: Pod) -> None:
        """Update what the pod was given, in a pass that starts nothing. It does not wait."""

    async def prepare(self, pod: Pod, *, cause: CauseId | None) -> StepIncomplete | None:
        """Give the pod what its sandbox and containers need to start."""

    async def note_stop(self, uid: PodUID | None) -> None:
        """Record that the containers of a pod have stopped; None for a pod that no source has."""

    async def release(self, pod: Pod) -> None:
        """Release what the pod held. It has ended."""


class Preparation:
    """All steps, in their order."""

    def __init__(
        self, steps: Sequence[PreparationStep], *, stopping_pods: StoppingPods, durations: Histogram, clock: Clock
    ) -> None:
        self._steps = tuple(steps)
        self._durations = durations
        self._clock = clock
        self._stopping_pods = stopping_pods

    async def keep(self, synced: SyncedPod) -> StepIncomplete | Stopped | None:
        stopped: Stopped | None = None
        for step in self._steps:
            outcome = await step.keep(synced)
            if isinstance(outcome, StepIncomplete):
                return outcome
            stopped = stopped or outcome
        return stopped

    def refresh(self, pod: Pod) -> None:
        for step in self._steps:
            step.refresh(pod)

    async def prepare(self, pod: Pod, *, cause: CauseId | None) -> StepIncomplete | None:
        """Run all steps; raises PodStopping when the pod is to stop and a step was cancelled."""
        for step in self._steps:
            began = self._clock.monotonic()
            work = step.prepare(pod, cause=cause)
            try:
                held = await (self._stopping_pods.run(uid_of(pod), work) if step.may_be_left_out else work)
            finally:
                self._durations.observe(self._clock.monotonic() - began, step.name)
            if held is not None:
                return held
        return None

    async def note_stop(self, uid: PodUID | None) -> None:
        for step in self._steps:
            await step.note_stop(uid)

    async def release(self, pod: Pod) -> None:
        for step in reversed(self._steps):
            await step.release(pod)

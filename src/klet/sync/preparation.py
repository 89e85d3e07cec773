"""What the node gives a pod before its containers start, and takes back when it has ended: an ordered list of steps.

Steps are called in the order of the list and give back in reverse order. A new resource (CPUs, memory, devices, claims)
is one more step in the list that `app/wiring.py` makes; nobody else knows which steps there are.
"""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from klet.api.pod import Pod, PodStatus
from klet.model.causes import CauseId
from klet.model.halts import PodHalts
from klet.model.pods import PodUID, uid_of
from klet.model.runtime import PodRuntimeStatus
from klet.sync.requeue import StepFailure


class SyncedPod(Struct, frozen=True):
    """A pod in one pass of its worker."""

    pod: Pod
    status: PodRuntimeStatus
    reported: PodStatus
    cause: CauseId | None


class Held(Struct, frozen=True):
    """A step is not done: the pod goes no further, and its worker tries again."""

    failure: StepFailure = StepFailure.ERROR
    retry_at: datetime | None = None


class Stopped(Struct, frozen=True):
    """The pod had to be stopped, so what was seen of it is old."""


class PreparationStep:
    """One thing that pods are given. A step overrides what concerns it; what it raises concerns this pod alone."""

    may_be_left_out = False
    """Whether `prepare` may be cancelled when the pod is to stop: it leaves nothing half-done."""

    async def keep(self, synced: SyncedPod) -> Held | Stopped | None:
        """Look, in every pass, whether the pod has what it needs as long as it runs."""

    def refresh(self, pod: Pod) -> None:
        """Bring up to date what the pod was given, in a pass that starts nothing. It does not wait."""

    async def prepare(self, pod: Pod, *, cause: CauseId | None) -> Held | None:
        """Give the pod what its sandbox and containers need to start."""

    async def note_stop(self, uid: PodUID | None) -> None:
        """The containers of a pod have stopped; None for one that no source has."""

    async def release(self, pod: Pod) -> None:
        """Take back what the pod held. It has ended."""


class Preparation:
    """All steps, in their order."""

    def __init__(self, steps: Sequence[PreparationStep], *, halts: PodHalts) -> None:
        self._steps = tuple(steps)
        self._halts = halts

    async def keep(self, synced: SyncedPod) -> Held | Stopped | None:
        stopped: Stopped | None = None
        for step in self._steps:
            outcome = await step.keep(synced)
            if isinstance(outcome, Held):
                return outcome
            stopped = stopped or outcome
        return stopped

    def refresh(self, pod: Pod) -> None:
        for step in self._steps:
            step.refresh(pod)

    async def prepare(self, pod: Pod, *, cause: CauseId | None) -> Held | None:
        """Prepare all; raises Halted when the pod is to stop and a step was left out."""
        for step in self._steps:
            work = step.prepare(pod, cause=cause)
            held = await (self._halts.run(uid_of(pod), work) if step.may_be_left_out else work)
            if held is not None:
                return held
        return None

    async def note_stop(self, uid: PodUID | None) -> None:
        for step in self._steps:
            await step.note_stop(uid)

    async def release(self, pod: Pod) -> None:
        for step in reversed(self._steps):
            await step.release(pod)

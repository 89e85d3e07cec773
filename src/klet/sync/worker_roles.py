"""What the pod workers call: the steps of a pod, fresh runtime statuses and admission."""

from datetime import datetime
from typing import Protocol

from msgspec import Struct

from klet.api.pod import Pod
from klet.model.causes import CauseId
from klet.model.pods import PodUID
from klet.model.runtime import PodRuntimeStatus
from klet.model.verdicts import Preempt, Reject, Verdict, Wait
from klet.sync.requeue import StepFailure
from klet.sync.worker_state import StatusChange


class StepResult(Struct, frozen=True, kw_only=True):
    """The result of one sync of a pod."""

    is_terminal: bool = False
    is_over: bool = False
    """Its containers have ended already."""
    rejection: Reject | None = None
    """Why the node rejects a pod that it has admitted before."""
    failure: StepFailure | None = None
    retry_at: datetime | None = None
    """When a back-off ends, the earliest if there are several."""
    look_at: datetime | None = None
    """When the pod has to be synced again even if nothing happens: its deadline, for instance."""


class PodSteps(Protocol):
    """The steps that a worker runs for its pod (upstream's podSyncer)."""

    async def sync(self, pod: Pod, status: PodRuntimeStatus, *, cause: CauseId | None) -> StepResult: ...

    async def terminate(
        self,
        pod: Pod,
        status: PodRuntimeStatus,
        *,
        grace: int | None,
        change: StatusChange | None,
        is_runtime_only: bool,
        cause: CauseId | None,
    ) -> None: ...

    async def finish(self, pod: Pod, status: PodRuntimeStatus, *, was_over: bool, cause: CauseId | None) -> None: ...


class FreshStatuses(Protocol):
    """Returns a runtime status of a pod that is newer than the worker's last step."""

    def mark(self) -> float:
        """Return the present instant: what begins to be read from now on is newer."""
        ...

    async def fresh_status(self, uid: PodUID, *, newer_than: float) -> PodRuntimeStatus: ...

    async def read_now(self, uid: PodUID) -> PodRuntimeStatus:
        """Return a status whose read begins after this call."""
        ...


class Admission(Protocol):
    """Decides which pods this node admits."""

    async def admit(self, pod: Pod) -> Verdict: ...

    def take_over(self, pod: Pod, *, cause: CauseId | None) -> None:
        """Keep the resources of a pod that needs no admission: it runs already, or has ended."""
        ...

    def note_change(self, pod: Pod, known: Pod, *, cause: CauseId | None) -> None:
        """Note that the spec of an admitted pod may ask for other resources now."""
        ...

    def reject(self, pod: Pod, rejection: Reject, *, cause: CauseId | None) -> None:
        """Record and report that the node rejects a pod."""
        ...

    def note_wait(self, pod: Pod, wait: Wait, *, cause: CauseId | None) -> None:
        """Record what a pod waits for."""
        ...

    def note_preempted(self, victim: Pod, preempt: Preempt) -> None:
        """Note that a pod has stopped to make room for another one."""
        ...

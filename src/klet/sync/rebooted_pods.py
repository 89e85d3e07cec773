"""Names a reboot of the machine as the cause of what it did to pods: ends, new sandboxes and restarts.

Nothing else is different after a reboot: sandboxes are not ready, containers have ended, and each pod is synced as
always, as in upstream.
"""

from klet.api.container import Container
from klet.api.pod import Pod
from klet.model.boots import Reboot
from klet.model.causes import CauseId
from klet.model.pods import PodUID, uid_of
from klet.model.runtime import PodRuntimeStatus
from klet.runtime.restart import should_restart
from klet.sync.worker_roles import PodSteps, StepResult
from klet.sync.worker_state import StatusChange


class RebootedPods:
    """The steps of the workers, with the reboot as the cause of a pod's syncs until the pod is back. `PodSteps`."""

    def __init__(self, *, inner: PodSteps, reboot: Reboot, restart_all: bool) -> None:
        self._inner = inner
        self._reboot = reboot
        self._restart_all = restart_all
        self._first: dict[PodUID, int | None] = {}
        """By pod, the first attempt of a sandbox after the reboot; None for a pod that is back, or was not hit."""

    async def sync(self, pod: Pod, status: PodRuntimeStatus, *, cause: CauseId | None) -> StepResult:
        return await self._inner.sync(pod, status, cause=self._reboot.cause if self._is_hit(pod, status) else cause)

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
        await self._inner.terminate(
            pod, status, grace=grace, change=change, is_runtime_only=is_runtime_only, cause=cause
        )

    async def finish(self, pod: Pod, status: PodRuntimeStatus, *, was_over: bool, cause: CauseId | None) -> None:
        await self._inner.finish(pod, status, was_over=was_over, cause=cause)
        uid = uid_of(pod)
        if uid in self._reboot.before:
            self._first[uid] = None  # should its UID come back, that pod is not from before the reboot
        else:
            self._first.pop(uid, None)

    def _is_hit(self, pod: Pod, status: PodRuntimeStatus) -> bool:
        """Return whether what is done for the pod now is a consequence of the reboot."""
        uid = uid_of(pod)
        if uid not in self._first:
            self._first[uid] = first_attempt_after(self._reboot, status)
        first = self._first[uid]
        if first is not None and is_back(pod, status, first=first, restart_all=self._restart_all):
            self._first[uid] = None
        return self._first[uid] is not None


def first_attempt_after(reboot: Reboot, status: PodRuntimeStatus) -> int | None:
    """Return the attempt of the sandbox that replaces the one the reboot ended; None if it ended none."""
    newest = status.sandboxes[0] if status.sandboxes else None
    if newest is None:
        # Some runtimes, such as CRI-O, drop everything that ran before a reboot.
        return 0 if status.uid in reboot.before else None
    if newest.ready:
        return None
    # The clock may have been wrong before or after the reboot; that the last run knew the pod says as much.
    is_older = newest.created_at < reboot.noticed_at or status.uid in reboot.before
    return newest.attempt + 1 if is_older else None


def is_back(pod: Pod, status: PodRuntimeStatus, *, first: int, restart_all: bool) -> bool:
    """Return whether the pod has a sandbox from after the reboot, and in it every container that is to run."""
    after = {sandbox.id for sandbox in status.sandboxes if sandbox.attempt >= first}

    def has_come(container: Container) -> bool:
        record = status.newest(container.name)
        if record is None or record.sandbox_id in after:
            return record is not None
        return not should_restart(container, pod, record, restart_all=restart_all)

    return bool(after) and all(has_come(container) for container in pod.spec.containers)

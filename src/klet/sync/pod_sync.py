"""The steps of a pod's life: bring it to what its spec wants, stop it, release what it held (SyncPod and siblings)."""

from typing import Protocol

from klet.api.pod import Pod
from klet.errors import KletError
from klet.model.causes import CauseId, CauseRecorder
from klet.model.pods import PodUID, uid_of
from klet.model.runtime import PodRuntimeStatus
from klet.runtime.actions import PodActions, compute_pod_actions
from klet.runtime.executor import PodExecutor
from klet.runtime.killer import PodKiller
from klet.status.phase import is_terminal
from klet.sync.cgroup_step import CgroupStep
from klet.sync.pod_status import PodStatuses
from klet.sync.workers import FreshStatuses, StepResult

ORPHAN_GRACE = 1
"""Seconds. Nobody is left who could have asked for more."""


class StillRunning(KletError):
    """The runtime said that it stopped a pod, and its containers run on."""


class PodDirectories(Protocol):
    """Makes the directories a pod needs before its sandbox."""

    async def prepare_pod(self, pod: Pod) -> None: ...


class PodProbes(Protocol):
    """Starts and stops the probes of a pod."""

    def add_pod(self, pod: Pod) -> None: ...

    def stop_liveness_and_startup(self, pod: Pod) -> None: ...

    def remove_pod(self, uid: PodUID) -> None: ...


class PodSync:
    """Carries out the steps that the workers ask for."""

    def __init__(
        self,
        *,
        executor: PodExecutor,
        killer: PodKiller,
        statuses: PodStatuses,
        probes: PodProbes,
        fresh: FreshStatuses,
        directories: PodDirectories,
        cgroups: CgroupStep,
        recorder: CauseRecorder,
    ) -> None:
        self._executor = executor
        self._killer = killer
        self._statuses = statuses
        self._probes = probes
        self._fresh = fresh
        self._directories = directories
        self._cgroups = cgroups
        self._recorder = recorder

    async def sync(self, pod: Pod, status: PodRuntimeStatus, *, cause: CauseId | None) -> StepResult:
        """One pass: report what is, then do what is missing."""
        # Before the report: a container that a probe is there for is not ready until that has answered.
        self._probes.add_pod(pod)
        reported = self._statuses.report(pod, status, cause=cause)
        if is_terminal(reported.phase):
            return StepResult(is_terminal=True)
        if await self._cgroups.prepare(pod, status, reported, cause=cause):
            status = await self._fresh.read_now(uid_of(pod))
            if is_terminal(self._statuses.report(pod, status, cause=cause).phase):
                return StepResult(is_terminal=True)
        actions = compute_pod_actions(pod, status, probes=self._statuses.probe_view())
        if actions.is_idle:
            self._statuses.note_failures(uid_of(pod), {})
            return StepResult()
        await self._directories.prepare_pod(pod)
        parent = self._record(actions, cause)
        outcome = await self._executor.carry_out(pod, status, actions, parent=parent)
        if self._statuses.note_failures(uid_of(pod), outcome.failures) and outcome.failures:
            self._statuses.report(pod, status, cause=parent)
        return StepResult(errors=outcome.errors, retry_at=outcome.retry_at)

    async def terminate(
        self, pod: Pod, status: PodRuntimeStatus, *, grace: int | None, is_runtime_only: bool, cause: CauseId | None
    ) -> None:
        """Stop everything of the pod; raises while something still runs."""
        if is_runtime_only:
            await self._killer.kill_pod(pod, status, grace=ORPHAN_GRACE, parent=cause)
            await self._cgroups.balance()
            # As long as the cache shows the orphan running, housekeeping would have it stopped again and again.
            await self._stopped_status(pod)
            return
        self._statuses.report(pod, status, cause=cause)
        self._probes.stop_liveness_and_startup(pod)
        await self._killer.kill_pod(pod, status, grace=grace, parent=cause)
        self._probes.remove_pod(uid_of(pod))
        await self._cgroups.balance(without=uid_of(pod))
        self._statuses.report(pod, await self._stopped_status(pod), ends_here=True, cause=cause)

    async def finish(self, pod: Pod, status: PodRuntimeStatus, *, cause: CauseId | None) -> None:
        """Release what the pod held. Its dead containers and logs stay until no source has the pod."""
        self._statuses.report(pod, status, ends_here=True, cause=cause)
        await self._cgroups.release(pod)

    async def _stopped_status(self, pod: Pod) -> PodRuntimeStatus:
        """What the runtime shows after a kill; raises if something still runs."""
        after = await self._fresh.read_now(uid_of(pod))
        if running := [record.id for record in after.running()]:
            message = f"detected running containers after a successful KillPod, CRI violation: {running}"
            raise StillRunning(message)
        return after

    def _record(self, actions: PodActions, cause: CauseId | None) -> CauseId | None:
        """Record why, and return what the consequences have as their parent."""
        parent = cause
        for finding in actions.findings:
            recorded = self._recorder.record(finding, parent=cause)
            parent = recorded if parent == cause else parent
        return parent

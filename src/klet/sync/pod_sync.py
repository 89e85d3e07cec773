"""The steps of a worker: sync a pod, stop it, release what it held (SyncPod, SyncTerminatingPod, SyncTerminatedPod)."""

from msgspec.structs import replace

from klet.api.pod import Pod, PodStatus
from klet.errors import KletError
from klet.model.causes import CauseId, CauseRecorder
from klet.model.pods import uid_of
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.model.restart_rules import is_restarting_all
from klet.model.runtime import PodRuntimeStatus
from klet.model.stopping_pods import PodStopping, StoppingPods
from klet.pleg.pleg import Pleg
from klet.probes.manager import ProbeManager
from klet.runtime.actions import PodActions, compute_pod_actions
from klet.runtime.executor import PodExecutor
from klet.runtime.kill.killer import PodKiller
from klet.status.phase import is_terminal
from klet.sync.deadline import deadline_of
from klet.sync.pod_status import PodStatuses
from klet.sync.preparation import Preparation, StepIncomplete, Stopped, SyncedPod
from klet.sync.preparation_steps import DECIDER, RETRY
from klet.sync.requeue import StepFailure
from klet.sync.worker_roles import StepResult
from klet.sync.worker_state import StatusChange

ORPHAN_GRACE = 1
"""Seconds. There is no spec that asks for more."""


class StillRunning(KletError):
    """The runtime reported that it stopped a pod, but its containers still run."""


class PodSync:
    """Runs the steps of the pod workers."""

    def __init__(
        self,
        *,
        executor: PodExecutor,
        killer: PodKiller,
        statuses: PodStatuses,
        probes: ProbeManager,
        fresh: Pleg,
        preparation: Preparation,
        stopping_pods: StoppingPods,
        recorder: CauseRecorder,
    ) -> None:
        self._executor = executor
        self._killer = killer
        self._statuses = statuses
        self._probes = probes
        self._fresh = fresh
        self._preparation = preparation
        self._stopping_pods = stopping_pods
        self._recorder = recorder
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)

    async def sync(self, pod: Pod, status: PodRuntimeStatus, *, cause: CauseId | None) -> StepResult:
        """Run one pass: report the status, then do what is missing."""
        # Before the report: a container that has a probe is not ready until the probe has answered.
        self._probes.add_pod(pod)
        reported = self._statuses.report(pod, status, cause=cause)
        if is_terminal(reported.phase):
            return StepResult(is_terminal=True, is_over=status.has_ended)
        look_at = deadline_of(pod, reported)
        kept = await self._preparation.keep(SyncedPod(pod, status, reported, cause))
        if isinstance(kept, StepIncomplete):
            return StepResult(failure=kept.failure, retry_at=kept.retry_at, look_at=look_at)
        if isinstance(kept, Stopped):
            status = await self._fresh.read_now(uid_of(pod))
            reported = self._statuses.report(pod, status, cause=cause)
            if is_terminal(reported.phase):
                return StepResult(is_terminal=True, is_over=status.has_ended)
        try:
            return replace(await self._bring_up(pod, status, reported, cause), look_at=look_at)
        except PodStopping:
            return StepResult()  # the worker goes on to stop it

    async def _bring_up(
        self, pod: Pod, status: PodRuntimeStatus, reported: PodStatus, cause: CauseId | None
    ) -> StepResult:
        """Prepare the pod, kill and start what is needed; raises PodStopping when the pod is to stop meanwhile."""
        uid = uid_of(pod)
        restart_all = self._statuses.features.restart_all
        actions = compute_pod_actions(
            pod,
            status,
            probes=self._statuses.probe_view(),
            restart_all=restart_all,
            is_restarting_all=restart_all and is_restarting_all(reported),
        )
        if actions.is_idle:
            self._preparation.refresh(pod)
            return StepResult()
        if (held := self._executor.held_back(pod, actions)) is not None:
            self._preparation.refresh(pod)
            return StepResult(failure=StepFailure.ERROR, retry_at=held.retry_at)
        if (unprepared := await self._preparation.prepare(pod, cause=cause)) is not None:
            if unprepared.rejection is not None:
                return StepResult(is_terminal=True, rejection=unprepared.rejection)
            return StepResult(failure=unprepared.failure, retry_at=unprepared.retry_at)
        if self._stopping_pods.is_stopping(uid):
            raise PodStopping("the pod is to stop")
        parent = self._record(actions, cause)
        with self._fresh.changing(uid):
            outcome = await self._executor.carry_out(pod, status, actions, parent=parent)
            if outcome.first is not None:
                self._fresh.note_first_start(uid, outcome.first)
        is_news = self._statuses.note_starts(uid, outcome.failures, started=outcome.started)
        if is_news and outcome.failures:
            self._statuses.report(pod, status, cause=parent)
        failure = StepFailure.ERROR if outcome.errors else None
        return StepResult(failure=failure, retry_at=outcome.retry_at)

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
        """Stop everything of the pod; raises while something still runs."""
        if is_runtime_only:
            await self._kill(pod, status, ORPHAN_GRACE, cause)
            await self._preparation.note_stop(None)
            # As long as the cache shows the orphan running, housekeeping would stop it again and again.
            await self._stopped_status(pod)
            return
        self._statuses.report(pod, status, change=change, cause=cause)
        self._probes.stop_liveness_and_startup(pod)
        await self._kill(pod, status, grace, cause)
        self._probes.remove_pod(uid_of(pod))
        await self._preparation.note_stop(uid_of(pod))
        self._statuses.report(pod, await self._stopped_status(pod), ends_here=True, cause=cause)

    async def finish(self, pod: Pod, status: PodRuntimeStatus, *, was_over: bool, cause: CauseId | None) -> None:
        """Release what the pod held. Its dead containers and logs stay until no source has the pod.

        The dead sandbox of a pod that had ended before this agent saw it may never have been stopped; until it is, it
        keeps its network.
        """
        self._statuses.report(pod, status, ends_here=True, cause=cause)
        if was_over:
            await self._kill(pod, status, None, cause)
        await self._preparation.release(pod)
        self._statuses.end(pod, cause=cause)

    async def _kill(self, pod: Pod, status: PodRuntimeStatus, grace: int | None, cause: CauseId | None) -> None:
        try:
            await self._killer.kill_pod(pod, status, grace=grace, parent=cause)
        except KletError as error:
            text = f"error killing pod: {error}"
            self._decisions.for_pod(pod).record(Reason.FAILED_KILL_POD, text, next_step=RETRY, parent=cause)
            raise

    async def _stopped_status(self, pod: Pod) -> PodRuntimeStatus:
        """Return what the runtime shows after a kill; raises if something still runs."""
        after = await self._fresh.read_now(uid_of(pod))
        if running := [record.id for record in after.running()]:
            message = f"detected running containers after a successful KillPod, CRI violation: {running}"
            raise StillRunning(message)
        return after

    def _record(self, actions: PodActions, cause: CauseId | None) -> CauseId | None:
        """Record the reasons of the actions, and return the cause of what follows from them."""
        parent = cause
        for finding in actions.findings:
            recorded = self._recorder.record(finding, parent=cause)
            parent = recorded if parent == cause else parent
        return parent

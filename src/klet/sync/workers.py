"""One task per pod: takes in updates, of which the newest wins, and runs the pod's next step (pod workers).

A step that has begun runs to its end; an update that came meanwhile is handled right after it. A pod that is to stop is
marked as stopping at once, so that a step ends the waits that it may end: for an image, for instance.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from klet.aio.clock import Clock
from klet.api.pod import Pod
from klet.errors import KletError
from klet.model.causes import CauseId, CauseRecorder
from klet.model.pods import LONGEST_GRACE, PodUID, uid_of
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.model.runtime import PodRuntimeStatus
from klet.model.stopping_pods import StoppingPods
from klet.model.verdicts import Preempt, Reject, Wait
from klet.sync.ledger import WorkerLedger
from klet.sync.requeue import ResyncSettings, StepFailure, compute_requeue
from klet.sync.worker_roles import Admission, FreshStatuses, PodSteps, StepResult
from klet.sync.worker_state import (
    DECIDER,
    PodUpdate,
    Stage,
    StatusChange,
    Transition,
    UpdateKind,
    WorkerState,
    after_admission,
    after_sync,
    after_terminated,
    after_terminating,
    apply_update,
    first_state,
    orphaned,
    started,
    stopping,
)

logger = logging.getLogger(__name__)

SHORTEST_KILL_PATIENCE = timedelta(seconds=10)


class StatusUnknown(KletError):
    """The runtime status of a pod could not be read."""


class KillTimeout(KletError):
    """A pod did not stop in time. It is still being stopped."""


class PodWorkers:
    """Runs the workers. Only it writes the ledger."""

    def __init__(
        self,
        *,
        admission: Admission,
        steps: PodSteps,
        statuses: FreshStatuses,
        is_live: Callable[[PodUID], bool],
        ledger: WorkerLedger,
        stopping_pods: StoppingPods,
        recorder: CauseRecorder,
        clock: Clock,
        resync: ResyncSettings,
        on_finished: Callable[[PodUID], None],
    ) -> None:
        self._admission = admission
        self._steps = steps
        self._statuses = statuses
        self._is_live = is_live
        """Whether the runtime may run something of a pod."""
        self._ledger = ledger
        self._stopping_pods = stopping_pods
        self._recorder = recorder
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)
        self._clock = clock
        self._resync = resync
        self._on_finished = on_finished
        self._wakes: dict[PodUID, asyncio.Event] = {}
        """One event per worker task. A set event is kept until the worker looks, so no wake during a step is lost."""
        self._held_back: set[PodUID] = set()
        self._killers: dict[PodUID, list[asyncio.Event]] = {}
        """The callers of `kill` that wait for a pod to stop."""
        self._arrivals: asyncio.Queue[PodUID] = asyncio.Queue()
        self._admitting = asyncio.Lock()
        """Pods are admitted one after the other, in the order in which they came: each counts those before it."""

    async def run(self) -> None:
        """Own the worker tasks until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                uid = await self._arrivals.get()
                group.create_task(self._work(uid), name=f"pod-worker-{uid}")

    def update(self, update: PodUpdate) -> None:
        """Hand an update to the pod's worker; start a worker for a pod that is new."""
        uid = uid_of(update.pod)
        now = self._clock.now()
        state = self._ledger.get(uid)
        if state is None:
            # The state is on the ledger when this returns, before the task runs: housekeeping and the admission of
            # other pods must not take the pod for unknown in between.
            self._wakes[uid] = asyncio.Event()
            first = first_state(update, is_live=self._is_live(uid), now=now)
            if first.state.stage is not Stage.ADMITTING and not update.is_runtime_only:
                self._admission.take_over(update.pod, cause=update.cause)
            self._apply(uid, first)
            self._wakes[uid].set()
            self._arrivals.put_nowait(uid)
        else:
            if state.stage is Stage.SYNCING and not update.is_runtime_only:
                self._admission.note_change(update.pod, state.pod, cause=update.cause)
            self._apply(uid, apply_update(state, update, now=now))

    async def kill(
        self,
        pod: Pod,
        *,
        evict: bool = False,
        grace: int | None = None,
        status_change: StatusChange | None = None,
        why: str = "",
        cause: CauseId | None = None,
    ) -> None:
        """Stop a pod and return when nothing of it runs any more (killPodNow); raises KillTimeout."""
        uid = uid_of(pod)
        stopped = asyncio.Event()
        # Before the update: a pod that never started is finished by the update itself.
        self._killers.setdefault(uid, []).append(stopped)
        self.update(
            PodUpdate(
                kind=UpdateKind.KILL,
                pod=pod,
                evict=evict,
                grace=grace,
                status_change=status_change,
                why=why,
                cause=cause,
            )
        )
        try:
            await self._clock.wait(stopped.wait(), at_most=kill_patience(pod, grace))
        finally:
            self._no_longer_waits(uid, stopped)
        if not stopped.is_set():
            text = "Container runtime did not kill the pod within specified grace period."
            state = self._ledger.state_of(uid)
            self._decisions.for_pod(state.pod).record(
                Reason.EXCEEDED_GRACE_PERIOD, text, next_step="go on stopping it", parent=state.cause
            )
            raise KillTimeout("timeout waiting to kill pod")

    def has(self, uid: PodUID) -> bool:
        """Return whether the pod has a worker, or had one and is not forgotten yet."""
        return self._ledger.get(uid) is not None

    def wake(self, uid: PodUID) -> None:
        """Have the worker look at its pod; without effect for a pod that has no worker."""
        if uid in self._wakes:
            self._wakes[uid].set()

    def orphan(self, uid: PodUID) -> None:
        """Terminate a pod that no source has any more."""
        state = self._ledger.get(uid)
        if state is not None and not state.is_deleted:
            self._apply(uid, orphaned(state, now=self._clock.now()))

    def forget(self, uid: PodUID) -> bool:
        """Forget a pod that is finished; return False if it is not, or if its worker task has not ended yet."""
        state = self._ledger.get(uid)
        is_over = state is not None and state.stage is Stage.FINISHED and uid not in self._wakes
        if is_over:
            self._ledger.forget(uid)
        return is_over

    @contextmanager
    def holding_back(self, uid: PodUID) -> Iterator[None]:
        """Start no pod of this UID while the leftovers of its previous run are removed; a static pod may come back."""
        self._held_back.add(uid)
        try:
            yield
        finally:
            self._held_back.discard(uid)
            self.wake(uid)

    def _no_longer_waits(self, uid: PodUID, stopped: asyncio.Event) -> None:
        waiting = self._killers.get(uid, [])
        if stopped in waiting:
            waiting.remove(stopped)
            if not waiting:
                del self._killers[uid]

    def _apply(self, uid: PodUID, transition: Transition) -> None:
        state = transition.state
        # The ledger first: what the lines below wake must find the new state.
        self._ledger.put(uid, state)
        if state.stage is Stage.TERMINATING:
            self._stopping_pods.mark(uid)
        if state.has_stopped:
            for stopped in self._killers.pop(uid, ()):
                stopped.set()
        for finding in transition.findings:
            self._recorder.record(finding, parent=state.cause)
        if transition.wake:
            self.wake(uid)

    async def _work(self, uid: PodUID) -> None:
        wake = self._wakes[uid]
        due: datetime | None = None
        last_step = float("-inf")
        while True:
            await self._wait(wake, due)
            # Cleared before the state is read: an update during the step sets it again, and the step is repeated.
            wake.clear()
            state = self._ledger.state_of(uid)
            if state.stage is Stage.SYNCING and (uid in self._held_back or not self._ledger.may_start(uid)):
                due = None  # `holding_back`, or the end of the pod that has the same name, wakes this worker
                continue
            if state.stage is not Stage.FINISHED:
                if state.stage is not Stage.ADMITTING:
                    self._ledger.put(uid, started(state, now=self._clock.now()))
                due = await self._step(uid, last_step)
                # The next step needs a status that was read after this one, or it would not see its own changes. An
                # admission changes nothing in the runtime: before the first start there is nothing to read.
                if state.stage is not Stage.ADMITTING:
                    last_step = self._statuses.mark()
            if self._ledger.state_of(uid).stage is Stage.FINISHED:
                del self._wakes[uid]
                self._stopping_pods.clear(uid)
                self._wake_waiting()
                self._on_finished(uid)
                return

    async def _wait(self, wake: asyncio.Event, due: datetime | None) -> None:
        if wake.is_set():
            return
        if due is None:
            await wake.wait()
        else:
            await self._clock.wait(wake.wait(), at_most=due - self._clock.now())

    def _wake_waiting(self) -> None:
        """Wake the pods that have not started: one may have waited for the end of this pod."""
        for uid, event in self._wakes.items():
            if self._ledger.state_of(uid).started_at is None:
                event.set()

    async def _step(self, uid: PodUID, last_step: float) -> datetime | None:
        """Run the pod's next step and return when to look again if nothing happens."""
        state = self._ledger.state_of(uid)
        try:
            if state.stage is Stage.ADMITTING:
                result = await self._admit(uid)
            else:
                status = await self._fresh_status(uid, last_step)
                state = self._ledger.state_of(uid)  # it may have been killed while the status was read
                result = await self._dispatch(uid, state, status)
        except Exception as error:  # the boundary of the worker: an error here concerns this pod only
            known = isinstance(error, KletError)
            text = str(error) or repr(error)
            logger.log(
                logging.WARNING if known else logging.ERROR,
                "A step of a pod failed",
                extra={"pod": state.pod.metadata.name, "uid": uid, "error": text},
                exc_info=None if known else error,
            )
            result = StepResult(failure=StepFailure.ERROR)
            self._decisions.for_pod(state.pod).record(
                Reason.FAILED_SYNC, text, next_step="try again after a back-off", parent=state.cause
            )
        return self._next_look(result)

    async def _admit(self, uid: PodUID) -> StepResult:
        """Admit or reject the pod. A pod that has to wait is admitted again later, as after an error."""
        async with self._admitting:
            state = self._ledger.state_of(uid)
            if state.stage is not Stage.ADMITTING:
                return StepResult()  # it was killed while others were admitted
            verdict = await self._admission.admit(state.pod)
            if isinstance(verdict, Preempt):
                await self._stop_victims(verdict, cause=state.cause)
                verdict = await self._admission.admit(state.pod)
            if isinstance(verdict, Preempt):
                verdict = Wait("preempted pods are still being stopped")
            # Read again after the awaits: a pod that was killed during its admission is not reported as rejected.
            state = self._ledger.state_of(uid)
            is_still_wanted = state.stage is Stage.ADMITTING
            self._apply(uid, after_admission(state, verdict, now=self._clock.now()))
        if is_still_wanted and isinstance(verdict, Reject):
            self._admission.reject(state.pod, verdict, cause=state.cause)
        if is_still_wanted and isinstance(verdict, Wait):
            self._admission.note_wait(state.pod, verdict, cause=state.cause)
            return StepResult(failure=StepFailure.ERROR)
        return StepResult()

    async def _stop_victims(self, preempt: Preempt, *, cause: CauseId | None) -> None:
        async with asyncio.TaskGroup() as group:
            for victim in preempt.victims:
                group.create_task(self._stop_victim(victim, preempt, cause), name=f"preempt-{uid_of(victim)}")

    async def _stop_victim(self, victim: Pod, preempt: Preempt, cause: CauseId | None) -> None:
        self._decisions.for_pod(victim).record(Reason.PREEMPTING, preempt.message, next_step="stop it", parent=cause)
        try:
            await self.kill(victim, evict=True, status_change=preempt.status_change, why=preempt.message, cause=cause)
        except KillTimeout as error:  # `kill` has recorded it; the pod waits until the victim has stopped
            logger.warning("A preempted pod did not stop in time", extra={"uid": uid_of(victim), "error": str(error)})
        else:
            self._admission.note_preempted(victim, preempt)

    async def _fresh_status(self, uid: PodUID, last_step: float) -> PodRuntimeStatus:
        try:
            return await self._statuses.fresh_status(uid, newer_than=last_step)
        except KletError as error:
            message = f"error determining status: {error}"
            raise StatusUnknown(message) from error

    async def _dispatch(self, uid: PodUID, state: WorkerState, status: PodRuntimeStatus) -> StepResult:
        match state.stage:
            case Stage.SYNCING:
                result = await self._steps.sync(state.pod, status, cause=state.cause)
                known = self._ledger.state_of(uid)  # updates during the sync have changed it
                now = self._clock.now()
                if result.rejection is not None and known.stage is Stage.SYNCING:
                    self._admission.reject(state.pod, result.rejection, cause=state.cause)
                self._apply(uid, after_sync(known, is_terminal=result.is_terminal, is_over=result.is_over, now=now))
                return result
            case Stage.TERMINATING:
                self._ledger.put(uid, stopping(state))
                await self._steps.terminate(
                    state.pod,
                    status,
                    grace=state.imposed_grace,
                    change=state.status_change,
                    is_runtime_only=state.is_runtime_only,
                    cause=state.cause,
                )
                self._apply(uid, after_terminating(self._ledger.state_of(uid), now=self._clock.now()))
            case Stage.TERMINATED:
                await self._steps.finish(state.pod, status, was_over=state.was_over, cause=state.cause)
                self._apply(uid, after_terminated(self._ledger.state_of(uid)))
            case Stage.ADMITTING | Stage.FINISHED:
                pass
        return StepResult()

    def _next_look(self, result: StepResult) -> datetime:
        return compute_requeue(
            result.failure,
            retry_at=result.retry_at,
            look_at=result.look_at,
            now=self._clock.now(),
            resync=self._resync.period,
            chance=self._resync.randomness.random(),
        )


def kill_patience(pod: Pod, grace: int | None) -> timedelta:
    """Return how long a pod may take to stop: one and a half times its grace period, at least ten seconds."""
    granted = grace if grace is not None else pod.spec.termination_grace_period_seconds or 0
    granted = min(granted, LONGEST_GRACE)
    return max(SHORTEST_KILL_PATIENCE, timedelta(seconds=granted + granted // 2))

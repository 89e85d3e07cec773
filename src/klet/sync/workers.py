"""One task per pod: takes in updates, newest first, and runs the pod's next step (pod workers).

A step that has begun runs to its end; the update that came meanwhile is taken up right after it. A pod that is to stop
is halted at once, so that a step gives up what it may: waiting for an image, for instance.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Protocol

from msgspec import Struct

from klet.admission.verdicts import Preempt, Reject, Verdict, Wait
from klet.aio.clock import Clock
from klet.api.pod import Pod
from klet.errors import KletError
from klet.model.causes import CauseId, CauseRecorder
from klet.model.pods import LONGEST_GRACE, PodUID, uid_of
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.model.runtime import PodRuntimeStatus
from klet.model.stopping_pods import StoppingPods
from klet.sync.ledger import WorkerLedger
from klet.sync.requeue import ResyncSettings, StepFailure, compute_requeue
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
    """The runtime could not be asked what a pod looks like."""


class KillTimeout(KletError):
    """A pod did not stop in time. It is still being stopped."""


class StepResult(Struct, frozen=True, kw_only=True):
    """What one sync of a pod came to."""

    is_terminal: bool = False
    is_over: bool = False
    """Its containers have ended already."""
    failure: StepFailure | None = None
    retry_at: datetime | None = None
    """When a back-off ends, the earliest if there are several."""
    look_at: datetime | None = None
    """When something is due by itself."""


class PodSteps(Protocol):
    """The steps of a pod's life, as the worker calls them."""

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
    """Gives a view of a pod that is newer than the worker's last step."""

    def mark(self) -> float:
        """The present: what begins to be read from now on is newer."""
        ...

    async def fresh_status(self, uid: PodUID, *, newer_than: float) -> PodRuntimeStatus: ...

    async def read_now(self, uid: PodUID) -> PodRuntimeStatus:
        """What the runtime says from now on, whatever is known already."""
        ...


class Admission(Protocol):
    """Decides which pods this node takes in."""

    async def admit(self, pod: Pod) -> Verdict: ...

    def take_over(self, pod: Pod, *, cause: CauseId | None) -> None:
        """Keep what a pod has that needs no admission: it runs, or is over."""
        ...

    def note_change(self, pod: Pod, known: Pod, *, cause: CauseId | None) -> None:
        """The spec of a pod that was admitted may have come to want other resources."""
        ...

    def reject(self, pod: Pod, rejection: Reject, *, cause: CauseId | None) -> None:
        """Record and report that the node refuses a pod."""
        ...

    def note_wait(self, pod: Pod, wait: Wait, *, cause: CauseId | None) -> None:
        """Record what a pod waits for."""
        ...


class PodWorkers:
    """Runs the workers. Owns the ledger."""

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
        self._held_back: set[PodUID] = set()
        self._killers: dict[PodUID, list[asyncio.Event]] = {}
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
        """Tell a pod's worker something; a pod that is new gets a worker."""
        uid = uid_of(update.pod)
        now = self._clock.now()
        state = self._ledger.get(uid)
        if state is None:
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
        """Whether the pod is in somebody's hands."""
        return self._ledger.get(uid) is not None

    def wake(self, uid: PodUID) -> None:
        """The runtime shows something new about a pod: look at it."""
        if uid in self._wakes:
            self._wakes[uid].set()

    def orphan(self, uid: PodUID) -> None:
        """No source has the pod any more."""
        state = self._ledger.get(uid)
        if state is not None and not state.is_deleted:
            self._apply(uid, orphaned(state, now=self._clock.now()))

    def forget(self, uid: PodUID) -> bool:
        """Drop a pod that is finished; False if it is not, or its worker has yet to see that it is."""
        state = self._ledger.get(uid)
        is_over = state is not None and state.stage is Stage.FINISHED and uid not in self._wakes
        if is_over:
            self._ledger.forget(uid)
        return is_over

    @contextmanager
    def holding_back(self, uid: PodUID) -> Iterator[None]:
        """While what an earlier life of a pod left is removed, a pod of the same UID that comes back has to wait."""
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
            wake.clear()
            state = self._ledger.state_of(uid)
            if state.stage is Stage.SYNCING and (uid in self._held_back or not self._ledger.may_start(uid)):
                due = None  # the end of what is in the way wakes this one
                continue
            if state.stage is not Stage.FINISHED:
                if state.stage is not Stage.ADMITTING:
                    self._ledger.put(uid, started(state, now=self._clock.now()))
                due = await self._step(uid, last_step)
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
        """A pod that waited for a place may have one now; the others have no reason to look again."""
        for uid, event in self._wakes.items():
            if self._ledger.state_of(uid).started_at is None:
                event.set()

    async def _step(self, uid: PodUID, last_step: float) -> datetime | None:
        """Do the pod's next step and say when to look again if nothing happens."""
        state = self._ledger.state_of(uid)
        try:
            if state.stage is Stage.ADMITTING:
                result = await self._admit(uid)
            else:
                status = await self._fresh_status(uid, last_step)
                state = self._ledger.state_of(uid)  # it may have been told to stop meanwhile
                result = await self._dispatch(uid, state, status)
        except Exception as error:  # the boundary of the worker: whatever fails here concerns this pod only
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
        """Ask whether the node takes the pod in. One that waits is asked about again, as after an error."""
        async with self._admitting:
            state = self._ledger.state_of(uid)
            if state.stage is not Stage.ADMITTING:
                return StepResult()  # it was told to stop while others had their turn
            verdict = await self._admission.admit(state.pod)
            if isinstance(verdict, Preempt):
                await self._stop_victims(verdict, cause=state.cause)
                verdict = await self._admission.admit(state.pod)
            if isinstance(verdict, Preempt):
                verdict = Wait("pods that have to make room are still being stopped")
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
        try:
            await self.kill(victim, evict=True, status_change=preempt.status_change, why=preempt.message, cause=cause)
        except KillTimeout as error:  # it is recorded, and the pod waits until that one has stopped
            logger.warning("A preempted pod did not stop in time", extra={"uid": uid_of(victim), "error": str(error)})

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
                known = self._ledger.state_of(uid)
                now = self._clock.now()
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
    """How long a pod may take to stop: half as long again as its grace, and ten seconds at the least."""
    granted = grace if grace is not None else pod.spec.termination_grace_period_seconds or 0
    granted = min(granted, LONGEST_GRACE)
    return max(SHORTEST_KILL_PATIENCE, timedelta(seconds=granted + granted // 2))

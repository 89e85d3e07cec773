"""The life of one pod on this node as a state machine (podSyncStatus).

Its stages are admitting, syncing, terminating, terminated, finished.

Pure: an event and the instant go in, the new state and what to do come out. Stages only go forward.
"""

from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from klet.admission.verdicts import Admit, Reject, Wait
from klet.api.pod import Pod, PodStatus
from klet.model.causes import CauseId, Finding
from klet.model.pods import LONGEST_GRACE, is_static, subject_of
from klet.model.reasons import Reason

DECIDER = "sync.workers"
RECENT_EVENTS = 16
TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})


StatusChange: TypeAlias = Callable[[PodStatus], PodStatus]
"""What one who stops a pod has its status say: why it was evicted, for instance."""


class Stage(StrEnum):
    """What a worker does next for its pod."""

    ADMITTING = "admitting"
    SYNCING = "syncing"
    TERMINATING = "terminating"
    TERMINATED = "terminated"
    FINISHED = "finished"


class UpdateKind(StrEnum):
    """Why a pod is looked at."""

    CREATE = "create"
    UPDATE = "update"
    SYNC = "sync"
    KILL = "kill"


class PodUpdate(Struct, frozen=True, kw_only=True):
    """Something that a worker should know about its pod."""

    kind: UpdateKind
    pod: Pod
    is_runtime_only: bool = False
    """The pod has no spec on this node any more: only the runtime knows it."""
    evict: bool = False
    grace: int | None = None
    """Overrides the pod's own grace period when it is shorter."""
    status_change: StatusChange | None = None
    why: str = ""
    cause: CauseId | None = None


class WorkerState(Struct, frozen=True, kw_only=True):
    """Everything that decides what happens to a pod next."""

    pod: Pod
    stage: Stage = Stage.SYNCING
    is_runtime_only: bool = False
    started_at: datetime | None = None
    terminating_at: datetime | None = None
    terminated_at: datetime | None = None
    is_stopping: bool = False
    """Its termination has not only been asked for: it has begun."""
    is_over: bool = False
    """All its containers had ended when its termination began, by themselves. Only their surroundings are left."""
    was_over: bool = False
    """It was over when this agent first saw it: whoever stopped it may not have come to its sandboxes."""
    grace: int = 0
    """Seconds; zero until termination is requested."""
    is_grace_imposed: bool = False
    """The grace was asked for, and goes before what the containers say themselves."""
    status_change: StatusChange | None = None
    """The last one that came with a kill, until the pod has stopped."""
    is_deleted: bool = False
    is_evicted: bool = False
    is_rejected: bool = False
    """The node did not take it in."""
    restart_requested: bool = False
    cause: CauseId | None = None
    recent: tuple[str, ...] = ()
    """The last events, for debugging."""

    @property
    def is_terminating(self) -> bool:
        return self.stage not in {Stage.ADMITTING, Stage.SYNCING}

    @property
    def imposed_grace(self) -> int | None:
        """Seconds that override the containers' own; None if nobody asked."""
        return self.grace if self.is_grace_imposed else None

    @property
    def has_stopped(self) -> bool:
        """Nothing of the pod runs any more."""
        return self.stage in {Stage.TERMINATED, Stage.FINISHED}


class Transition(Struct, frozen=True, kw_only=True):
    """The state after an event, and what it asks of the worker."""

    state: WorkerState
    wake: bool = False
    findings: tuple[Finding, ...] = ()


def first_state(update: PodUpdate, *, is_live: bool, now: datetime) -> Transition:
    """The state of a pod this node hears of for the first time; `is_live` if the runtime may run something of it.

    A pod that is over already, with nothing left in the runtime, only needs its last clean-up. One that runs was taken
    in before.
    """
    state = WorkerState(pod=update.pod, is_runtime_only=update.is_runtime_only, cause=update.cause)
    if update.pod.status.phase in TERMINAL_PHASES and not is_live and not update.is_runtime_only:
        state = replace(
            state,
            stage=Stage.TERMINATED,
            terminating_at=now,
            terminated_at=now,
            is_stopping=True,
            was_over=True,
            recent=("over before it was seen",),
        )
        return Transition(state=state, wake=True)
    if not is_live and not update.is_runtime_only:
        state = replace(state, stage=Stage.ADMITTING)
    return apply_update(state, update, now=now)


def apply_update(state: WorkerState, update: PodUpdate, *, now: datetime) -> Transition:
    """Take in news about a pod. Only the newest spec is kept."""
    if update.kind is UpdateKind.CREATE and state.is_terminating:
        return Transition(state=replace(state, restart_requested=True))
    if state.stage is Stage.FINISHED:
        return Transition(state=state)
    if not update.is_runtime_only:
        state = replace(state, pod=update.pod, is_runtime_only=False)
    elif not state.is_runtime_only:
        # The runtime's view adds nothing to a pod whose spec is known: it is stopped as that spec says.
        update = replace(update, pod=state.pod, is_runtime_only=False)
    state = replace(state, cause=update.cause or state.cause, recent=_recent(state, f"update {update.kind}"))
    if not state.is_terminating:
        why = _reason_to_terminate(state, update)
        if why is None:
            return Transition(state=state, wake=True)
        if is_static(state.pod) and state.started_at is None and not update.is_runtime_only:
            return _never_started(state, why, now)
        return _begin_terminating(state, update, why, now)
    if state.stage is Stage.TERMINATING:
        state = _with_wishes(state, update)
    return Transition(state=state, wake=True)


def after_admission(state: WorkerState, verdict: Admit | Reject | Wait, *, now: datetime) -> Transition:
    """Admission has said what is to become of a pod."""
    if state.stage is not Stage.ADMITTING or isinstance(verdict, Wait):
        return Transition(state=state)
    if isinstance(verdict, Admit):
        return Transition(state=replace(state, stage=Stage.SYNCING, recent=_recent(state, "admitted")), wake=True)
    # Nothing was done for it, so there is nothing to stop or to release.
    state = replace(
        state,
        stage=Stage.FINISHED,
        terminating_at=now,
        terminated_at=now,
        is_rejected=True,
        recent=_recent(state, f"rejected: {verdict.reason}"),
    )
    return Transition(state=state, wake=True)


def started(state: WorkerState, *, now: datetime) -> WorkerState:
    """The pod's first step begins: from here on it may have something to stop."""
    return state if state.started_at is not None else replace(state, started_at=now)


def stopping(state: WorkerState) -> WorkerState:
    """The pod's first step of termination begins: from here on no container of it is started."""
    return state if state.is_stopping else replace(state, is_stopping=True)


def after_sync(state: WorkerState, *, is_terminal: bool, is_over: bool = False, now: datetime) -> Transition:
    """A sync has returned. A pod whose work is done goes on to terminating."""
    if not is_terminal or state.stage is not Stage.SYNCING:
        return Transition(state=state)
    state = replace(
        state,
        stage=Stage.TERMINATING,
        terminating_at=now,
        is_stopping=True,
        is_over=is_over,
        recent=_recent(state, "reached a terminal phase"),
    )
    return Transition(
        state=state,
        wake=True,
        findings=(
            _finding(state, Reason.TERMINATE, "the pod has reached a terminal phase", "stop what is left of it"),
        ),
    )


def after_terminating(state: WorkerState, *, now: datetime) -> Transition:
    """Nothing of the pod runs any more."""
    if state.is_runtime_only:
        state = replace(state, stage=Stage.FINISHED, terminated_at=now, recent=_recent(state, "runtime pod stopped"))
        return Transition(state=state, findings=(_finding(state, Reason.FINISHED, "the orphaned pod has stopped", ""),))
    state = replace(
        state, stage=Stage.TERMINATED, terminated_at=now, status_change=None, recent=_recent(state, "stopped")
    )
    stopped = _finding(
        state,
        Reason.STOPPED,
        "no container of the pod runs any more",
        "release its cgroup and directories",
        since=state.terminating_at,
    )
    return Transition(state=state, wake=True, findings=(stopped,))


def after_terminated(state: WorkerState) -> Transition:
    """Everything the pod held is released."""
    state = replace(state, stage=Stage.FINISHED, recent=_recent(state, "finished"))
    return Transition(
        state=state,
        findings=(
            _finding(state, Reason.FINISHED, "the pod has released all it held", "", since=state.terminating_at),
        ),
    )


def orphaned(state: WorkerState, *, now: datetime) -> Transition:
    """No source wants this pod any more (SyncKnownPods)."""
    state = replace(state, is_deleted=True)
    if state.is_terminating:
        return Transition(state=state, wake=True)
    if state.started_at is None:
        return _never_started(state, "no source has the pod any more", now)
    update = PodUpdate(kind=UpdateKind.KILL, pod=state.pod)
    transition = _begin_terminating(state, update, "no source has the pod any more", now)
    # Nobody asked for that grace: each container is given its own.
    return replace(transition, state=replace(transition.state, is_grace_imposed=False))


def effective_grace(current: int, update: PodUpdate) -> int:
    """Seconds to stop a pod in: a grace period is only ever shortened, and never below one second."""
    grace = current
    deletion = update.pod.metadata.deletion_grace_period_seconds
    overridden = False
    for wish in (deletion, update.grace):
        if wish is not None and (grace == 0 or wish < grace):
            grace = wish
            overridden = True
    if not overridden and grace == 0 and update.pod.spec.termination_grace_period_seconds is not None:
        grace = update.pod.spec.termination_grace_period_seconds
    return min(max(grace, 1), LONGEST_GRACE)


def _reason_to_terminate(state: WorkerState, update: PodUpdate) -> str | None:
    if update.is_runtime_only:
        return "only the runtime knows this pod: no source wants it"
    if state.pod.metadata.deletion_timestamp is not None:
        return "the pod is being deleted"
    if state.pod.status.phase in TERMINAL_PHASES:
        return f"the API says the pod is {state.pod.status.phase}"
    if update.kind is UpdateKind.KILL:
        return update.why or "it was asked to stop"
    return None


def _with_wishes(state: WorkerState, update: PodUpdate) -> WorkerState:
    """How whoever stops the pod wants it to be stopped."""
    return replace(
        state,
        grace=effective_grace(state.grace, update),
        is_grace_imposed=True,
        status_change=update.status_change or state.status_change,
    )


def _begin_terminating(state: WorkerState, update: PodUpdate, why: str, now: datetime) -> Transition:
    deleted = update.is_runtime_only or state.pod.metadata.deletion_timestamp is not None
    state = _with_wishes(state, update)
    state = replace(
        state,
        stage=Stage.TERMINATING,
        terminating_at=now,
        is_deleted=state.is_deleted or deleted,
        is_evicted=update.evict and not deleted and state.pod.status.phase not in TERMINAL_PHASES,
        recent=_recent(state, "termination requested"),
    )
    finding = _finding(state, Reason.TERMINATE, why, "stop its containers within their grace", graceSeconds=state.grace)
    return Transition(state=state, wake=True, findings=(finding,))


def _never_started(state: WorkerState, why: str, now: datetime) -> Transition:
    """A pod that waited for its place has nothing to stop or to release."""
    state = replace(
        state,
        stage=Stage.FINISHED,
        terminating_at=now,
        terminated_at=now,
        recent=_recent(state, "ended before it was started"),
    )
    finding = _finding(state, Reason.FINISHED, f"{why}, and it was never started", "")
    return Transition(state=state, wake=True, findings=(finding,))


def _recent(state: WorkerState, event: str) -> tuple[str, ...]:
    return (*state.recent, event)[-RECENT_EVENTS:]


def _finding(
    state: WorkerState, decision: Reason, why: str, next_step: str, *, since: datetime | None = None, **measured: int
) -> Finding:
    return Finding(
        subject=subject_of(state.pod),
        decider=DECIDER,
        decision=decision,
        message=why,
        measurements=measured,
        since=since,
        next=next_step,
    )

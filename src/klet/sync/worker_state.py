"""The lifecycle of one pod on this node as a state machine (podSyncStatus).

Its stages are admitting, syncing, terminating, terminated, finished.

Pure: an event and the instant go in, the new state and what to do come out. Stages only go forward: a pod that is to
stop is never started again, also if its source wants it again.
"""

from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from klet.api.pod import Pod, PodStatus
from klet.model.causes import CauseId, Finding
from klet.model.pods import LONGEST_GRACE, is_static, subject_of
from klet.model.reasons import Reason
from klet.model.verdicts import Admit, Reject, Wait

DECIDER = "sync.workers"
RECENT_EVENTS = 16
TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})


StatusChange: TypeAlias = Callable[[PodStatus], PodStatus]
"""How a kill changes the status of its pod: to say why it was evicted, for instance."""


class Stage(StrEnum):
    """What a worker does next for its pod."""

    ADMITTING = "admitting"
    SYNCING = "syncing"
    TERMINATING = "terminating"
    TERMINATED = "terminated"
    FINISHED = "finished"


class UpdateKind(StrEnum):
    """Why a pod is synced (upstream's SyncPodType)."""

    CREATE = "create"
    UPDATE = "update"
    SYNC = "sync"
    KILL = "kill"


class PodUpdate(Struct, frozen=True, kw_only=True):
    """An update for the worker of a pod (UpdatePodOptions)."""

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
    """Everything that decides the next step of a pod."""

    pod: Pod
    stage: Stage = Stage.SYNCING
    is_runtime_only: bool = False
    started_at: datetime | None = None
    terminating_at: datetime | None = None
    terminated_at: datetime | None = None
    is_stopping: bool = False
    """Its termination was not only requested: it has begun."""
    is_over: bool = False
    """All its containers had ended by themselves when its termination began. Only its sandbox may be left."""
    was_over: bool = False
    """It had ended when this run of the agent first saw it: a previous run may have left its sandboxes."""
    grace: int = 0
    """Seconds; zero until termination is requested."""
    is_grace_imposed: bool = False
    """The grace was requested, and overrides that of the containers."""
    status_change: StatusChange | None = None
    """The last one that came with a kill, until the pod has stopped."""
    is_deleted: bool = False
    is_evicted: bool = False
    is_rejected: bool = False
    """The node did not admit it."""
    restart_requested: bool = False
    """A pod of this UID was added while this one terminates: it is created again after this one is forgotten."""
    cause: CauseId | None = None
    recent: tuple[str, ...] = ()
    """The last events, for debugging."""

    @property
    def is_terminating(self) -> bool:
        return self.stage not in {Stage.ADMITTING, Stage.SYNCING}

    @property
    def imposed_grace(self) -> int | None:
        """Return the seconds that override the containers' own grace; None if no grace was requested."""
        return self.grace if self.is_grace_imposed else None

    @property
    def has_stopped(self) -> bool:
        """Return whether nothing of the pod runs any more."""
        return self.stage in {Stage.TERMINATED, Stage.FINISHED}


class Transition(Struct, frozen=True, kw_only=True):
    """The state after an event, and what the worker has to do."""

    state: WorkerState
    wake: bool = False
    findings: tuple[Finding, ...] = ()


def first_state(update: PodUpdate, *, is_live: bool, now: datetime) -> Transition:
    """Return the state of a pod that is new to this agent; `is_live` if the runtime may run something of it.

    A pod that has ended, with nothing left in the runtime, only needs its last clean-up. One that runs was admitted by
    a previous run of the agent.
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
    """Take in an update of a pod. Only the newest spec is kept."""
    # Upstream's rule: a pod of the same UID starts again only after the one before has ended and was forgotten.
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
        # A static pod may wait for another of the same name to end: it has nothing to stop then.
        if is_static(state.pod) and state.started_at is None and not update.is_runtime_only:
            return _never_started(state, why, now)
        return _begin_terminating(state, update, why, now)
    # A later kill may shorten the grace period; after the containers have stopped there is nothing to shorten.
    if state.stage is Stage.TERMINATING:
        state = _with_wishes(state, update)
    return Transition(state=state, wake=True)


def after_admission(state: WorkerState, verdict: Admit | Reject | Wait, *, now: datetime) -> Transition:
    """Return the transition after admission."""
    # A pod that was killed during its admission stays killed, whatever the verdict is.
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
    """Note that the pod's first step begins: from here on it may have something to stop."""
    return state if state.started_at is not None else replace(state, started_at=now)


def stopping(state: WorkerState) -> WorkerState:
    """Note that the first step of termination begins: from here on no container of the pod is started."""
    return state if state.is_stopping else replace(state, is_stopping=True)


def after_sync(state: WorkerState, *, is_terminal: bool, is_over: bool = False, now: datetime) -> Transition:
    """Return the transition after a sync. A pod in a terminal phase goes on to terminating."""
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
    """Return the transition after all containers have stopped."""
    # Without a spec there is nothing to release here: housekeeping removes directories and cgroups.
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
    """Return the transition after the pod has released everything."""
    state = replace(state, stage=Stage.FINISHED, recent=_recent(state, "finished"))
    return Transition(
        state=state,
        findings=(
            _finding(state, Reason.FINISHED, "the pod has released all it held", "", since=state.terminating_at),
        ),
    )


def orphaned(state: WorkerState, *, now: datetime) -> Transition:
    """Return the transition of a pod that no source has any more (SyncKnownPods)."""
    state = replace(state, is_deleted=True)
    if state.is_terminating:
        return Transition(state=state, wake=True)
    if state.started_at is None:
        return _never_started(state, "no source has the pod any more", now)
    update = PodUpdate(kind=UpdateKind.KILL, pod=state.pod)
    transition = _begin_terminating(state, update, "no source has the pod any more", now)
    # No grace was requested: each container is given its own.
    return replace(transition, state=replace(transition.state, is_grace_imposed=False))


def effective_grace(current: int, update: PodUpdate) -> int:
    """Return the seconds to stop a pod in: a grace period is only ever shortened, and never below one second."""
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
    """Return the state with the grace and the status change that a kill asks for."""
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
    """Finish a pod that never started: it has nothing to stop or to release."""
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

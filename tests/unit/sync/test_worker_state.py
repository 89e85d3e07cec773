"""Playbooks of a pod's life: what happened, and where the pod stands then."""

from datetime import timedelta

import pytest
from msgspec.structs import replace
from msgspec.structs import replace as changed

from klet.api.pod import Pod, PodStatus
from klet.model.causes import CauseId
from klet.model.pods import LONGEST_GRACE
from klet.model.reasons import Reason
from klet.model.verdicts import Admit, Reject, Wait
from klet.sync.worker_state import (
    RECENT_EVENTS,
    PodUpdate,
    Stage,
    Transition,
    UpdateKind,
    WorkerState,
    after_admission,
    after_sync,
    after_terminated,
    after_terminating,
    apply_update,
    effective_grace,
    first_state,
    orphaned,
    started,
    stopping,
)
from klet.testing.builders import NOW, make_pod

CREATE, UPDATE, SYNC, KILL = UpdateKind.CREATE, UpdateKind.UPDATE, UpdateKind.SYNC, UpdateKind.KILL
ADMITTING, SYNCING = Stage.ADMITTING, Stage.SYNCING
TERMINATING, TERMINATED, FINISHED = Stage.TERMINATING, Stage.TERMINATED, Stage.FINISHED
LATER = NOW + timedelta(seconds=5)
POD = make_pod()
STATIC = make_pod(source="file")


def in_phase(phase: str, pod: Pod = POD) -> Pod:
    return replace(pod, status=PodStatus(phase=phase))


def deleted(grace: int | None = None, pod: Pod = POD) -> Pod:
    gone = make_pod(deleted=True).metadata.deletion_timestamp
    metadata = replace(pod.metadata, deletion_timestamp=gone, deletion_grace_period_seconds=grace)
    return replace(pod, metadata=metadata)


def syncing(pod: Pod = POD) -> WorkerState:
    """A pod that runs, after its first step."""
    return started(WorkerState(pod=pod), now=NOW)


def apply(state: WorkerState, kind: UpdateKind, pod: Pod = POD, **more) -> Transition:
    return apply_update(state, PodUpdate(kind=kind, pod=pod, **more), now=LATER)


def decisions(transition: Transition) -> list[tuple[str, str]]:
    return [(finding.decision, finding.message) for finding in transition.findings]


# A pod this node hears of for the first time


@pytest.mark.parametrize(
    ("pod", "is_live", "more", "stage"),
    [
        pytest.param(POD, False, {}, ADMITTING, id="a new pod"),
        pytest.param(POD, False, {"kind": UPDATE}, ADMITTING, id="a new pod, whichever way it comes in"),
        pytest.param(POD, True, {}, SYNCING, id="a pod that already runs"),
        pytest.param(in_phase("Running"), False, {}, ADMITTING, id="a pod that ran before a restart of the node"),
        pytest.param(in_phase("Succeeded"), False, {}, TERMINATED, id="over, and nothing is left of it"),
        pytest.param(in_phase("Failed"), False, {}, TERMINATED, id="failed, and nothing is left of it"),
        pytest.param(in_phase("Failed"), True, {}, TERMINATING, id="failed, but something still runs"),
        pytest.param(deleted(), False, {}, TERMINATING, id="being deleted"),
        pytest.param(POD, True, {"kind": KILL, "is_runtime_only": True}, TERMINATING, id="only the runtime knows it"),
        pytest.param(
            in_phase("Failed"),
            False,
            {"kind": KILL, "is_runtime_only": True},
            TERMINATING,
            id="a runtime pod has no phase",
        ),
    ],
)
def test_the_first_state(pod, is_live, more, stage):
    update = PodUpdate(**{"kind": CREATE, "pod": pod, **more})
    transition = first_state(update, is_live=is_live, now=NOW)
    assert transition.state.stage is stage
    assert transition.wake


def test_a_pod_that_was_over_before_it_was_seen_only_needs_its_clean_up():
    transition = first_state(PodUpdate(kind=CREATE, pod=in_phase("Failed")), is_live=False, now=NOW)
    state = transition.state
    assert (state.terminating_at, state.terminated_at) == (NOW, NOW)
    after = after_terminated(state)
    assert after.state.stage is FINISHED


# Admission


@pytest.mark.parametrize(
    ("stage", "verdict", "after", "wake"),
    [
        pytest.param(ADMITTING, Admit(), SYNCING, True, id="it is taken in"),
        pytest.param(ADMITTING, Reject(Reason.NODE_PORTS, "no"), FINISHED, True, id="it is refused"),
        pytest.param(ADMITTING, Wait("a plugin"), ADMITTING, False, id="it waits"),
        pytest.param(TERMINATING, Admit(), TERMINATING, False, id="it was reported to stop meanwhile"),
        pytest.param(
            TERMINATING, Reject(Reason.NODE_PORTS, "no"), TERMINATING, False, id="reported to stop, and refused"
        ),
    ],
)
def test_what_admission_says(stage, verdict, after, wake):
    transition = after_admission(WorkerState(pod=POD, stage=stage), verdict, now=NOW)
    assert (transition.state.stage, transition.wake) == (after, wake)
    assert transition.state.is_rejected is (after is FINISHED)


def test_a_pod_that_is_not_admitted_yet_can_be_stopped():
    state = WorkerState(pod=POD, stage=ADMITTING)
    assert apply(state, KILL).state.stage is TERMINATING
    assert apply(state, UPDATE, deleted()).state.stage is TERMINATING
    assert orphaned(state, now=NOW).state.stage is FINISHED
    assert apply(state, UPDATE).state.stage is ADMITTING


# News about a pod that runs


def test_the_newest_spec_is_kept():
    newer = make_pod("other")
    transition = apply(syncing(), UPDATE, newer, cause=CauseId("7"))
    assert transition.state.pod is newer
    assert transition.state.cause == "7"
    assert (transition.state.stage, transition.wake, transition.findings) == (SYNCING, True, ())


def test_an_update_without_a_cause_keeps_the_last_one():
    state = apply(syncing(), UPDATE, cause=CauseId("7")).state
    assert apply(state, SYNC).state.cause == "7"


@pytest.mark.parametrize(
    ("kind", "pod", "more", "is_deleted", "is_evicted", "why"),
    [
        pytest.param(UPDATE, deleted(), {}, True, False, "the pod is being deleted", id="a deletion"),
        pytest.param(UPDATE, in_phase("Failed"), {}, False, False, "the API says the pod is Failed", id="a phase"),
        pytest.param(KILL, POD, {}, False, False, "it was asked to stop", id="a kill"),
        pytest.param(KILL, POD, {"why": "no file"}, False, False, "no file", id="a kill with a reason"),
        pytest.param(KILL, POD, {"evict": True, "why": "memory"}, False, True, "memory", id="an eviction"),
        pytest.param(
            KILL, deleted(), {"evict": True}, True, False, "the pod is being deleted", id="a deletion is no eviction"
        ),
        pytest.param(
            KILL,
            in_phase("Failed"),
            {"evict": True},
            False,
            False,
            "the API says the pod is Failed",
            id="nor is a phase",
        ),
    ],
)
def test_reasons_to_terminate(kind, pod, more, is_deleted, is_evicted, why):
    transition = apply(syncing(), kind, pod, **more)
    state = transition.state
    assert (state.stage, state.terminating_at, transition.wake) == (TERMINATING, LATER, True)
    assert (state.is_deleted, state.is_evicted, state.is_runtime_only) == (is_deleted, is_evicted, False)
    assert decisions(transition) == [("Terminate", why)]
    assert transition.findings[0].measurements == {"graceSeconds": 30}


def test_an_eviction_after_a_kill_changes_nothing():
    state = apply(syncing(), KILL).state
    assert not apply(state, KILL, evict=True).state.is_evicted


def test_a_runtime_view_of_a_pod_with_a_spec_stops_it_as_the_spec_says():
    synthetic = make_pod("main")
    transition = apply(syncing(deleted(9)), KILL, synthetic, is_runtime_only=True)
    state = transition.state
    assert (state.pod, state.is_runtime_only, state.stage, state.grace) == (deleted(9), False, TERMINATING, 9)


# The grace period


@pytest.mark.parametrize(
    ("current", "deletion", "override", "spec", "expected"),
    [
        pytest.param(0, None, None, 30, 30, id="the spec's"),
        pytest.param(0, 10, None, 30, 10, id="the deletion's"),
        pytest.param(10, 10, 5, 30, 5, id="shortened by an override"),
        pytest.param(10, 15, None, 30, 10, id="never lengthened"),
        pytest.param(0, 0, None, 30, 1, id="a deletion with zero is one second"),
        pytest.param(0, None, 0, 30, 1, id="an override of zero is one second"),
        pytest.param(0, None, None, None, 1, id="nothing said"),
        pytest.param(0, None, 60, 30, 60, id="an override may be longer than the spec's"),
        pytest.param(0, 5, 60, 30, 5, id="but not than the deletion's"),
        pytest.param(20, None, None, 30, 20, id="what was said stays"),
        pytest.param(0, 2**63 - 1, None, 30, LONGEST_GRACE, id="the longest that the API takes is a lifetime"),
    ],
)
def test_grace(current, deletion, override, spec, expected):
    pod = deleted(deletion)
    pod = replace(pod, spec=replace(pod.spec, termination_grace_period_seconds=spec))
    assert effective_grace(current, PodUpdate(kind=KILL, pod=pod, grace=override)) == expected


def test_a_second_kill_can_only_shorten_the_grace():
    state = apply(syncing(), UPDATE, deleted(10)).state
    assert state.grace == 10
    state = apply(state, KILL, deleted(10), grace=5).state
    assert state.grace == 5
    state = apply(state, KILL, deleted(10), grace=20).state
    assert (state.grace, state.stage, state.terminating_at) == (5, TERMINATING, LATER)


def test_a_forced_deletion_gives_the_full_grace_of_the_last_known_spec():
    assert apply(syncing(), KILL).state.grace == 30


# The stages only go forward


def test_a_whole_life():
    state = first_state(PodUpdate(kind=CREATE, pod=POD), is_live=False, now=NOW).state
    assert state.stage is ADMITTING
    state = after_admission(state, Admit(), now=NOW).state
    state = after_sync(state, is_terminal=False, now=NOW).state
    assert state.stage is SYNCING
    state = apply(state, UPDATE, deleted(10)).state
    transition = after_terminating(state, now=LATER)
    assert (transition.state.stage, transition.state.terminated_at, transition.wake) == (TERMINATED, LATER, True)
    assert decisions(transition) == [("Stopped", "no container of the pod runs any more")]
    transition = after_terminated(transition.state)
    assert transition.state.stage is FINISHED
    assert decisions(transition) == [("Finished", "the pod has released all it held")]
    assert [finding.since for finding in transition.findings] == [LATER]


def test_a_pod_whose_work_is_done_terminates_with_its_containers_own_grace():
    transition = after_sync(syncing(), is_terminal=True, now=LATER)
    assert (transition.state.stage, transition.state.grace, transition.wake) == (TERMINATING, 0, True)
    assert decisions(transition) == [("Terminate", "the pod has reached a terminal phase")]


def test_a_pod_that_ended_by_itself_is_over_before_its_sandbox_is():
    state = after_sync(syncing(), is_terminal=True, is_over=True, now=LATER).state
    assert (state.stage, state.is_over, state.has_stopped) == (TERMINATING, True, False)
    assert not after_sync(syncing(), is_terminal=True, is_over=False, now=LATER).state.is_over


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        pytest.param(syncing(), False, id="it runs"),
        pytest.param(apply(syncing(), KILL).state, False, id="it was only asked to stop"),
        pytest.param(stopping(apply(syncing(), KILL).state), True, id="its first step of termination"),
        pytest.param(after_sync(syncing(), is_terminal=True, now=LATER).state, True, id="its work is done"),
        pytest.param(
            first_state(PodUpdate(kind=CREATE, pod=in_phase("Failed")), is_live=False, now=NOW).state,
            True,
            id="it was over before it was seen",
        ),
    ],
)
def test_whether_termination_has_begun(state, expected):
    assert state.is_stopping is expected
    assert stopping(state).is_stopping


def test_a_sync_that_ends_after_a_kill_does_not_turn_it_back():
    state = apply(syncing(), KILL).state
    assert after_sync(state, is_terminal=True, now=LATER) == Transition(state=state)
    assert after_sync(state, is_terminal=False, now=LATER) == Transition(state=state)


def test_a_pod_that_only_the_runtime_knows_is_finished_when_it_has_stopped():
    update = PodUpdate(kind=KILL, pod=POD, is_runtime_only=True)
    state = first_state(update, is_live=True, now=NOW).state
    assert (state.is_runtime_only, state.is_deleted) == (True, True)
    transition = after_terminating(state, now=LATER)
    assert transition.state.stage is FINISHED
    assert decisions(transition) == [("Finished", "the orphaned pod has stopped")]


@pytest.mark.parametrize("stage", [TERMINATING, TERMINATED, FINISHED])
def test_the_same_uid_again_asks_for_a_restart_and_nothing_else(stage):
    state = changed(syncing(), stage=stage)
    assert apply(state, CREATE, make_pod("other")) == Transition(state=changed(state, restart_requested=True))


@pytest.mark.parametrize("kind", [UPDATE, SYNC, KILL])
def test_a_finished_pod_is_not_notified(kind):
    state = changed(syncing(), stage=FINISHED)
    assert apply(state, kind, deleted(1)) == Transition(state=state)


def test_a_terminated_pod_takes_the_newest_spec_and_stays_terminated():
    state = changed(syncing(), stage=TERMINATED, grace=10)
    transition = apply(state, KILL, deleted(1))
    assert (transition.state.stage, transition.state.grace, transition.wake) == (TERMINATED, 10, True)


def test_the_first_step_is_noted_once():
    state = started(WorkerState(pod=POD), now=NOW)
    assert started(state, now=LATER).started_at == NOW


def test_only_the_latest_events_are_remembered():
    state = syncing()
    for _ in range(RECENT_EVENTS + 5):
        state = apply(state, SYNC).state
    assert len(state.recent) == RECENT_EVENTS
    assert state.recent[-1] == "update sync"


# Orphans


def test_a_running_orphan_terminates():
    transition = orphaned(syncing(), now=LATER)
    state = transition.state
    assert (state.stage, state.is_deleted, state.terminating_at, transition.wake) == (TERMINATING, True, LATER, True)
    assert decisions(transition) == [("Terminate", "no source has the pod any more")]


@pytest.mark.parametrize("stage", [TERMINATING, TERMINATED])
def test_an_orphan_that_already_ends_is_only_looked_at_again(stage):
    state = changed(syncing(), stage=stage, grace=5)
    assert orphaned(state, now=LATER) == Transition(state=changed(state, is_deleted=True), wake=True)


def test_an_orphan_that_never_started_is_over_at_once():
    transition = orphaned(WorkerState(pod=STATIC), now=LATER)
    assert (transition.state.stage, transition.wake) == (FINISHED, True)


@pytest.mark.parametrize(
    ("pod", "stage"),
    [
        pytest.param(STATIC, FINISHED, id="a static pod that waited for its place is over at once"),
        pytest.param(POD, TERMINATING, id="another pod may have run in a previous run of the node"),
    ],
)
def test_a_kill_before_the_first_step(pod, stage):
    transition = apply(WorkerState(pod=pod), KILL, pod)
    assert (transition.state.stage, transition.wake) == (stage, True)


def test_a_static_pod_that_has_started_is_stopped_in_order():
    assert apply(syncing(STATIC), KILL, STATIC).state.stage is TERMINATING


# How it is to be stopped


def changed_status(status: PodStatus) -> PodStatus:
    return status


def test_a_grace_that_was_asked_for_goes_before_the_containers_own():
    state = apply(syncing(), KILL, grace=5).state
    assert (state.grace, state.imposed_grace) == (5, 5)


def test_nobody_asked_for_a_grace_of_an_orphan_or_of_a_pod_whose_work_is_done():
    orphan = orphaned(syncing(), now=LATER).state
    assert (orphan.grace, orphan.imposed_grace) == (30, None)
    assert after_sync(syncing(), is_terminal=True, now=LATER).state.imposed_grace is None


def test_a_kill_of_an_orphan_imposes_its_grace():
    orphan = orphaned(syncing(), now=LATER).state
    assert apply(orphan, KILL, grace=2).state.imposed_grace == 2


def test_what_the_status_is_to_say_is_kept_until_the_pod_has_stopped():
    state = apply(syncing(), KILL, status_change=changed_status).state
    state = apply(state, KILL).state
    assert state.status_change is changed_status
    assert after_terminating(state, now=LATER).state.status_change is None


@pytest.mark.parametrize(
    ("stage", "expected"), [(SYNCING, False), (TERMINATING, False), (TERMINATED, True), (FINISHED, True)]
)
def test_has_stopped(stage, expected):
    assert changed(syncing(), stage=stage).has_stopped is expected

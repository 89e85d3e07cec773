"""Cause records, diagnoses and timelines in the form of the agent's own API. Pure."""

from datetime import datetime

from klet.api import klet_v1
from klet.api.pod import Pod
from klet.journal.diagnosis import Diagnosis
from klet.journal.evidence import StateReason
from klet.journal.node_diagnosis import NodeDiagnosis
from klet.journal.timeline import Timeline, TimelineEntry, Waiting
from klet.model.causes import Cause


def answer_pod(
    pod: klet_v1.ExplainedPod, diagnosis: Diagnosis, story: Timeline, *, now: datetime
) -> klet_v1.Explanation:
    """Build the explanation of a pod: its state, why, what it waits for, and its timeline."""
    return klet_v1.Explanation(
        pod=pod,
        now=now,
        state=diagnosis.state,
        summary=diagnosis.summary,
        why=tuple(_why(reason) for reason in diagnosis.reasons),
        waiting_for=_waiting_for(story.waiting) if story.waiting is not None else None,
        timeline=_timeline(story),
    )


def answer_node(name: str, diagnosis: NodeDiagnosis, story: Timeline, *, now: datetime) -> klet_v1.NodeExplanation:
    """Build the explanation of the node: its state, why, and its timeline."""
    return klet_v1.NodeExplanation(
        node=klet_v1.ExplainedNode(name=name),
        now=now,
        ready=diagnosis.is_ready,
        conditions=diagnosis.conditions,
        summary=diagnosis.summary,
        why=tuple(_why(reason) for reason in diagnosis.reasons),
        timeline=_timeline(story),
    )


def answer_record(cause: Cause) -> klet_v1.CauseRecord:
    """Build one line of the journal."""
    finding = cause.finding
    return klet_v1.CauseRecord(
        id=cause.id,
        parent=cause.parent,
        at=cause.at,
        subject=_subject(cause),
        decider=finding.decider,
        decision=str(finding.decision),
        message=finding.message,
        measurements=finding.measurements,
        since=finding.since,
        next=finding.next,
        next_at=finding.next_at,
    )


def explained_pod(namespace: str, name: str, pod: Pod | None) -> klet_v1.ExplainedPod:
    return klet_v1.ExplainedPod(namespace=namespace, name=name, uid=pod.metadata.uid if pod is not None else "")


def _timeline(story: Timeline) -> tuple[klet_v1.TimelineStep, ...]:
    return tuple(_step(step, life=number) for number, history in enumerate(story.histories) for step in history.steps)


def _step(step: TimelineEntry, *, life: int) -> klet_v1.TimelineStep:
    finding = step.cause.finding
    return klet_v1.TimelineStep(
        id=step.cause.id,
        parent=step.cause.parent,
        at=step.cause.at,
        subject=_subject(step.cause),
        decider=finding.decider,
        decision=str(finding.decision),
        message=finding.message,
        measurements=finding.measurements,
        since=finding.since,
        next=finding.next,
        next_at=finding.next_at,
        life=life,
        times=step.times,
        depth=step.depth,
        offset_seconds=step.offset.total_seconds(),
        lasted_seconds=step.lasted.total_seconds() if step.lasted is not None else None,
    )


def _subject(cause: Cause) -> klet_v1.CauseSubject:
    subject = cause.finding.subject
    return klet_v1.CauseSubject(
        namespace=subject.namespace, name=subject.name, uid=subject.uid, container=subject.container
    )


def _why(reason: StateReason) -> klet_v1.Why:
    return klet_v1.Why(
        kind=str(reason.kind),
        reason=reason.word,
        container=reason.container,
        message=reason.message,
        measurements=reason.measurements,
        since=reason.since,
        next=reason.next,
        next_at=reason.next_at,
    )


def _waiting_for(waiting: Waiting) -> klet_v1.WaitingFor:
    return klet_v1.WaitingFor(
        on=waiting.on, container=waiting.subject.container, message=waiting.message, since=waiting.since
    )

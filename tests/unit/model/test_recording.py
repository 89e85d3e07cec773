"""Decisions are recorded under the name of the part that takes them."""

from datetime import timedelta

from klet.journal.memory import MemoryJournal
from klet.model.causes import Finding, FindingSubject
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.testing.builders import make_pod
from klet.testing.clock import START, ManualClock


def test_a_decision_about_a_pod_names_the_part_and_the_pod():
    journal = MemoryJournal(clock=ManualClock())
    recorder = DecisionRecorder(journal, decider="runtime.starter").for_pod(make_pod(uid="u", name="web"))
    first = recorder.record(Reason.CREATE_SANDBOX, "there is none")
    recorder.record(Reason.SANDBOX_CREATED, "it is ready", parent=first)
    subject = FindingSubject(namespace="default", name="web", uid="u")
    one, other = journal.all()
    assert one.finding == Finding(
        subject=subject, decider="runtime.starter", decision=Reason.CREATE_SANDBOX, message="there is none"
    )
    assert (one.parent, other.parent) == (None, first)


def test_a_decision_carries_what_was_measured_and_what_follows():
    journal = MemoryJournal(clock=ManualClock())
    recorder = DecisionRecorder(journal, decider="d").for_pod(make_pod(uid="u", name="web"), "main")
    later = START + timedelta(seconds=5)
    recorder.record(
        Reason.FAILED, "no", measurements={"reason": "x"}, since=START, next_step="try again", next_at=later
    )
    (cause,) = journal.all()
    assert cause.finding.subject.container == "main"
    assert cause.finding.measurements == {"reason": "x"}
    assert (cause.finding.since, cause.finding.next, cause.finding.next_at) == (START, "try again", later)


def test_a_decision_about_the_node_names_no_pod():
    journal = MemoryJournal(clock=ManualClock())
    DecisionRecorder(journal, decider="d").for_node().record(Reason.AGENT_STARTED, "it runs")
    assert journal.all()[0].finding.subject == FindingSubject()

from datetime import timedelta

import pytest

from klet.journal.memory import MemoryJournal
from klet.journal.records import CauseQuery
from klet.model.causes import CauseId, Finding, FindingSubject
from klet.testing.clock import ManualClock


def finding(decision: str, name: str = "web") -> Finding:
    return Finding(subject=FindingSubject(name=name), decider="test", decision=decision)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def journal(clock):
    return MemoryJournal(clock=clock, max_records=3)


async def test_it_keeps_the_newest_records(journal):
    for number in range(5):
        journal.record(finding(f"Step{number}"))
    assert [cause.finding.decision for cause in await journal.find(CauseQuery())] == ["Step2", "Step3", "Step4"]


async def test_a_record_is_dated_by_the_clock(journal, clock):
    journal.record(finding("First"))
    clock.advance(timedelta(seconds=5))
    journal.record(finding("Second"))
    first, second = await journal.find(CauseQuery())
    assert second.at - first.at == timedelta(seconds=5)
    assert first.id < second.id


async def test_the_chain_leads_from_the_first_known_cause(journal):
    lost = journal.record(finding("Lost"))
    root = journal.record(finding("Root"), parent=lost)
    middle = journal.record(finding("Middle"), parent=root)
    leaf = journal.record(finding("Leaf"), parent=middle)
    assert [cause.finding.decision for cause in await journal.chain(leaf)] == ["Root", "Middle", "Leaf"]
    assert await journal.chain(CauseId("unknown")) == ()


async def test_followers_get_new_records(journal):
    journal.record(finding("Before"))
    with journal.follow() as news:
        journal.record(finding("After"))
        assert (await news.get()).finding.decision == "After"


async def test_a_long_message_is_cut(journal):
    journal.record(Finding(subject=FindingSubject(), decider="test", decision="Look", message="x" * 5000))
    (cause,) = await journal.find(CauseQuery())
    assert len(cause.finding.message) == 1024

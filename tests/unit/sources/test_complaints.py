import pytest

from klet.journal.memory import MemoryJournal
from klet.journal.records import CauseQuery
from klet.model.causes import FindingSubject
from klet.sources.complaints import Complaints
from klet.testing.clock import ManualClock

POD = FindingSubject(namespace="ns", name="web", uid="u1")


@pytest.fixture
def journal():
    return MemoryJournal(clock=ManualClock())


@pytest.fixture
def complaints(journal):
    return Complaints(decider="test", recorder=journal)


def complain(complaints, name="a.yaml", message="bad", digest="1"):
    complaints.about(name, message, subject=POD, consequence="it stays", digest=digest)


async def reported(journal) -> list[tuple[str, str]]:
    return [(cause.finding.decision, cause.finding.message) for cause in await journal.find(CauseQuery())]


async def test_the_same_is_said_once(complaints, journal):
    complain(complaints)
    complain(complaints)
    assert await reported(journal) == [("ManifestRejected", "bad; it stays")]


async def test_another_content_or_another_reason_is_said(complaints, journal):
    complain(complaints)
    complain(complaints, digest="2")
    complain(complaints, digest="2", message="worse")
    complain(complaints, name="b.yaml")
    assert len(await reported(journal)) == 4


async def test_what_is_well_again_follows_from_the_complaint(complaints, journal):
    complain(complaints)
    complaints.settle("a.yaml")
    complaints.settle("a.yaml")
    rejected, settled = await journal.find(CauseQuery())
    assert settled.finding.decision == "ManifestSettled"
    assert settled.finding.subject == POD
    assert settled.parent == rejected.id


async def test_what_comes_back_is_said_again(complaints, journal):
    complain(complaints)
    complain(complaints, name="b.yaml")
    complaints.settle_others({"b.yaml"})
    complain(complaints)
    complain(complaints, name="b.yaml")
    assert [decision for decision, _ in await reported(journal)] == [
        "ManifestRejected",
        "ManifestRejected",
        "ManifestSettled",
        "ManifestRejected",
    ]

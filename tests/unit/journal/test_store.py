import asyncio
import logging
import sqlite3
from contextlib import closing
from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.agent_log.format import record_data
from klet.api.klet_v1 import RecordedPod
from klet.journal.records import CauseQuery
from klet.journal.store import MOST_UNWRITTEN, Journal
from klet.model.causes import CauseId, Finding, FindingSubject
from klet.model.reasons import Reason, UnknownReason, read_reason
from klet.model.verbosity import CHANGES
from klet.testing.clock import ManualClock

SECOND = timedelta(seconds=1)


def finding(decision: str, **fields) -> Finding:
    return Finding(
        **{"subject": FindingSubject(namespace="ns", name="web"), "decider": "test", "decision": decision, **fields}
    )


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "journal.db"


@pytest.fixture
async def opened(path, clock):
    """Opens journals on the path and closes them at the end."""
    journals = []

    async def open_journal(**options) -> Journal:
        journal = Journal(path=path, clock=clock, **options)
        await journal.open()
        journals.append(journal)
        return journal

    yield open_journal
    for journal in journals:
        await journal.close()


async def decisions(journal, query=None) -> list[str]:
    return [cause.finding.decision for cause in await journal.find(query or CauseQuery())]


async def test_a_record_is_found_before_it_is_written(opened):
    journal = await opened()
    journal.record(finding("First"))
    assert await decisions(journal) == ["First"]


async def test_records_survive_a_restart_whole(opened, clock):
    journal = await opened()
    parent = journal.record(finding("First"))
    made = finding(
        "Second",
        subject=FindingSubject(namespace="ns", name="web", uid="u1", container="app"),
        message="because",
        measurements={"n": 1, "f": 0.5, "b": True, "s": "x"},
        since=clock.now() - SECOND,
        next="third",
    )
    child = journal.record(made, parent=parent)
    before = await journal.find(CauseQuery())
    await journal.close()

    again = await opened()
    assert await again.find(CauseQuery()) == before
    assert [cause.finding for cause in await again.find(CauseQuery(container="app"))] == [made]
    assert [cause.id for cause in await again.chain(child)] == [parent, child]


async def test_a_record_with_a_word_of_another_version_is_read_all_the_same(opened, path):
    journal = await opened()
    for word in ("Teleported", "BackOff", "Started"):
        journal.record(finding(read_reason(word)))
    await journal.close()
    assert words_in(path) == ["Teleported", "BackOff", "Started"]

    again = await opened()
    found = [cause.finding.decision for cause in await again.find(CauseQuery())]
    assert found == ["Teleported", "BackOff", "Started"]
    assert [type(decision) for decision in found] == [UnknownReason, Reason, Reason]


async def test_both_kinds_of_back_off_have_one_word_on_disk(opened, path):
    journal = await opened()
    kinds = [Reason.BACK_OFF_PULLING_IMAGE, Reason.BACK_OFF_RESTARTING_CONTAINER]
    for kind in kinds:
        journal.record(finding(kind))
    await journal.close()
    assert words_in(path) == ["BackOff", "BackOff"]
    assert await decisions(await opened()) == kinds


async def test_ids_go_on_after_a_restart_even_if_the_clock_stepped_back(opened, clock, path):
    journal = await opened()
    first = journal.record(finding("First"))
    await journal.close()
    early = Journal(path=path, clock=ManualClock(start=clock.now() - timedelta(days=1)))
    await early.open()
    assert early.record(finding("Second")) > first
    assert await decisions(early) == ["First", "Second"]
    await early.close()


async def test_the_running_task_writes_batches(opened, clock, path):
    journal = await opened()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(journal.run())
        for number in range(3):
            journal.record(finding(f"Step{number}"))
        await clock.until_asleep()
        assert count_rows(path) == 0
        clock.advance(SECOND)
        while count_rows(path) < 3:
            await clock.sleep(timedelta(0))
        journal.record(finding("Step3"))
        await clock.until_asleep()
        assert count_rows(path) == 3
        task.cancel()
    assert await decisions(journal) == ["Step0", "Step1", "Step2", "Step3"]


async def test_closing_writes_the_rest(opened, path):
    journal = await opened()
    journal.record(finding("Last"))
    await journal.close()
    assert count_rows(path) == 1


async def test_the_oldest_records_are_pruned(opened):
    journal = await opened(max_records=100)
    for number in range(250):
        journal.record(finding(f"Step{number}"))
        if number % 50 == 49:
            await journal.flush()
    kept = await decisions(journal)
    assert kept[-1] == "Step249"
    assert 80 <= len(kept) <= 100
    assert kept == [f"Step{number}" for number in range(250 - len(kept), 250)]


async def test_a_loud_pod_does_not_push_out_the_others(opened):
    journal = await opened(max_records=100)
    for number in range(9):
        journal.record(finding(f"Step{number}", subject=FindingSubject(namespace="ns", name="quiet")))
    journal.record(finding("Node", subject=FindingSubject()))
    for number in range(500):
        journal.record(finding("Unhealthy", subject=FindingSubject(namespace="ns", name="loud", container="app")))
        if number % 10 == 9:
            await journal.flush()
    assert len(await decisions(journal, CauseQuery(name="quiet"))) == 9
    assert (await decisions(journal))[9] == "Node"
    assert 10 <= len(await decisions(journal, CauseQuery(name="loud"))) <= 90


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param(CauseQuery(), ["A", "B", "C", "D"], id="everything"),
        pytest.param(CauseQuery(namespace="ns", name="web"), ["A", "B", "D"], id="a pod by name"),
        pytest.param(CauseQuery(uid="u1"), ["A", "B"], id="a pod by uid"),
        pytest.param(CauseQuery(container="app"), ["B"], id="a container"),
        pytest.param(CauseQuery(limit=2), ["C", "D"], id="the newest two"),
        pytest.param(CauseQuery(since=ManualClock().now() + SECOND), ["C", "D"], id="since"),
    ],
)
@pytest.mark.parametrize("written", [True, False], ids=["written", "half written"])
async def test_questions(opened, clock, query, expected, written):
    journal = await opened()
    journal.record(finding("A", subject=FindingSubject(namespace="ns", name="web", uid="u1")))
    journal.record(finding("B", subject=FindingSubject(namespace="ns", name="web", uid="u1", container="app")))
    await journal.flush()
    clock.advance(SECOND)
    journal.record(finding("C", subject=FindingSubject(namespace="other", name="db")))
    journal.record(finding("D", subject=FindingSubject(namespace="ns", name="web", uid="u2")))
    if written:
        await journal.flush()
    assert await decisions(journal, query) == expected


@pytest.mark.parametrize("written", [True, False])
async def test_a_pod_without_a_known_name_is_not_the_node(opened, written):
    journal = await opened()
    journal.record(finding("OfTheNode", subject=FindingSubject()))
    journal.record(finding("OfAPod", subject=FindingSubject(uid="u4")))
    if written:
        await journal.close()
        journal = await opened()
    assert await decisions(journal, CauseQuery(is_node=True)) == ["OfTheNode"]


async def test_the_chain_crosses_from_written_to_unwritten(opened):
    journal = await opened()
    root = journal.record(finding("Root"))
    await journal.flush()
    leaf = journal.record(finding("Leaf"), parent=root)
    assert [cause.id for cause in await journal.chain(leaf)] == [root, leaf]
    assert await journal.chain(CauseId("no id")) == ()
    stranger = journal.record(finding("Stranger"), parent=CauseId("no id"))
    assert [cause.id for cause in await journal.chain(stranger)] == [stranger]


async def test_followers_get_new_records(opened):
    journal = await opened()
    with journal.follow() as news:
        journal.record(finding("New"))
        assert (await news.get()).finding.decision == "New"


async def test_only_its_owner_may_read_the_file(opened, path):
    journal = await opened()
    journal.record(finding("First"))
    await journal.flush()
    modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert set(modes) == {"journal.db", "journal.db-wal", "journal.db-shm"}
    assert set(modes.values()) == {0o600}


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda path: path.write_bytes(b"this is no database" * 100), id="another file"),
        pytest.param(lambda path: overwrite(path, 4096, b"\xff" * 8192), id="overwritten pages"),
        pytest.param(lambda path: set_version(path, 99), id="an unknown version"),
    ],
)
async def test_a_damaged_file_is_set_aside_and_a_new_one_begun(opened, path, damage, caplog):
    journal = await opened()
    for number in range(200):
        journal.record(finding(f"Step{number}"))
    await journal.close()
    damage(path)
    again = await opened()
    again.record(finding("New"))
    assert await decisions(again) == [Reason.STATE_FILE_DAMAGED, "New"]
    assert [record.getMessage() for record in caplog.records] == ["Journal damaged, renamed and a new one started"]
    assert (path.parent / "journal.db.corrupt-20300101-000000").exists()


async def test_damage_while_it_runs_is_survived(opened, path, caplog):
    journal = await opened()
    for number in range(4000):
        # More than SQLite keeps in memory, so that it must look at the file.
        journal.record(finding(f"Step{number}", message="x" * 1000))
    await journal.close()
    again = await opened()
    overwrite(path, 4096, b"\xff" * (path.stat().st_size - 4096))
    again.record(finding("New"))
    assert await again.flush()
    assert await decisions(again) == ["New", Reason.STATE_FILE_DAMAGED]
    assert len(list(path.parent.glob("*.corrupt-*"))) >= 1
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


async def test_a_file_that_cannot_be_opened_is_tried_again(opened, path, clock, caplog):
    caplog.set_level(logging.INFO)
    path.parent.write_bytes(b"a file where the directory should be")
    journal = await opened()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(journal.run())
        journal.record(finding("First"))
        await clock.until_asleep()
        clock.advance(SECOND)
        await clock.until_asleep()
        assert await decisions(journal) == ["First"]
        path.parent.unlink()
        clock.advance(10 * SECOND)
        await clock.until_asleep()
        clock.advance(SECOND)
        while "Journal written again" not in caplog.messages:
            await clock.sleep(timedelta(0))
        task.cancel()
    assert caplog.messages.count("Journal not written, will try again") == 1
    assert count_rows(path) == 1


async def test_without_a_file_only_the_newest_records_are_kept(opened, path):
    path.parent.write_bytes(b"a file where the directory should be")
    journal = await opened()
    for number in range(MOST_UNWRITTEN + 5):
        journal.record(finding(f"Step{number}"))
    kept = await decisions(journal, CauseQuery(limit=MOST_UNWRITTEN * 2))
    assert len(kept) == MOST_UNWRITTEN
    assert kept[0] == "Step5"


async def test_the_pods_that_are_reported(opened, clock):
    journal = await opened()
    journal.record(finding("First"))
    journal.record(finding("Node", subject=FindingSubject()))
    await journal.flush()
    clock.advance(SECOND)
    journal.record(finding("Second", subject=FindingSubject(namespace="ns", name="web", container="main")))
    journal.record(finding("Other", subject=FindingSubject(namespace="a", name="db")))
    now = clock.now()
    assert await journal.pods() == (
        RecordedPod(namespace="a", name="db", last=now),
        RecordedPod(namespace="ns", name="web", last=now),
    )


async def test_a_file_of_the_first_version_is_read_on(opened, path):
    journal = await opened()
    journal.record(finding("First"))
    await journal.close()
    connection = sqlite3.connect(path)
    connection.execute("ALTER TABLE causes DROP COLUMN next_at")
    connection.close()
    set_version(path, 1)
    journal = await opened()
    journal.record(finding("Second"))
    assert await journal.flush()
    assert await decisions(journal) == ["First", "Second"]


def words_in(path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [word for (word,) in connection.execute("SELECT decision FROM causes ORDER BY id")]


def count_rows(path) -> int:
    connection = sqlite3.connect(path)
    try:
        return connection.execute("SELECT count(*) FROM causes").fetchone()[0]
    except sqlite3.OperationalError:
        return 0
    finally:
        connection.close()


def overwrite(path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def set_version(path, version: int) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()


async def test_decisions_are_logged_from_verbosity_3_on(opened, caplog):
    journal = await opened()
    journal.record(finding("First"))
    caplog.set_level(CHANGES, logger="klet.test")
    about = FindingSubject(namespace="ns", name="web", uid="u1", container="app")
    journal.record(finding("Second", subject=about, message="because"))
    journal.record(finding("Third", subject=FindingSubject()))
    assert [record_data(each) for each in caplog.records if each.message == "Decision"] == [
        {
            "decision": "Second",
            "decider": "test",
            "reason": "because",
            "pod": "ns/web",
            "uid": "u1",
            "container": "app",
        },
        {"decision": "Third", "decider": "test", "reason": ""},
    ]


async def test_a_decision_is_logged_as_a_line_of_the_module_that_took_it(opened, caplog):
    journal = await opened()
    caplog.set_level(CHANGES, logger="klet.test.verbose")
    for decider in ("test.verbose", "test.quiet"):
        journal.record(replace(finding("Made"), decider=decider))
    assert [each.name for each in caplog.records if each.message == "Decision"] == ["klet.test.verbose"]

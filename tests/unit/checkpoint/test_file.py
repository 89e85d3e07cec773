import asyncio
import stat

import pytest

from klet.aio.threads import Threads
from klet.checkpoint import (
    Absent,
    CheckpointDamaged,
    CheckpointError,
    CheckpointFile,
    CheckpointVersion,
    Damaged,
    Envelope,
    Found,
)
from klet.journal.memory import MemoryJournal
from klet.model.reasons import Reason
from klet.testing.clock import ManualClock

FORM = Envelope(kind="numbers", version=1, payload=list[int])


@pytest.fixture
def threads():
    pool = Threads(limit=2)
    yield pool
    pool.close()


@pytest.fixture
def open_file(tmp_path, threads):
    def make(form=FORM, recorder=None):
        path = tmp_path / "state" / "numbers"
        return CheckpointFile(path=path, form=form, threads=threads, clock=ManualClock(), recorder=recorder)

    return make


async def test_what_was_saved_is_found(open_file):
    file = open_file()
    assert file.load() == Absent()
    await file.save([1, 2])
    assert open_file().load() == Found([1, 2])
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600


async def test_the_same_value_is_not_written_twice(open_file):
    file = open_file()
    await file.save([1])
    inode = file.path.stat().st_ino
    await file.save([1])
    assert file.path.stat().st_ino == inode
    await file.save([2])
    assert file.path.stat().st_ino != inode


async def test_a_value_that_was_loaded_is_not_written_again(open_file):
    await open_file().save([1])
    again = open_file()
    again.load()
    inode = again.path.stat().st_ino
    await again.save([1])
    assert again.path.stat().st_ino == inode


async def test_the_last_of_many_writes_stays(open_file):
    file = open_file()
    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(file.save([number]))
    assert open_file().load() == Found([19])
    assert [entry.name for entry in file.path.parent.iterdir()] == ["numbers"]


async def test_a_damaged_file_is_set_aside_and_reported_once(open_file, caplog):
    file = open_file()
    await file.save([1])
    file.path.write_bytes(b"garbage")
    loaded = file.load()
    assert isinstance(loaded, Damaged)
    assert loaded.set_aside == file.path.with_name("numbers.corrupt-20300101T000000Z")
    assert loaded.set_aside.read_bytes() == b"garbage"
    assert not file.path.exists()
    (record,) = caplog.records
    assert record.getMessage() == "Checkpoint is damaged and was set aside"
    assert (record.file, record.set_aside) == (str(file.path), str(loaded.set_aside))
    assert record.rule.startswith("it is not a klet checkpoint")


async def test_damage_may_be_refused_instead_of_set_aside(open_file):
    file = open_file()
    assert await file.read_or_refuse() == Absent()
    await file.save([1])
    assert await open_file().read_or_refuse() == Found([1])
    file.path.write_bytes(b"{")
    with pytest.raises(CheckpointDamaged):
        await open_file().read_or_refuse()
    assert file.path.read_bytes() == b"{"
    assert [path.name for path in file.path.parent.iterdir()] == ["numbers"]


async def test_two_damaged_files_in_one_second_are_both_kept(open_file):
    file = open_file()
    for content in (b"first", b"second"):
        file.path.parent.mkdir(exist_ok=True)
        file.path.write_bytes(content)
        file.load()
    kept = sorted(file.path.parent.iterdir())
    assert [entry.read_bytes() for entry in kept] == [b"first", b"second"]


async def test_a_newer_version_is_refused_and_left_in_place(open_file):
    newer = Envelope(kind="numbers", version=2, payload=list[int])
    await open_file(newer).save([1])
    file = open_file()
    content = file.path.read_bytes()
    with pytest.raises(CheckpointVersion, match=r"state/numbers: field version is 2, this klet knows 1"):
        file.load()
    assert file.path.read_bytes() == content


async def test_a_file_that_cannot_be_read_is_no_damage(open_file):
    file = open_file()
    file.path.mkdir(parents=True)
    with pytest.raises(CheckpointError, match=r"checkpoint cannot be read: .*Is a directory"):
        file.load()
    assert file.path.is_dir()


async def test_a_write_that_fails_names_the_file_and_is_tried_again_next_time(open_file, tmp_path):
    file = open_file()
    (tmp_path / "state").write_text("in the way")
    with pytest.raises(CheckpointError, match="state/numbers not written"):
        await file.save([1])
    (tmp_path / "state").unlink()
    await file.save([1])
    assert open_file().load() == Found([1])


@pytest.mark.parametrize("torn", [b"", b'{"kind":', bytes(64)], ids=["empty", "half", "full of zeros"])
async def test_what_was_synced_last_takes_the_place_of_what_a_loss_of_power_has_torn(open_file, torn):
    file = open_file()
    await file.save([1], sync=False)
    await file.sync_to_disk()
    await file.save([2], sync=False)
    assert open_file().load() == Found([2])
    file.path.write_bytes(torn)
    assert open_file().load() == Found([1])
    assert open_file().load() == Found([1])
    assert len(list(file.path.parent.glob("*.corrupt-*"))) == 1


async def test_a_file_that_was_removed_is_not_brought_back_by_the_second_one(open_file):
    file = open_file()
    await file.save([1], sync=False)
    await file.sync_to_disk()
    file.path.unlink()
    assert open_file().load() == Absent()


async def test_damage_is_recorded(open_file, tmp_path):
    journal = MemoryJournal(clock=ManualClock())
    await open_file().save([1])
    file = open_file(recorder=journal)
    file.path.write_bytes(b"")
    assert isinstance(await file.read(), Damaged)
    [cause] = journal.all()
    assert cause.finding.decision == Reason.STATE_FILE_DAMAGED
    assert cause.finding.measurements["file"] == str(file.path)


async def test_what_cannot_be_synced_is_an_error(open_file):
    file = open_file()
    await file.save([1], sync=False)
    file.path.unlink()
    file.path.parent.rmdir()
    file.path.parent.write_text("in the way")
    with pytest.raises(CheckpointError, match=r"numbers.synced not written"):
        await file.sync_to_disk()

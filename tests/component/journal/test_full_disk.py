"""The journal on a filesystem that is full."""

import subprocess

import pytest

from klet.journal.records import CauseQuery
from klet.journal.store import Journal
from klet.model.causes import Finding, FindingSubject
from klet.testing.clock import ManualClock

pytestmark = pytest.mark.root


@pytest.fixture
def small_disk(tmp_path):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "klet-test", str(tmp_path)], check=True)
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


async def test_records_wait_until_there_is_room(small_disk, caplog):
    journal = Journal(path=small_disk / "journal.db", clock=ManualClock())
    await journal.open()
    journal.record(Finding(subject=FindingSubject(), decider="test", decision="Before"))
    assert await journal.flush()
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space left"):
        filler.write_bytes(b"x" * 262144)
    for number in range(100):
        journal.record(Finding(subject=FindingSubject(), decider="test", decision=f"Step{number}", message="y" * 1000))
    assert not await journal.flush()
    assert not await journal.flush()
    assert len(await journal.find(CauseQuery())) == 101
    assert caplog.messages == ["Journal not written, will try again"]
    filler.unlink()
    assert await journal.flush()
    await journal.close()

    again = Journal(path=small_disk / "journal.db", clock=ManualClock())
    await again.open()
    assert len(await again.find(CauseQuery())) == 101
    await again.close()

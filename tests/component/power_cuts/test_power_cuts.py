"""The power goes at every point of every write: what is read afterwards is the old value or the new, never neither."""

import asyncio
import os
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from klet.aio.threads import Threads
from klet.certs.child.issue import make_authority
from klet.certs.errors import PairMissing
from klet.certs.messages import MakeAuthority
from klet.certs.store import CLIENT_PREFIX, PairStore
from klet.checkpoint import CheckpointFile, Found
from klet.cli.node.record import read_record
from klet.embedded.store import Store
from klet.host.errors import FileMissing
from klet.host.files import read_bytes
from klet.images.pulled.files import PullFileDirectories
from klet.images.pulled.store import PullRecordStore
from klet.journal.database import Database
from klet.journal.records import CauseQuery
from klet.model.pods import PodUID
from klet.node.boots import BOOT_FORMAT
from klet.offline.snapshot import PodsFormat
from klet.offline.store import KEY_SIZE
from klet.runtime.config.mapping_files import PodMappingFiles
from klet.status.checkpoint import SavedStateFormat
from klet.testing.clock import ManualClock
from klet.testing.power_cuts.cuts import check_cuts, find_cuts, lay_out
from klet.testing.power_cuts.trace import STRACE, trace

WRITERS = Path(__file__).with_name("writers.py")
NOW = datetime(2030, 1, 1, tzinfo=UTC)

pytestmark = pytest.mark.skipif(STRACE is None, reason="strace is missing: apt-get install strace")


@pytest.fixture(scope="session")
def pairs(tmp_path_factory):
    directory = tmp_path_factory.mktemp("pairs")
    for number in (1, 2, 3):
        made = make_authority(MakeAuthority(common_name=f"pair-{number}", lifetime=timedelta(days=1), now=NOW))
        (directory / f"{number}.crt").write_text(made.certificate)
        (directory / f"{number}.key").write_text(made.key)
    return directory


@pytest.fixture
def threads():
    made = Threads(limit=1)
    yield made
    made.close()


def written(name, tmp_path, pairs):
    """Run a writer; return its directory and its system calls."""
    root = tmp_path / "written"
    root.mkdir()
    os.environ["KLET_PAIRS"] = str(pairs)
    return root, trace([sys.executable, str(WRITERS), name, str(root)], log=tmp_path / "strace.log")


def checkpoint(path, form, threads, number_of):
    loaded = CheckpointFile(path=path, form=form, threads=threads, clock=ManualClock()).load()
    # A damaged file counts as none: that is right only before the first value was on disk.
    return number_of(loaded.value) if isinstance(loaded, Found) else 0


def read_file(path, number_of=int):
    try:
        return number_of(read_bytes(path))
    except FileMissing:
        return 0


def read_certificates(directory, pairs):
    store = PairStore(prefix=CLIENT_PREFIX, directory=directory / "pki", configured=None, clock=ManualClock())
    try:
        text = store.load().certificate_file.read_text()
    except PairMissing:
        return 0
    return next(number for number in (1, 2, 3) if (pairs / f"{number}.crt").read_text().strip() in text)


def read_store(directory):
    with closing(Store.open(directory / "store.db")) as store:
        names = [obj["metadata"]["name"] for obj in store.all("pods")]
        assert names == [f"pod-{number}" for number in range(1, len(names) + 1)]
        assert store.revision >= len(names)
        return len(names)


def read_node_record(directory):
    record = read_record(directory / "node.json")
    return record.port if record is not None else 0


READERS = {
    "boot": lambda at, threads, _: checkpoint(
        at / "root/boot.json", BOOT_FORMAT, threads, lambda value: int(value.boot_id[-1])
    ),
    "accepted pods": lambda at, threads, _: checkpoint(
        at / "offline/pods.json", PodsFormat(), threads, lambda value: int(value.node_name[-1])
    ),
    "saved state": lambda at, threads, _: checkpoint(
        at / "memory.json", SavedStateFormat(), threads, lambda value: int(value.statuses[PodUID("uid-1")].message)
    ),
    "atomic": lambda at, *_: read_file(at / "file"),
    "kubeconfig": lambda at, *_: read_file(at / "etc/kubeconfig", lambda data: yaml.safe_load(data)["number"]),
    "node record": lambda at, *_: read_node_record(at),
    "user namespaces": lambda at, threads, _: int(
        asyncio.run(PodMappingFiles(root=at, threads=threads).read_all()).get(PodUID("uid-1"), 0)
    ),
    "key": lambda at, *_: read_file(at / "offline/key", lambda key: int(len(key) == KEY_SIZE)),
    "certificates": lambda at, _, pairs: read_certificates(at, pairs),
    "store": lambda at, *_: read_store(at),
}


@pytest.mark.parametrize("name", READERS)
def test_the_old_value_or_the_new_one_is_read(name, tmp_path, threads, pairs):
    root, calls = written(name, tmp_path, pairs)
    count, wrong = check_cuts(
        root, calls, directory=tmp_path / "cut", read=lambda at: READERS[name](at, threads, pairs)
    )
    assert count > 10 or name == "key"
    assert wrong == []


async def pulls_on(disk, threads):
    """The images that a pull is known of, and those of them that are recorded."""
    store = PullRecordStore(files=PullFileDirectories(root=disk / "image_manager", threads=threads), most_cached=9)
    await store.open()
    begun = [int(intent.image[-1]) async for intent in store.intents()]
    done = [int(record.image_ref[-1]) async for record in store.records()]
    return set(begun), set(done)


async def test_a_pull_is_known_from_its_beginning_whenever_the_power_goes(tmp_path, threads, pairs):
    """An image whose intent was reported as written is never one that nobody pulled."""
    root, calls = written("pulled images", tmp_path, pairs)
    seen = set()
    for cut in find_cuts(root, calls):
        lay_out(cut.state, tmp_path / "cut", root=root)
        begun, done = await pulls_on(tmp_path / "cut", threads)
        pulling, pulled = ((cut.acknowledged + 1) // 2, cut.acknowledged // 2)
        assert set(range(1, pulling + 1)) <= begun | done
        assert set(range(1, pulled + 1)) <= done
        seen.add((pulling in begun, pulling in done))
    assert {(True, False), (True, True), (False, True)} <= seen


def test_the_journal_may_lose_its_end_and_is_never_damaged(tmp_path, pairs):
    root, calls = written("journal", tmp_path, pairs)
    counts = []
    for cut in find_cuts(root, calls):
        lay_out(cut.state, tmp_path / "cut", root=root)
        with closing(Database.open(tmp_path / "cut/journal.db")) as database:
            counts.append(len(database.find(CauseQuery())))
    assert set(counts) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("program", "found"),
    [
        pytest.param("open(path, 'w').write('1')", "is found", id="a file that is written in place"),
        pytest.param(
            "open(path + '.new', 'w').write('1'); os.replace(path + '.new', path)",
            "is found",
            id="a file that is not synced before its rename",
        ),
        pytest.param(
            "file = open(path + '.new', 'w'); file.write('1'); file.flush(); os.fsync(file.fileno()); "
            "os.replace(path + '.new', path)",
            "1 was done, and 0 is found",
            id="a directory that is not synced",
        ),
    ],
)
def test_a_writer_that_is_not_safe_is_found(program, found, tmp_path):
    """The simulator itself works: each step that is left out is noticed."""
    root = tmp_path / "written"
    root.mkdir()
    script = f"import os\npath = {str(root / 'file')!r}\n{program}\nos.write(1, b'ack 1')"
    calls = trace([sys.executable, "-c", script], log=tmp_path / "strace.log")
    _, wrong = check_cuts(
        root, calls, directory=tmp_path / "cut", read=lambda at: read_file(at / "file", lambda data: int(data or -1))
    )
    assert any(found in each for each in wrong)

import gzip
import os
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klet.logs.file import CHUNK, PATIENCE, LogFile, RotationCheck, TailSearch
from klet.logs.line import LogError
from klet.logs.successors import choose_next

NOW = 1000.0
HELD = RotationCheck(is_held=True)


class Memory:
    """A file in memory that remembers how much of it was read."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.was_read = 0

    def size(self) -> int:
        return len(self._data)

    def read_at(self, position: int, size: int) -> bytes:
        self.was_read += size
        return self._data[position : position + size]


def tail_start(data: bytes, lines: int, block_size: int = 4) -> int:
    search = TailSearch(blocks=Memory(data), lines=lines, block_size=block_size)
    while (start := search.step()) is None:
        pass
    return start


@pytest.mark.parametrize(
    ("data", "lines", "rest"),
    [
        pytest.param(b"", 1, b"", id="an empty file"),
        pytest.param(b"a\nb\nc\n", 2, b"b\nc\n", id="two of three"),
        pytest.param(b"a\nb\nc\n", 3, b"a\nb\nc\n", id="all"),
        pytest.param(b"a\nb\nc\n", 4, b"a\nb\nc\n", id="more than there are"),
        pytest.param(b"a\nb\nc\n", 0, b"", id="none"),
        pytest.param(b"a\nb\nc", 0, b"c", id="none leaves the unterminated line"),
        pytest.param(b"a\nb\nc", 1, b"b\nc", id="an unterminated line is not counted"),
        pytest.param(b"abc", 1, b"abc", id="only an unterminated line"),
        pytest.param(b"\n\n\n", 2, b"\n\n", id="empty lines count"),
    ],
)
def test_tail_search(data, lines, rest):
    assert data[tail_start(data, lines) :] == rest


@pytest.mark.parametrize(
    ("data", "farthest", "rest"),
    [
        pytest.param(b"a\nb\nc\n", 6, b"b\nc\n", id="far enough"),
        pytest.param(b"aaaaaa\nb\nc\n", 4, b"c\n", id="only lines that begin there"),
        pytest.param(b"aaaaaaaaaa\n", 5, b"", id="no line begins there"),
        pytest.param(b"aaaaaaaaaa", 5, b"", id="no end of a line"),
    ],
)
def test_tail_search_in_the_last_bytes_alone(data, farthest, rest):
    blocks = Memory(data)
    search = TailSearch(blocks=blocks, lines=2, block_size=3, farthest=farthest)
    while (start := search.step()) is None:
        pass
    assert data[start:] == rest
    assert blocks.was_read <= farthest


@given(data=st.text("ab\n", max_size=60), lines=st.integers(0, 20), block_size=st.integers(1, 9))
def test_tail_search_agrees_with_splitting_the_whole(data, lines, block_size):
    *complete, rest = data.split("\n")
    kept = complete[max(0, len(complete) - lines) :] if lines else []
    expected = "".join(f"{line}\n" for line in kept) + rest
    assert data.encode()[tail_start(data.encode(), lines, block_size) :] == expected.encode()


def test_tail_search_reads_only_the_end():
    memory = Memory(b"0123456789\n" * 1_000_000)
    search = TailSearch(blocks=memory, lines=10)
    assert search.step() == memory.size() - 110
    assert memory.was_read == 65536


@pytest.fixture
def path(tmp_path):
    return tmp_path / "0.log"


@pytest.fixture
def file(path):
    path.write_bytes(b"one\n")
    file = LogFile.open(path)
    yield file
    file.close()


def test_it_reads_what_is_appended(file, path):
    assert file.read() == b"one\n"
    assert file.read() == b""
    assert file.check_rotation(NOW) == RotationCheck()
    with path.open("ab") as writer:
        writer.write(b"two\n")
    assert file.read() == b"two\n"


def test_after_a_rotation_the_old_file_is_read_to_its_end_first(file, path, tmp_path):
    file.read()
    path.rename(tmp_path / "0.log.1")
    assert file.check_rotation(NOW) == RotationCheck()
    path.touch()
    with (tmp_path / "0.log.1").open("ab") as writer:
        writer.write(b"late\n")
    assert file.check_rotation(NOW) == RotationCheck()
    path.write_bytes(b"new\n")
    assert file.check_rotation(NOW) == RotationCheck(read_again=True)
    assert file.read() == b"late\n"
    assert file.check_rotation(NOW) == RotationCheck(read_again=True, is_new=True)
    assert file.read() == b"new\n"


def test_a_file_that_is_still_written_to_is_not_left(file, path, tmp_path):
    file.read()
    with path.open("ab", buffering=0) as writer:
        path.rename(tmp_path / "0.log.1")
        path.write_bytes(b"new\n")
        assert file.check_rotation(NOW) == HELD
        writer.write(b"late\n")
        assert file.read() == b"late\n"
        assert file.check_rotation(NOW) == HELD
        writer.write(b"last\n")
    assert file.check_rotation(NOW) == RotationCheck(read_again=True)
    assert file.read() == b"last\n"
    assert file.check_rotation(NOW) == RotationCheck(read_again=True, is_new=True)
    assert file.read() == b"new\n"


def test_a_writer_that_stays_but_writes_nothing_is_left_in_the_end(file, path, tmp_path):
    """However often the follower comes back meanwhile: a runtime that gets no CPU writes the rest later."""
    file.read()
    with path.open("ab", buffering=0) as writer:
        path.rename(tmp_path / "0.log.1")
        path.write_bytes(b"new\n")
        assert [file.check_rotation(NOW) for _ in range(100)] == [HELD] * 100
        writer.write(b"late\n")
        assert file.read() == b"late\n"
        assert file.check_rotation(NOW + PATIENCE) == HELD
        assert file.check_rotation(NOW + PATIENCE * 1.9) == HELD
        assert file.check_rotation(NOW + PATIENCE * 2).read_again
        assert file.check_rotation(NOW + PATIENCE * 2).is_new
    assert file.read() == b"new\n"


def rotate(path, name, *, compressed=False):
    """Give the log another name, as the log manager does; the older one is compressed."""
    data = path.read_bytes()
    if compressed:
        path.with_name(f"{path.name}.{name}.gz").write_bytes(gzip.compress(data))
        path.unlink()
    else:
        path.rename(path.with_name(f"{path.name}.{name}"))


def read_all(file):
    seen = b""
    for _ in range(20):
        while chunk := file.read():
            seen += chunk
        file.check_rotation(NOW)
    return seen


def test_a_reader_that_slept_through_two_rotations_goes_on_with_the_file_after_its_own(path):
    """Its own was compressed and removed: only the order of the names shows which one it was."""
    path.with_name("0.log.1.gz").write_bytes(gzip.compress(b"zero\n"))
    path.write_bytes(b"one\n")
    with closing(LogFile.open(path)) as file:
        rotate(path, "2", compressed=True)
        path.write_bytes(b"two\n")
        rotate(path, "3", compressed=True)
        path.write_bytes(b"three\n")
        rotate(path, "4")
        path.write_bytes(b"four\n")
        assert read_all(file) == b"one\ntwo\nthree\nfour\n"


def test_files_between_are_read_even_if_nothing_is_in_the_log_itself(path):
    path.write_bytes(b"one\n")
    with closing(LogFile.open(path)) as file:
        rotate(path, "1")
        path.write_bytes(b"two\n")
        rotate(path, "2")
        path.touch()
        assert read_all(file) == b"one\ntwo\n"


def test_files_between_are_read_while_there_is_no_log_at_all(path):
    path.write_bytes(b"one\n")
    with closing(LogFile.open(path)) as file:
        rotate(path, "1")
        path.write_bytes(b"two\n")
        rotate(path, "2")
        assert read_all(file) == b"one\ntwo\n"
        path.write_bytes(b"three\n")
        assert read_all(file) == b"three\n"


def test_a_rename_that_was_undone_is_forgotten(file, path, tmp_path):
    """The runtime did not open a new file: the log gets its name back, and another one the next time."""
    file.read()
    rotate(path, "1")
    assert file.check_rotation(NOW) == RotationCheck()
    (tmp_path / "0.log.1").rename(path)
    assert file.check_rotation(NOW) == RotationCheck()
    rotate(path, "2")
    path.write_bytes(b"two\n")
    assert read_all(file) == b"two\n"


def test_a_slow_reader_goes_through_all_files_in_between(file, path, tmp_path):
    """Also those that are compressed by now, and its own, which is gone."""
    file.read()
    path.rename(tmp_path / "0.log.1")
    path.write_bytes(b"two\n")
    assert file.check_rotation(NOW).read_again
    (tmp_path / "0.log.1").unlink()
    (tmp_path / "0.log.1.gz").write_bytes(gzip.compress(b"one\n"))
    path.unlink()
    (tmp_path / "0.log.2.gz").write_bytes(gzip.compress(b"two\n" * 100_000))
    (tmp_path / "0.log.2.gz.tmp").write_bytes(b"half")
    (tmp_path / "0.log.3").write_bytes(b"three\n")
    path.write_bytes(b"four\n")
    seen = b""
    for _ in range(100):
        while chunk := file.read():
            assert len(chunk) <= CHUNK
            seen += chunk
        file.check_rotation(NOW)
    assert seen == b"two\n" * 100_000 + b"three\nfour\n"


def test_a_compressed_file_that_is_damaged_is_an_error(file, path, tmp_path):
    file.read()
    path.rename(tmp_path / "0.log.1")
    path.write_bytes(b"x\n")
    assert file.check_rotation(NOW).read_again
    path.rename(tmp_path / "0.log.2.gz")
    path.write_bytes(b"y\n")
    assert file.check_rotation(NOW).is_new
    with pytest.raises(LogError, match="failed to read log file"):
        file.read()


@pytest.mark.parametrize(
    ("own", "found", "expected"),
    [
        pytest.param("l.1", ["l.1"], "l", id="the newest: the log itself"),
        pytest.param("l.1", ["l.1.gz", "l.2", "l.3"], "l.2", id="the next one"),
        pytest.param("l.1", ["l.3", "l.2.gz"], "l.2.gz", id="the next one is compressed"),
        pytest.param("l.1", ["l.2", "l.2.gz", "l.2.tmp"], "l.2", id="both of it: the one that needs no work"),
        pytest.param("l.1", ["l.2.tmp"], "l", id="a temporary file is none"),
        pytest.param("l.1.gz", ["l.1", "l.1.gz", "l.2"], "l.2", id="after a compressed one"),
        pytest.param("l.1", [], "l", id="all are gone"),
    ],
)
def test_the_next_file(own, found, expected):
    assert choose_next("l", own, found) == expected


def test_a_successor_that_vanishes_again_is_waited_for(file, path, tmp_path):
    path.rename(tmp_path / "0.log.1")
    path.write_bytes(b"new\n")
    assert file.check_rotation(NOW).read_again
    path.unlink()
    assert file.check_rotation(NOW) == RotationCheck()
    assert file.read() == b"one\n"


def test_a_truncated_file_is_read_from_its_beginning(file, path):
    file.read()
    os.truncate(path, 0)
    assert file.check_rotation(NOW) == RotationCheck(read_again=True, is_new=True)
    path.write_bytes(b"2\n")
    assert file.read() == b"2\n"


class TestLinks:
    """Below the directory of all logs, others may have put links: to any file of the machine."""

    @pytest.fixture
    def log(self, tmp_path):
        secret = tmp_path / "secret"
        secret.mkdir()
        (secret / "0.log").write_text("root:$6$secret\n")
        log = tmp_path / "logs" / "ns_web_u-1" / "main" / "0.log"
        log.parent.mkdir(parents=True)
        return log

    def assert_refused(self, log):
        with pytest.raises(LogError) as caught:
            LogFile.open(log)
        assert str(caught.value).startswith(f'failed to try resolving symlinks in path "{log}": ')
        assert "secret" not in str(caught.value)

    def test_a_linked_file_is_refused(self, log, tmp_path):
        log.symlink_to(tmp_path / "secret/0.log")
        self.assert_refused(log)

    @pytest.mark.parametrize("target", ["../other/0.log", "0.log.1"])
    def test_even_within_the_pod(self, log, target):
        (log.parent.parent / "other").mkdir()
        (log.parent.parent / "other/0.log").write_text("x")
        (log.parent / "0.log.1").write_text("x")
        log.symlink_to(target)
        self.assert_refused(log)

    @pytest.mark.parametrize("depth", [0, 1])
    def test_a_linked_directory_is_refused(self, log, tmp_path, depth):
        place = log.parents[depth]
        (tmp_path / "secret/main").symlink_to(tmp_path / "secret")
        place.rename(tmp_path / "away")
        place.symlink_to(tmp_path / "secret")
        self.assert_refused(log)

    def test_the_directory_of_all_logs_may_be_a_link(self, log, tmp_path):
        log.write_text("one\n")
        (tmp_path / "logs").rename(tmp_path / "disk")
        (tmp_path / "logs").symlink_to(tmp_path / "disk")
        file = LogFile.open(log)
        assert file.read() == b"one\n"
        file.close()

    def test_a_link_for_collectors_still_leads_to_the_log(self, log, tmp_path):
        """klet makes them in `/var/log/containers` and reads by the runtime's path."""
        log.write_text("one\n")
        (tmp_path / "web_ns_main-1.log").symlink_to(log)
        assert (tmp_path / "web_ns_main-1.log").read_text() == "one\n"

    def test_a_successor_that_is_a_link_is_refused(self, log, tmp_path):
        log.write_text("one\n")
        file = LogFile.open(log)
        try:
            file.read()
            log.rename(f"{log}.20260101-000000")
            log.symlink_to(tmp_path / "secret/0.log")
            assert file.check_rotation(NOW).read_again
            with pytest.raises(LogError) as caught:
                file.check_rotation(NOW)
            assert "secret" not in str(caught.value)
        finally:
            file.close()

    def test_a_directory_that_is_swapped_meanwhile_has_no_effect(self, log, tmp_path):
        log.write_text("one\n")
        file = LogFile.open(log)
        try:
            assert file.read() == b"one\n"
            log.parent.rename(tmp_path / "away")
            log.parent.symlink_to(tmp_path / "secret")
            assert file.check_rotation(NOW) == RotationCheck()
            with (tmp_path / "away/0.log").open("a") as writer:
                writer.write("two\n")
            assert file.read() == b"two\n"
            assert file.directory.samefile(tmp_path / "away")
        finally:
            file.close()


@pytest.mark.parametrize("path", ["0.log", "/0.log", "/var/log/pods/../../shadow/x/0.log", "/var/log/pods/a/b/0\0.log"])
def test_what_is_no_path_of_a_log_is_an_error(path):
    with pytest.raises(LogError, match="failed to try resolving symlinks in path"):
        LogFile.open(Path(path))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(lambda _: None, "failed to try resolving symlinks in path", id="missing"),
        pytest.param(lambda path: path.symlink_to(path), "failed to try resolving symlinks in path", id="a circle"),
        pytest.param(lambda path: path.mkdir(), "not a regular file", id="a directory"),
        pytest.param(os.mkfifo, "not a regular file", id="a named pipe does not block"),
    ],
)
def test_what_is_no_log_file_is_an_error(path, make, message):
    make(path)
    with pytest.raises(LogError, match=message):
        LogFile.open(path)

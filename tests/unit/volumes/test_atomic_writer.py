"""Files that appear all at once, and nothing that a hostile directory could gain from it."""

import os
import re
import stat
import threading
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from klet.errors import KletError
from klet.host.errors import HostError
from klet.testing.clock import START
from klet.volumes.atomic_writer import GRACE, FileProjection, with_parents, write_payload
from klet.volumes.errors import BadPath


def payload(**files):
    return {name.replace("__", "/"): FileProjection(data.encode(), 0o644) for name, data in files.items()}


def write(target, files, *, now=START, own=lambda: None):
    return write_payload(target, files, now=now, own=own).is_new


def shown(target):
    """What a user sees: everything that does not begin with two dots."""
    found = {}
    for base, _, names in os.walk(target, followlinks=True):
        for path in (Path(base, name) for name in names):
            name = str(path.relative_to(target))
            if not name.startswith(".."):
                found[name] = path.read_text()
    return found


def stamped(target):
    return sorted(entry.name for entry in target.iterdir() if re.fullmatch(r"\.\.\d{4}_.*", entry.name))


def test_files_appear_behind_links(tmp_path):
    assert write(tmp_path, payload(a="1", d__b="2"))
    (name,) = stamped(tmp_path)
    assert re.fullmatch(r"\.\.2030_01_01_00_00_00\.\d+", name)
    assert str((tmp_path / "..data").readlink()) == name
    assert str((tmp_path / "a").readlink()) == "..data/a"
    assert str((tmp_path / "d").readlink()) == "..data/d"
    assert shown(tmp_path) == {"a": "1", "d/b": "2"}
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted([name, "..data", "a", "d"])


def test_what_is_gone_goes_with_its_link_and_its_directory(tmp_path):
    write(tmp_path, payload(a="1", d__b="2"))
    (old,) = stamped(tmp_path)
    assert write(tmp_path, payload(a="1"))
    assert shown(tmp_path) == {"a": "1"}
    assert not (tmp_path / "d").is_symlink()
    assert not write(tmp_path, payload(a="1"), now=START + GRACE)
    assert old not in stamped(tmp_path)
    assert len(stamped(tmp_path)) == 1


def test_what_was_replaced_can_be_read_for_a_while(tmp_path):
    """By who has resolved `..data` just before."""
    write(tmp_path, payload(a="1"))
    old = tmp_path / (tmp_path / "..data").readlink()
    written = write_payload(tmp_path, payload(a="2"), now=START, own=lambda: None)
    assert written == (True, START + GRACE)
    soon = START + GRACE - timedelta(microseconds=1)
    assert write_payload(tmp_path, payload(a="2"), now=soon, own=lambda: None) == (False, START + GRACE)
    assert (old / "a").read_text() == "1"
    assert write_payload(tmp_path, payload(a="2"), now=START + GRACE, own=lambda: None) == (False, None)
    assert not old.exists()
    assert shown(tmp_path) == {"a": "2"}


def test_a_first_write_replaces_nothing(tmp_path):
    assert write_payload(tmp_path, payload(a="1"), now=START, own=lambda: None) == (True, None)


def test_of_many_updates_no_more_than_two_states_are_there(tmp_path):
    """A secret of old is never further away than the next update."""
    for number in range(5):
        before = stamped(tmp_path)
        write(tmp_path, payload(a=str(number)))
        assert len(set(stamped(tmp_path)) - set(before)) == 1
        assert len(stamped(tmp_path)) == min(number + 1, 2)


@pytest.mark.parametrize("now", [START - timedelta(hours=1), START + timedelta(days=1)])
def test_a_clock_that_is_set_keeps_nothing_longer(tmp_path, now):
    write(tmp_path, payload(a="1"))
    write(tmp_path, payload(a="2"))
    assert write_payload(tmp_path, payload(a="2"), now=now, own=lambda: None) == (False, None)
    assert len(stamped(tmp_path)) == 1


@pytest.mark.parametrize("odd", ["..9999_99_99_99_99_99.1", "..9999_12_31_23_59_59.1", "..0000_00_00_00_00_00.1"])
def test_a_name_that_is_no_time_keeps_nothing(tmp_path, odd):
    write(tmp_path, payload(a="1"))
    (name,) = stamped(tmp_path)
    (tmp_path / name).rename(tmp_path / odd)
    (tmp_path / name).mkdir()
    (tmp_path / "..data").unlink()
    (tmp_path / "..data").symlink_to(odd)
    assert write_payload(tmp_path, payload(a="1"), now=START, own=lambda: None) == (False, None)
    assert stamped(tmp_path) == [odd]


def test_the_same_content_is_not_written_again(tmp_path):
    write(tmp_path, payload(a="1", d__b="2"))
    before = stamped(tmp_path)
    assert not write(tmp_path, payload(a="1", d__b="2"), now=START + timedelta(hours=1))
    assert stamped(tmp_path) == before


def test_a_mode_alone_changes_nothing(tmp_path):
    write(tmp_path, {"a": FileProjection(b"1", 0o644)})
    assert not write(tmp_path, {"a": FileProjection(b"1", 0o600)})


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(payload(a="2"), id="other content of the same length"),
        pytest.param(payload(a="11"), id="longer content"),
        pytest.param(payload(a=""), id="no content"),
        pytest.param(payload(a="1", b="1"), id="a file more"),
        pytest.param(payload(a__b="1"), id="a directory in place of a file"),
        pytest.param({}, id="nothing"),
    ],
)
def test_other_content_is_written(tmp_path, changed):
    write(tmp_path, payload(a="1"))
    assert write(tmp_path, changed)
    assert shown(tmp_path) == {name: file.data.decode() for name, file in changed.items()}


def test_nothing_at_all_is_a_state_too(tmp_path):
    assert write(tmp_path, {})
    assert (tmp_path / "..data").is_dir()
    assert not write(tmp_path, {})


def test_a_link_that_somebody_removed_comes_back(tmp_path):
    write(tmp_path, payload(a="1"))
    (tmp_path / "a").unlink()
    assert not write(tmp_path, payload(a="1"))
    assert shown(tmp_path) == {"a": "1"}


def test_modes_are_exact_and_have_nine_bits(tmp_path):
    write(tmp_path, {"a": FileProjection(b"", 0o7640), "b": FileProjection(b"", 0o400)})
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o400
    assert stat.S_IMODE((tmp_path / "..data/").stat().st_mode) == 0o755


def test_the_owner_is_settled_before_the_files_appear(tmp_path):
    write(tmp_path, payload(a="1"))
    seen = []

    def own():
        seen.append((shown(tmp_path), len(stamped(tmp_path))))

    write(tmp_path, payload(a="2"), own=own)
    assert seen == [({"a": "1"}, 2)]


def test_a_failure_leaves_what_was_there(tmp_path):
    write(tmp_path, payload(a="1"))
    before = stamped(tmp_path)

    def own():
        raise HostError("no")

    with pytest.raises(HostError):
        write(tmp_path, payload(a="2"), own=own)
    assert shown(tmp_path) == {"a": "1"}
    assert stamped(tmp_path) == before


def test_a_file_in_the_place_of_a_directory(tmp_path):
    with pytest.raises(KletError, match="write files to"):
        write(tmp_path, {"a": FileProjection(b"", 0o644), "a/b": FileProjection(b"", 0o644)})
    assert stamped(tmp_path) == []


def test_a_directory_that_is_missing(tmp_path):
    with pytest.raises(KletError, match="No such file"):
        write(tmp_path / "missing", payload(a="1"))


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        pytest.param("", 'invalid path: must not be empty: ""', id="empty"),
        pytest.param("/a", "invalid path: must be relative path: /a", id="absolute"),
        pytest.param("a/../b", "invalid path: must not contain '..': a/../b", id="a step back"),
        pytest.param("..", "invalid path: must not contain '..': ..", id="the parent"),
        pytest.param("..a", "invalid path: must not start with '..': ..a", id="a name of ours"),
        pytest.param("..data/a", "invalid path: must not start with '..': ..data/a", id="below a name of ours"),
        pytest.param("a" * 256, "invalid path: filenames must be less than or equal to 255 characters", id="name"),
        pytest.param("a/" * 2049, "invalid path: must be less than or equal to 4096 characters", id="path"),
        pytest.param(".", "invalid path: must name a file: '.'", id="the directory itself"),
        pytest.param("a\0b", "invalid path: must name a file: 'a\\x00b'", id="a NUL"),
    ],
)
def test_paths_that_are_refused(tmp_path, path, rule):
    with pytest.raises(BadPath) as caught:
        write(tmp_path, {path: FileProjection(b"", 0o644)})
    assert str(caught.value) == rule
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["a", "a/..b", "a/.../b", "a//b", "./a", "a" * 255])
def test_paths_that_are_fine(tmp_path, path):
    write(tmp_path, {path: FileProjection(b"x", 0o644)})
    assert len(shown(tmp_path)) == 1


@pytest.mark.parametrize(
    ("before", "after", "removed"),
    [
        pytest.param({"foo", "bar"}, {"foo"}, {"bar"}, id="a file"),
        pytest.param({"foo", "zip", "zip/bar"}, {"foo"}, {"zip", "zip/bar"}, id="a directory"),
        pytest.param(
            {"zap", "zap/1", "zap/1/2", "zap/1/2/3", "zap/1/2/3/4", "zap/1/2/3/4/bar"}
            | {"zap/1/2/c", "zap/1/2/c/bar", "zap/1/2/magic"},
            {"zap/1/2/magic"},
            {"zap/1/2/3", "zap/1/2/3/4", "zap/1/2/3/4/bar", "zap/1/2/c", "zap/1/2/c/bar"},
            id="deep in a tree",
        ),
        pytest.param({"foo"}, {"foo", "bar"}, set(), id="nothing"),
    ],
)
def test_what_has_to_go(before, after, removed):
    assert set(before) - with_parents(after) == removed


def test_paths_of_any_depth_can_be_compared(tmp_path):
    """The author of a pod says how deep they are: 2,000 directories fit into a path."""
    deep = {"/".join("d" * 2000): FileProjection(b"x", 0o644)}
    assert write(tmp_path, deep)
    assert not write(tmp_path, deep)
    assert write(tmp_path, payload(a="1"))
    write(tmp_path, payload(a="1"), now=START + GRACE)
    assert len(stamped(tmp_path)) == 1


@pytest.fixture
def outside(tmp_path):
    """A directory of the host that no volume may touch."""
    made = tmp_path / "outside"
    made.mkdir()
    (made / "precious").write_text("x")
    return made


@pytest.fixture
def target(tmp_path):
    made = tmp_path / "target"
    made.mkdir()
    return made


def test_a_data_link_that_leads_out_deletes_nothing(target, outside):
    write(target, payload(a="1"))
    (target / "..data").unlink()
    (target / "..data").symlink_to("../outside")
    assert write(target, payload(a="1"))
    assert (outside / "precious").read_text() == "x"
    assert shown(target) == {"a": "1"}


def test_a_directory_of_ours_that_is_a_link_deletes_nothing(target, outside):
    write(target, payload(a="1"))
    (name,) = stamped(target)
    for entry in (target / name).iterdir():
        entry.unlink()
    (target / name).rmdir()
    (target / name).symlink_to(outside)
    assert write(target, payload(a="2"))
    assert (outside / "precious").read_text() == "x"
    assert shown(target) == {"a": "2"}


def test_a_file_that_was_swapped_for_a_link_is_not_read_through(target, outside):
    write(target, payload(precious="x"))
    (name,) = stamped(target)
    (target / name / "precious").unlink()
    (target / name / "precious").symlink_to(outside / "precious")
    assert write(target, payload(precious="x"))
    assert not (target / "..data" / "precious").is_symlink()


def test_a_directory_inside_ours_that_was_swapped_for_a_link_deletes_nothing(target, outside):
    write(target, payload(d__b="1"))
    (name,) = stamped(target)
    (target / name / "d" / "b").unlink()
    (target / name / "d").rmdir()
    (target / name / "d").symlink_to(outside)
    assert write(target, payload(a="1"))
    assert (outside / "precious").read_text() == "x"


def test_links_of_others_stay(target, outside):
    (target / "theirs").symlink_to(outside)
    (target / "nested").mkdir()
    write(target, payload(a="1"))
    write(target, payload(b="1"))
    assert str((target / "theirs").readlink()) == str(outside)
    assert (target / "nested").is_dir()
    assert not (target / "a").is_symlink()


def test_a_real_entry_in_the_way_stays(target):
    (target / "a").mkdir()
    write(target, payload(a="1"))
    assert (target / "a").is_dir()
    assert not (target / "a").is_symlink()


def test_what_a_crash_left_does_no_harm(target):
    write(target, payload(a="1", b="1"))
    # Killed after the new state was written, before and after the swing.
    (target / "..data_tmp").symlink_to("..2029_01_01_00_00_00.1")
    (target / "..2029_01_01_00_00_00.1").mkdir()
    (target / "..2029_01_01_00_00_00.1" / "x").write_text("y")
    (target / "gone").symlink_to("..data/gone")
    assert write(target, payload(a="2", b="1"))
    assert shown(target) == {"a": "2", "b": "1"}
    assert "..2029_01_01_00_00_00.1" not in stamped(target)
    write(target, payload(a="2", b="1"), now=START + GRACE)
    assert len(stamped(target)) == 1
    assert sorted(entry.name for entry in target.iterdir() if entry.is_symlink()) == ["..data", "a", "b"]


@contextmanager
def opened_data(target):
    directory = os.open(target / "..data", os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield directory
    finally:
        os.close(directory)


def read_files(directory):
    contents = set()
    for name in ("a", "b"):
        with open(os.open(name, os.O_RDONLY, dir_fd=directory)) as file:
            contents.add(file.read())
    return contents


class Reader(threading.Thread):
    """Reads states until it is stopped; what it has no answer for ends it, and the test."""

    def __init__(self, read):
        super().__init__()
        self.read = read
        self.rounds = 0
        self.another = threading.Condition()
        self.is_over = threading.Event()
        self.torn = []
        self.error = None

    def run(self):
        try:
            while not self.is_over.is_set():
                contents = self.read()
                if len(contents) > 1:
                    self.torn.append(contents)
                with self.another:
                    self.rounds += 1
                    self.another.notify()
        except (OSError, AssertionError) as error:
            self.error = error
            with self.another:
                self.another.notify()

    def wait_for_a_round(self):
        with self.another:
            now = self.rounds
            self.another.wait_for(lambda: self.rounds > now or self.error is not None, timeout=30)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.join()
        assert self.error is None
        assert self.torn == []


def test_a_reader_never_sees_a_half_state(target):
    """Both files always have the same content behind one `..data`, which leads nowhere only for who is outrun twice."""
    write(target, payload(a="0", b="0"))
    begun, done = [], []

    def read():
        before = len(done)
        try:
            with opened_data(target) as directory:
                return read_files(directory)
        except FileNotFoundError:
            assert len(begun) - before >= 2, "an old state was gone after one update"
            return set()

    with Reader(read):
        for number in range(100):
            begun.append(number)
            write(target, payload(a=str(number), b=str(number)))
            done.append(number)


def test_an_update_takes_no_file_away_from_a_reader(target):
    """No more than one update falls into a round of the reader, which then finds every file by every path."""
    write(target, payload(a="0", b="0"))

    def read():
        resolved = target / (target / "..data").readlink()
        assert (target / "a").read_text().isdigit()
        assert (resolved / "a").read_text() == (resolved / "b").read_text()
        with opened_data(target) as directory:
            return read_files(directory)

    with Reader(read) as reader:
        for number in range(100):
            write(target, payload(a=str(number), b=str(number)))
            reader.wait_for_a_round()

"""The files of the log manager, also in directories that somebody else writes to."""

import gzip
import os
import stat
from datetime import UTC, datetime

import pytest

from klet.host.errors import FileError
from klet.logs.rotated_files import (
    LogProblem,
    RotationStopped,
    list_rotated,
    measure_logs,
    rename_log,
    restore_log,
    tidy_rotated,
)

NOW = datetime(2030, 5, 6, 7, 8, 9, tzinfo=UTC)
NEW = "0.log.20300506-070809"


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "pods" / "default_pod_uid" / "main" / "0.log"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"live\n")
    return path


def names(log):
    return sorted(path.name for path in log.parent.iterdir())


def tidy(log, *, max_files=5, is_stopped=lambda: False, limit=1000):
    return tidy_rotated(str(log), max_files=max_files, now=NOW, is_stopped=is_stopped, limit=limit).rotated


def test_sizes(log, tmp_path):
    other = log.with_name("1.log")
    other.write_bytes(b"x" * 100)
    gone, no_pod = log.with_name("2.log"), tmp_path / "pods" / "none" / "main" / "0.log"
    found = measure_logs([str(log), str(other), str(gone), str(no_pod)])
    assert (found[str(log)], found[str(other)]) == (5, 100)
    assert [found[str(path)].is_missing for path in (gone, no_pod)] == [True, True]


@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
def test_what_is_no_file_has_no_size_and_is_not_renamed(log, tmp_path, kind):
    secret = tmp_path / "secret"
    secret.write_bytes(b"s" * 1000)
    log.unlink()
    {"link": lambda: log.symlink_to(secret), "pipe": lambda: os.mkfifo(log), "directory": log.mkdir}[kind]()
    found = measure_logs([str(log)])[str(log)]
    assert found == LogProblem(f"{log} is not a regular file")
    with pytest.raises(FileError, match="not a regular file"):
        rename_log(str(log), NEW)
    assert names(log) == ["0.log"]


@pytest.mark.parametrize("name", ["main", "default_pod_uid"])
def test_no_link_leads_out_of_the_logs(log, tmp_path, name):
    directory = next(each for each in log.parents if each.name == name)
    elsewhere = tmp_path / "elsewhere"
    directory.rename(elsewhere)
    directory.symlink_to(elsewhere)
    found = measure_logs([str(log)])[str(log)]
    assert isinstance(found, LogProblem)
    assert not found.is_missing
    for change in (lambda: rename_log(str(log), NEW), lambda: restore_log(str(log), NEW), lambda: tidy(log)):
        with pytest.raises(FileError):
            change()


@pytest.mark.parametrize("path", ["relative/a/b/c", "/a/../b/c/d", "/a", ""])
def test_a_path_of_no_log(path):
    assert isinstance(measure_logs([path])[path], LogProblem)


def test_old_files_are_removed_and_the_newest_is_compressed_with_its_mode(log):
    for number in range(4):
        log.with_name(f"0.log.{number}").write_bytes(b"%d\n" % number * 100_000)
        log.with_name(f"0.log.{number}").chmod(0o640)
    log.with_name("0.log.0.tmp").write_bytes(b"half")
    log.with_name("1.log.0").write_bytes(b"of another container")
    assert tidy(log, max_files=4) == NEW
    assert names(log) == ["0.log", "0.log.2.gz", "0.log.3.gz", "1.log.0"]
    assert gzip.decompress(log.with_name("0.log.3.gz").read_bytes()) == b"3\n" * 100_000
    assert stat.S_IMODE(log.with_name("0.log.3.gz").stat().st_mode) == 0o640


def test_a_stop_leaves_the_file_as_it_was(log):
    log.with_name("0.log.1").write_bytes(b"1\n")
    with pytest.raises(RotationStopped):
        tidy(log, is_stopped=lambda: True)
    assert names(log) == ["0.log", "0.log.1"]


def test_links_and_pipes_named_like_rotated_files_are_removed_unread_and_directories_stay(log, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    log.with_name("0.log.1").symlink_to(secret)
    os.mkfifo(log.with_name("0.log.2"))
    log.with_name("0.log.3").mkdir()
    (log.with_name("0.log.3") / "file").touch()
    log.with_name("0.log.4").write_bytes(b"4")
    assert tidy(log) == NEW
    assert names(log) == ["0.log", "0.log.3", "0.log.4.gz"]
    assert secret.read_bytes() == b"secret"


def test_a_directory_of_the_temporary_name_makes_an_error_and_nothing_is_lost(log):
    log.with_name("0.log.1").write_bytes(b"1")
    log.with_name("0.log.1.tmp").mkdir()
    with pytest.raises(FileError):
        tidy(log)
    assert log.with_name("0.log.1").read_bytes() == b"1"


def test_more_files_than_one_rotation_looks_at_go_over_time(log):
    for number in range(250):
        log.with_name(f"0.log.{number:04}.gz").touch()
    left = []
    for _ in range(4):
        tidy(log, limit=100)
        left.append(len(list_rotated(str(log))))
        assert {f"0.log.{number:04}.gz" for number in (247, 248, 249)} <= set(names(log))
    assert left[-1] == 3


def test_a_rename_and_its_undoing(log):
    rename_log(str(log), NEW)
    assert names(log) == [NEW]
    assert restore_log(str(log), NEW)
    assert names(log) == ["0.log"]
    assert log.read_bytes() == b"live\n"


def test_a_new_log_is_never_replaced_by_the_old_one(log):
    rename_log(str(log), NEW)
    log.write_bytes(b"new\n")
    assert not restore_log(str(log), NEW)
    assert (log.read_bytes(), log.with_name(NEW).read_bytes()) == (b"new\n", b"live\n")

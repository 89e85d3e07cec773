import os
import stat
import tempfile
import time
from pathlib import Path

import pytest

from klet.host.errors import FileError, FileMissing
from klet.host.files import (
    is_unfinished,
    read_bytes,
    read_text,
    remove_content,
    remove_entry,
    remove_file,
    remove_tree,
    scratch_directory,
    write_atomic,
    write_text,
)


def test_a_missing_file_is_an_error_of_its_own(tmp_path):
    with pytest.raises(FileMissing, match=r"cannot read .*nothing: No such file"):
        read_text(tmp_path / "nothing")


def test_a_large_file_is_read_in_linear_time(tmp_path):
    path = tmp_path / "large"
    with open(path, "wb") as file:
        file.truncate(96 << 20)
    began = time.process_time()
    assert len(read_bytes(path, limit=128 << 20)) == 96 << 20
    assert time.process_time() - began < 10


def test_a_long_file_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    assert read_bytes(tmp_path / "file", limit=5) == b"12345"
    with pytest.raises(FileError, match="longer than 4 bytes"):
        read_bytes(tmp_path / "file", limit=4)


def test_bytes_that_are_no_text_are_replaced(tmp_path):
    (tmp_path / "file").write_bytes(b"a\xffb")
    assert read_text(tmp_path / "file") == "a\N{REPLACEMENT CHARACTER}b"


def test_writing_needs_the_file(tmp_path):
    with pytest.raises(FileMissing, match="cannot write '1' to"):
        write_text(tmp_path / "nothing", "1")


def test_an_atomic_write_replaces_content_and_mode(tmp_path):
    file = tmp_path / "state"
    file.write_text("old")
    write_atomic(file, b"new", mode=0o640)
    assert file.read_text() == "new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert [entry.name for entry in tmp_path.iterdir()] == ["state"]


def test_an_atomic_write_that_fails_leaves_nothing_behind(tmp_path):
    (tmp_path / "state").mkdir()
    with pytest.raises(FileError, match=r"cannot write .*state: Is a directory"):
        write_atomic(tmp_path / "state", b"new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["state"]


def test_removing_what_is_gone_is_fine(tmp_path):
    remove_file(tmp_path / "nothing")
    remove_tree(tmp_path / "nothing")
    remove_tree(tmp_path / "nothing" / "deeper")


def test_a_tree_goes_and_symlinks_are_not_followed(tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    tree = tmp_path / "tree"
    (tree / "sub" / "sub").mkdir(parents=True)
    (tree / "sub" / "file").touch()
    (tree / "link").symlink_to(kept)
    os.mkfifo(tree / "fifo")
    remove_tree(tree)
    assert not tree.exists()
    assert (kept / "file").exists()


def test_a_symlink_is_removed_and_not_what_it_names(tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    (tmp_path / "link").symlink_to(kept)
    remove_tree(tmp_path / "link")
    assert [entry.name for entry in tmp_path.iterdir()] == ["kept"]


@pytest.mark.parametrize("name", ["..", "tree/..", "tree/../kept"])
def test_a_path_that_goes_up_is_not_removed(tmp_path, name):
    # Deep enough that no mistake of the code reaches anything but this test's own directory.
    place = tmp_path / "deep" / "deeper"
    (place / "tree").mkdir(parents=True)
    (place / "kept").touch()
    with pytest.raises(FileError, match=r"a path with '\.\.' is not removed"):
        remove_tree(place / "tree" / ".." / name)
    assert sorted(path.name for path in place.iterdir()) == ["kept", "tree"]


def test_a_path_without_a_name_is_not_removed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileError, match="no plain name"):
        remove_tree(Path())


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\0", "x" * 256])
def test_only_a_plain_name_is_removed_from_a_directory(tmp_path, name):
    (tmp_path / "a/b").mkdir(parents=True)
    directory = os.open(tmp_path / "a", os.O_PATH)
    try:
        with pytest.raises(FileError, match="no plain name"):
            remove_entry(directory, name, tmp_path)
    finally:
        os.close(directory)
    assert (tmp_path / "a/b").is_dir()


@pytest.fixture
def apart():
    """A directory that pytest does not remove: if the test is killed, pytest itself fails on so deep a tree later."""
    directory = Path(tempfile.mkdtemp(prefix="klet-deep-"))
    yield directory
    remove_tree(directory)


def test_a_very_deep_tree_costs_neither_stack_nor_descriptors(apart):
    tree = apart / "tree"
    tree.mkdir()
    descriptor = os.open(tree, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("deeper", dir_fd=descriptor)
        below = os.open("deeper", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)
    remove_tree(tree)
    assert list(apart.iterdir()) == []


def test_a_kernel_switch_is_read_although_the_limit_is_large():
    assert read_text(Path("/proc/sys/kernel/random/boot_id")).count("-") == 4


def test_a_directory_loses_its_content_and_stays(tmp_path):
    (tmp_path / "tree/below").mkdir(parents=True)
    (tmp_path / "tree/file").touch()
    remove_content(tmp_path / "tree")
    assert list((tmp_path / "tree").iterdir()) == []
    remove_content(tmp_path / "missing")


def test_the_content_behind_a_link_stays(tmp_path):
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/file").touch()
    (tmp_path / "link").symlink_to("tree")
    with pytest.raises(FileError):
        remove_content(tmp_path / "link")
    assert (tmp_path / "tree/file").exists()


def test_a_scratch_directory_goes_with_all_in_it(tmp_path):
    with scratch_directory(tmp_path, prefix="try-") as scratch:
        (scratch / "below").mkdir()
        (scratch / "below/file").touch()
        assert scratch.name.startswith("try-")
    assert list(tmp_path.iterdir()) == []


def test_where_no_scratch_directory_can_be_is_an_error(tmp_path):
    with (
        pytest.raises(FileError, match="cannot make a directory in"),
        scratch_directory(tmp_path / "missing", prefix=""),
    ):
        pass


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (".state.json.0123456789ab", True),
        ("state.json.0123456789ab", False),
        (".state.json.0123456789a", False),
        (".state.json", False),
        ("..0123456789ab", False),
    ],
)
def test_which_files_a_killed_writer_has_left(name, expected):
    assert is_unfinished(name) is expected

"""Files below a root, where somebody else may have put links, pipes and names that lead elsewhere."""

import os
import stat
from pathlib import Path

import pytest

from klet.host.beneath import (
    Entry,
    list_directory,
    make_directories,
    make_file,
    open_directory,
    read_end,
    remove_below,
    remove_empty_below,
    split_end,
    unlink_below,
    write_in_place,
)
from klet.host.errors import FileError, FileMissing, MountInTree

BAD_NAMES = ["", ".", "..", "a/b", "/klet-no-such", "a\0", "x" * 256]


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "root"
    (root / "a").mkdir(parents=True)
    (root / "a/file").write_text("data")
    return root


@pytest.fixture
def outside(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o700)
    (outside / "file").write_text("secret")
    (outside / "file").chmod(0o600)
    return outside


CALLS = {
    "list": list_directory,
    "make directories": lambda root, *names: make_directories(root, *names, mode=0o755),
    "make a file": lambda root, *names: make_file(root, *names, "new", mode=0o644),
    "write": lambda root, *names: write_in_place(root, *names, "file", data=b"new", mode=0o644),
    "read": lambda root, *names: read_end(root, *names, "file", limit=9),
    "remove": lambda root, *names: remove_below(root, *names, "file"),
    "unlink": lambda root, *names: unlink_below(root, *names, "file"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_linked_directory_is_not_entered(root, outside, call):
    (root / "link").symlink_to(outside)
    with pytest.raises(FileError):
        call(root, "link")
    assert (outside / "file").read_text() == "secret"
    assert [path.name for path in outside.iterdir()] == ["file"]
    assert stat.S_IMODE(outside.stat().st_mode) == 0o700


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_linked_root_is_not_entered(root, outside, call, tmp_path):
    (tmp_path / "link").symlink_to(outside)
    with pytest.raises(FileError):
        call(tmp_path / "link")
    assert (outside / "file").read_text() == "secret"


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_is_one_plain_name(root, call, name):
    before = sorted(root.parent.rglob("*"))
    with pytest.raises(FileError, match="no plain name"):
        call(root, name)
    assert sorted(root.parent.rglob("*")) == before


@pytest.mark.parametrize("remove", [remove_below, unlink_below])
@pytest.mark.parametrize("name", BAD_NAMES)
def test_only_a_plain_name_is_removed(root, remove, name):
    for names in [(name,), ("a", name)]:
        with pytest.raises(FileError, match="no plain name"):
            remove(root, *names)
    with pytest.raises(FileError, match="not below a root"):
        remove(root)
    assert (root / "a/file").read_text() == "data"


def test_removing(root, outside):
    (root / "a/link").symlink_to(outside)
    remove_below(root, "a", "gone")
    remove_below(root, "gone", "gone")
    remove_below(root.parent / "gone", "gone")
    remove_below(root, "a")
    assert list(root.iterdir()) == []
    assert (outside / "file").exists()


def test_unlinking(root, outside):
    (root / "a/link").symlink_to(outside)
    unlink_below(root, "a", "link")
    unlink_below(root, "a", "link")
    with pytest.raises(FileError, match="Is a directory"):
        unlink_below(root, "a")
    assert [path.name for path in (root / "a").iterdir()] == ["file"]


def test_directories_are_made_with_their_mode_and_others_keep_theirs(root):
    (root / "a").chmod(0o701)
    before = os.umask(0o077)
    try:
        make_directories(root, "a", "b", "c", mode=0o755)
        make_directories(root, "a", "b", "c", mode=0o700)
    finally:
        os.umask(before)
    modes = {name: stat.S_IMODE((root / name).stat().st_mode) for name in ("a", "a/b", "a/b/c")}
    assert modes == {"a": 0o701, "a/b": 0o755, "a/b/c": 0o755}


def test_a_file_in_the_way_of_a_directory(root):
    with pytest.raises(FileError, match="Not a directory"):
        make_directories(root, "a", "file", mode=0o755)


def test_a_new_file_has_its_mode_and_one_that_is_there_is_not_taken(root):
    make_file(root, "a", "new", mode=0o666)
    assert stat.S_IMODE((root / "a/new").stat().st_mode) == 0o666
    with pytest.raises(FileError, match="File exists"):
        make_file(root, "a", "file", mode=0o666)


def test_writing_in_place_keeps_the_file_and_its_mode(root):
    (root / "a/file").chmod(0o600)
    os.link(root / "a/file", root / "mounted")
    write_in_place(root, "a", "file", data=b"x", mode=0o644)
    assert (root / "mounted").read_text() == "x"
    assert stat.S_IMODE((root / "mounted").stat().st_mode) == 0o600
    write_in_place(root, "a", "new", data=b"y", mode=0o644)
    assert stat.S_IMODE((root / "a/new").stat().st_mode) == 0o644


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.mkdir(), lambda path: path.symlink_to("file")])
def test_only_a_regular_file_is_opened_and_nobody_waits(root, make):
    make(root / "a/odd")
    with pytest.raises(FileError):
        read_end(root, "a", "odd", limit=9)
    with pytest.raises(FileError):
        write_in_place(root, "a", "odd", data=b"x", mode=0o644)
    assert (root / "a/file").read_text() == "data"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: mknod")
def test_a_device_is_not_even_opened(root):
    """Opening is enough for some of them: a watchdog would begin to count. No driver has this number."""
    os.mknod(root / "a/device", 0o600 | stat.S_IFCHR, os.makedev(511, 9))
    with pytest.raises(FileError, match="it is not a regular file"):
        read_end(root, "a", "device", limit=9)
    with pytest.raises(FileError, match="it is not a regular file"):
        write_in_place(root, "a", "device", data=b"x", mode=0o644)


def test_reading_the_end(root):
    assert read_end(root, "a", "file", limit=2) == b"ta"
    assert read_end(root, "a", "file", limit=9) == b"data"
    with pytest.raises(FileMissing):
        read_end(root, "b", "file", limit=9)


def test_listing(root, outside):
    (root / "a/link").symlink_to(outside)
    (root / "a/b").mkdir()
    assert list_directory(root, "a") == [Entry("b", True), Entry("file", False), Entry("link", False)]
    assert list_directory(root, "gone") == []
    assert list_directory(root / "gone") == []


def test_a_directory_that_is_swapped_meanwhile_stays_the_one_that_was_opened(root, outside):
    with open_directory(root, "a") as directory:
        (root / "a").rename(root / "away")
        (root / "a").symlink_to(outside)
        assert os.stat("file", dir_fd=directory).st_size == len("data")


@pytest.mark.parametrize("path", ["", "a/b/c", "/a", "/a/b", "/a/../b/c", "/a/b\0/c/d", "//"])
def test_a_path_that_cannot_be_split(path):
    with pytest.raises(FileError, match="no plain absolute path"):
        split_end(path, 3)


def test_a_path_is_split_below_what_may_be_a_link(root, tmp_path):
    (tmp_path / "link").symlink_to(root)
    assert split_end(f"{tmp_path}/link/x/./y", 2) == (root, ("x", "y"))


def test_an_empty_directory_goes_and_no_other(tmp_path):
    (tmp_path / "a/empty").mkdir(parents=True)
    (tmp_path / "a/full/file").mkdir(parents=True)
    remove_empty_below(tmp_path, "a", "empty")
    remove_empty_below(tmp_path, "a", "missing")
    with pytest.raises(FileError, match="not empty"):
        remove_empty_below(tmp_path, "a", "full")
    with pytest.raises(FileError, match="not below a root"):
        remove_empty_below(tmp_path)
    assert [entry.name for entry in list_directory(tmp_path, "a")] == ["full"]


def test_nothing_is_on_the_way_but_the_mount_of_the_root():
    with open_directory(Path("/"), "proc", "sys"):
        pass
    with (
        pytest.raises(MountInTree, match="cannot open /proc: it is a mount point"),
        open_directory(Path("/"), "proc", "sys", one_mount=True),
    ):
        pass

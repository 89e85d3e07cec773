"""What a tree takes, as du counts it, however odd the tree is."""

import os
import subprocess
from pathlib import Path

import pytest

from klet.host import tree_usage
from klet.host.tree_usage import TreeWalk


def measure(path, *, most=1000, is_flat=False, between=lambda: None):
    root = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        walk = TreeWalk(root, is_flat=is_flat)
        while not walk.step(most):
            between()
        return walk.usage
    finally:
        os.close(root)


def open_descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def du(path):
    used, inodes = (
        subprocess.run(["du", "-sx", *flags, path], capture_output=True, text=True, check=True).stdout.split()[0]
        for flags in (["-B1"], ["--inodes"])
    )
    return int(used), int(inodes)


def make_plain(path):
    for number in range(5):
        (path / f"d{number}").mkdir()
        (path / f"d{number}" / "file").write_bytes(b"x" * 5000 * number)


def make_sparse(path):
    with (path / "holes").open("wb") as file:
        file.truncate(1 << 40)


def make_links(path):
    (path / "data").write_bytes(b"x" * 100_000)
    for number in range(5):
        (path / f"name{number}").hardlink_to(path / "data")
    (path / "outside").symlink_to("/etc")
    (path / "loop").symlink_to(".")


def make_odd(path):
    os.mkfifo(path / "pipe")
    os.mknod(bytes(path) + b"/caf\xe9", 0o600)
    (path / os.fsdecode(b"dir\xff")).mkdir()
    os.mknod(bytes(path) + b"/dir\xff/\xfe", 0o600)


def make_deep(path, levels=3000):
    here = os.open(path, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=here)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


def make_wide_and_deep(path):
    for number in range(30):
        (path / str(number) / "/".join("x" * 40)).mkdir(parents=True)
        (path / str(number) / "z").write_text("z")


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda _path: None, id="an empty directory counts itself"),
        pytest.param(make_plain, id="files and directories"),
        pytest.param(make_sparse, id="holes take nothing"),
        pytest.param(make_links, id="an inode with several names counts once and links are not followed"),
        pytest.param(make_odd, id="pipes are not opened and names need not be text"),
        pytest.param(make_deep, id="deeper than any path and than descriptors allow"),
        pytest.param(make_wide_and_deep, id="directories that were closed on the way are read to their end"),
    ],
)
@pytest.mark.parametrize("most", [pytest.param(1, id="entry by entry"), pytest.param(10**6, id="in one go")])
def test_a_tree_takes_what_du_says(tmp_path, make, most):
    make(tmp_path)
    usage = measure(tmp_path, most=most)
    assert (usage.used, usage.inodes) == du(tmp_path)
    assert usage.is_complete


def test_few_descriptors_are_open_however_deep_the_tree_is(tmp_path):
    make_deep(tmp_path)
    before, most = open_descriptors(), []
    measure(tmp_path, between=lambda: most.append(open_descriptors()))
    assert max(most) <= before + 2 * tree_usage.MOST_OPEN + 1
    assert open_descriptors() == before


def test_a_walk_that_is_given_up_leaves_no_descriptor(tmp_path):
    make_deep(tmp_path, 50)
    before = open_descriptors()
    root = os.open(tmp_path, os.O_RDONLY)
    walk = TreeWalk(root)
    walk.step(40)
    walk.close()
    os.close(root)
    assert open_descriptors() == before


def test_only_regular_files_directly_in_a_directory_count_in_a_flat_walk(tmp_path):
    (tmp_path / "0.log").write_bytes(b"x" * 4096)
    (tmp_path / "1.log").touch()
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "more").write_bytes(b"x" * 8192)
    usage = measure(tmp_path, is_flat=True)
    assert (usage.used, usage.inodes) == (4096, 2)


def test_what_goes_away_during_the_walk_is_not_missed(tmp_path):
    make_plain(tmp_path)
    make_deep(tmp_path, 60)
    gone = []

    def remove_one():
        if not gone:
            gone.append(subprocess.run(["rm", "-rf", *map(str, tmp_path.iterdir())], check=True))

    usage = measure(tmp_path, most=30, between=remove_one)
    assert gone
    assert usage.inodes >= 1


def test_a_directory_moved_away_ends_only_its_own_branch(tmp_path):
    (tmp_path / "a").mkdir()
    make_deep(tmp_path / "a", 60)
    (tmp_path / "elsewhere").mkdir()
    moved = []

    def move():
        deep = tmp_path / "a" / "/".join("d" * 20)
        if not moved and deep.exists():
            moved.append(deep.rename(tmp_path / "elsewhere" / "d"))

    usage = measure(tmp_path, most=30, between=move)
    assert moved
    assert usage.inodes > 2


def test_more_linked_inodes_than_are_remembered_count_their_shares(tmp_path, monkeypatch):
    monkeypatch.setattr(tree_usage, "MOST_LINKED", 2)
    for number in range(10):
        (tmp_path / f"file{number}").write_bytes(b"x" * 4096)
        (tmp_path / f"other{number}").hardlink_to(tmp_path / f"file{number}")
    usage = measure(tmp_path)
    assert (usage.used, usage.inodes) == du(tmp_path)


def test_a_tree_that_is_too_deep_is_counted_in_part(tmp_path, monkeypatch):
    monkeypatch.setattr(tree_usage, "MOST_LEVELS", 20)
    make_deep(tmp_path, 40)
    usage = measure(tmp_path)
    assert not usage.is_complete
    assert 20 <= usage.inodes < 80

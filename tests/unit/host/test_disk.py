import os

import pytest

from klet.aio.threads import Threads
from klet.host.disk import FilesystemCapacity, filesystem_usage, tree_usage
from klet.host.errors import FileMissing


def test_a_filesystem_adds_up(tmp_path):
    usage = filesystem_usage(tmp_path)
    assert 0 <= usage.available <= usage.capacity - usage.used
    assert usage.inodes_used == usage.inodes - usage.inodes_free
    assert usage.device == tmp_path.stat().st_dev


def test_a_tree_counts_blocks_and_inodes(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file").write_bytes(b"x" * 5000)
    (tmp_path / "link").symlink_to("/")
    usage = tree_usage(tmp_path)
    paths = (tmp_path, tmp_path / "sub", tmp_path / "sub" / "file", tmp_path / "link")
    assert usage.used == sum(path.lstat().st_blocks for path in paths) * 512
    assert usage.inodes == 4


def test_a_file_with_two_links_counts_once(tmp_path):
    (tmp_path / "one").write_bytes(b"x" * 5000)
    before = tree_usage(tmp_path)
    os.link(tmp_path / "one", tmp_path / "two")
    assert tree_usage(tmp_path) == before


def test_a_sparse_file_takes_what_it_takes(tmp_path):
    file = tmp_path / "sparse"
    with open(file, "wb") as stream:
        stream.truncate(1 << 30)
    assert tree_usage(file).used < 1 << 20


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(FileMissing, match="cannot measure"):
        tree_usage(tmp_path / "nothing")
    with pytest.raises(FileMissing, match="cannot read the filesystem of"):
        filesystem_usage(tmp_path / "nothing")


async def test_the_capacity_is_read_until_it_succeeds_once_and_then_kept(tmp_path):
    threads = Threads(limit=1)
    try:
        capacity = FilesystemCapacity(path=tmp_path / "root", threads=threads)
        assert await capacity.read() is None
        (tmp_path / "root").mkdir()
        found = await capacity.read()
        assert found == filesystem_usage(tmp_path).capacity
        (tmp_path / "root").rmdir()
        assert await capacity.read() == found
    finally:
        threads.close()

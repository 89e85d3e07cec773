import pytest

from klet.aio.threads import Threads
from klet.host.disk import FilesystemCapacity, filesystem_usage
from klet.host.errors import FileMissing


def test_a_filesystem_adds_up(tmp_path):
    usage = filesystem_usage(tmp_path)
    assert 0 <= usage.available <= usage.capacity - usage.used
    assert usage.inodes_used == usage.inodes - usage.inodes_free
    assert usage.device == tmp_path.stat().st_dev


def test_what_is_missing_is_named(tmp_path):
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

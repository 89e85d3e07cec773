"""Files that ended containers left, in a directory of the test."""

import os

import pytest

from klet.aio.threads import Threads
from klet.host.errors import FileError
from klet.logs.line import LogError
from klet.logs.termination_files import TerminationFileReader


@pytest.fixture
def files(tmp_path):
    threads = Threads(limit=1)
    yield TerminationFileReader(root=tmp_path / "root", threads=threads)
    threads.close()


async def test_only_the_end_of_a_file_is_read(files, tmp_path):
    path = tmp_path / "words"
    path.write_bytes(b"x" * 5000 + b"the end")
    assert await files.read_tail(str(path), limit=7) == b"the end"
    assert len(await files.read_tail(str(path), limit=4096)) == 4096


async def test_a_short_file_is_read_whole_and_a_missing_one_is_none(files, tmp_path):
    (tmp_path / "words").write_bytes(b"bye")
    assert await files.read_tail(str(tmp_path / "words"), limit=4096) == b"bye"
    assert await files.read_tail(str(tmp_path / "other"), limit=4096) is None


async def test_a_named_pipe_keeps_nobody_waiting(files, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match="not a regular file"):
        await files.read_tail(str(tmp_path / "pipe"), limit=4096)


@pytest.mark.parametrize("place", ["chosen", "root/pods/u-1/containers/main"])
@pytest.mark.parametrize("is_directory", [True, False])
async def test_links_are_not_followed(files, tmp_path, place, is_directory):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/words").write_text("secret")
    path = tmp_path / place / "words"
    if is_directory:
        path.parent.parent.mkdir(parents=True, exist_ok=True)
        path.parent.symlink_to(tmp_path / "secret")
    else:
        path.parent.mkdir(parents=True)
        path.symlink_to(tmp_path / "secret/words")
    with pytest.raises(FileError) as caught:
        await files.read_tail(str(path), limit=4096)
    assert "secret" not in str(caught.value)


async def test_the_agents_root_may_be_a_link(files, tmp_path):
    path = tmp_path / "disk/pods/u-1/containers/main/words"
    path.parent.mkdir(parents=True)
    path.write_text("bye")
    (tmp_path / "root").symlink_to(tmp_path / "disk")
    assert await files.read_tail(str(tmp_path / "root/pods/u-1/containers/main/words"), limit=4096) == b"bye"


@pytest.mark.parametrize("path", ["words", "/klet-no-such/../words", "/a\0b", "root"])
async def test_what_is_no_plain_path_is_refused(files, path):
    with pytest.raises(FileError):
        await files.read_tail(path, limit=4096)


async def test_the_end_of_a_log(files, tmp_path):
    path = tmp_path / "0.log"
    path.write_text("".join(f"2030-01-01T00:00:00Z stdout F {number}\n" for number in range(9)))
    assert await files.read_log_tail(str(path), lines=2, limit=100) == b"7\n8\n"
    with pytest.raises(LogError):
        await files.read_log_tail(str(tmp_path / "1.log"), lines=2, limit=100)

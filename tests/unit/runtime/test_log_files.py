"""Links to logs, and their removal, in a directory of the test."""

import pytest

from klet.aio.threads import Threads
from klet.host.errors import HostError
from klet.runtime.log_files import LogDirectory, LogFiles


@pytest.fixture
def threads():
    pool = Threads(limit=1)
    yield pool
    pool.close()


@pytest.fixture
def files(tmp_path, threads):
    return LogFiles(logs=tmp_path / "pods", links=tmp_path / "containers", threads=threads)


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "pods" / "ns_web_u-1" / "main" / "1.log"
    path.parent.mkdir(parents=True)
    path.write_text("hello")
    return path


async def test_a_log_is_linked(files, log, tmp_path):
    await files.link("web_ns_main-1.log", str(log))
    assert (tmp_path / "containers" / "web_ns_main-1.log").read_text() == "hello"


async def test_a_link_of_the_same_name_is_replaced(files, log, tmp_path):
    (tmp_path / "containers").mkdir()
    (tmp_path / "containers" / "x.log").symlink_to("/nowhere")
    await files.link("x.log", str(log))
    assert (tmp_path / "containers" / "x.log").read_text() == "hello"


async def test_a_log_that_does_not_exist_is_not_linked(files, log, tmp_path):
    await files.link("x.log", f"{log}.missing")
    assert not (tmp_path / "containers").exists()


async def test_a_link_that_cannot_be_made_is_only_logged(files, log, tmp_path, caplog):
    (tmp_path / "containers").write_text("a file")
    await files.link("x.log", str(log))
    assert "Log not linked" in caplog.text


async def test_links_that_lead_nowhere_are_found(files, log, tmp_path):
    links = tmp_path / "containers"
    links.mkdir()
    (links / "good.log").symlink_to(log)
    (links / "bad.log").symlink_to(tmp_path / "gone")
    (links / "bad.txt").symlink_to(tmp_path / "gone")
    (links / "file.log").write_text("")
    assert await files.dangling_links() == ("bad.log",)
    await files.unlink("bad.log")
    await files.unlink("bad.log")
    assert await files.dangling_links() == ()


async def test_a_log_goes_with_its_rotated_files(files, log):
    for name in ("1.log.20300101-120000", "1.log.20300101-120000.gz", "11.log", "2.log"):
        (log.parent / name).write_text("")
    await files.remove_log(str(log))
    assert sorted(path.name for path in log.parent.iterdir()) == ["11.log", "2.log"]
    await files.remove_log(str(log))


async def test_the_log_directories_of_pods(files, log, tmp_path):
    (tmp_path / "pods" / "lost+found").mkdir()
    [directory] = await files.directories()
    assert directory == LogDirectory("u-1", "ns_web_u-1")
    await files.remove_directory(directory)
    assert [path.name for path in (tmp_path / "pods").iterdir()] == ["lost+found"]


async def test_without_a_directory_there_is_nothing(files):
    assert await files.directories() == ()
    assert await files.dangling_links() == ()


async def test_a_directory_that_cannot_be_listed_is_told(files, tmp_path):
    (tmp_path / "pods").write_text("a file")
    with pytest.raises(HostError, match="cannot list"):
        await files.directories()

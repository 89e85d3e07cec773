"""Links to logs, and their removal, in a directory of the test."""

import os

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


async def test_links_of_others_hide_no_link_that_leads_nowhere(files, log, tmp_path):
    """Who may write to the directory can make links to names that no file can have."""
    links = tmp_path / "containers"
    links.mkdir()
    (links / "bad.log").symlink_to(tmp_path / "gone")
    (links / "long.log").symlink_to("a" * 300)
    (links / "longer.log").symlink_to("a/" * 2000)
    (links / "loop.log").symlink_to("loop.log")
    (links / "through.log").symlink_to(log / "below")
    assert await files.dangling_links() == ("bad.log", "long.log", "longer.log", "loop.log", "through.log")


def link_to_a_file(log, outside):
    log.symlink_to(outside)


def link_to_nothing(log, outside):
    log.symlink_to(outside.with_name("new"))


def pipe(log, outside):
    os.mkfifo(log)


def directory(log, outside):
    log.mkdir()
    (log / "link").symlink_to(outside)


@pytest.mark.parametrize("put", [link_to_a_file, link_to_nothing, pipe, directory])
async def test_the_runtime_finds_nothing_else_where_it_writes_a_log(files, log, tmp_path, put):
    """It would write through a link to any file of the host, and a pipe would hold up its start without end."""
    outside = tmp_path / "precious"
    outside.write_text("x")
    log.unlink()
    put(log, outside)
    await files.make_way(str(log))
    assert not any(log.parent.iterdir())
    assert outside.read_text() == "x"
    await files.make_way(str(log))


async def test_a_log_that_is_a_file_stays(files, log):
    await files.make_way(str(log))
    assert log.read_text() == "hello"


async def test_no_way_is_made_behind_a_link(files, log, tmp_path):
    log.unlink()
    log.symlink_to("x")
    log.parent.rename(tmp_path / "away")
    log.parent.symlink_to(tmp_path / "away")
    with pytest.raises(HostError, match="cannot open"):
        await files.make_way(str(log))
    assert (tmp_path / "away" / log.name).is_symlink()


async def test_a_log_goes_with_its_rotated_files(files, log):
    for name in ("1.log.20300101-120000", "1.log.20300101-120000.gz", "11.log", "2.log"):
        (log.parent / name).write_text("")
    await files.remove_log(str(log))
    assert sorted(path.name for path in log.parent.iterdir()) == ["11.log", "2.log"]
    await files.remove_log(str(log))


@pytest.mark.parametrize("depth", [0, 1])
async def test_a_log_behind_a_link_is_not_removed(files, log, tmp_path, caplog, depth):
    secret = tmp_path / "secret"
    (secret / "main").mkdir(parents=True)
    for path in (secret / "1.log", secret / "main/1.log"):
        path.write_text("secret")
    log.parents[depth].rename(tmp_path / "away")
    log.parents[depth].symlink_to(secret)
    await files.remove_log(str(log))
    assert (secret / "1.log").exists()
    assert (secret / "main/1.log").exists()
    assert "Log not removed" in caplog.text


async def test_only_the_link_itself_goes_where_a_log_is_one(files, log, tmp_path):
    (tmp_path / "secret").write_text("secret")
    log.unlink()
    log.symlink_to(tmp_path / "secret")
    await files.remove_log(str(log))
    assert not log.is_symlink()
    assert (tmp_path / "secret").exists()


async def test_a_directory_beside_a_log_does_not_keep_it(files, log):
    """Else it would keep the container too: who may write to the logs could make dead containers pile up."""
    (log.parent / "1.log.d").mkdir()
    await files.remove_log(str(log))
    assert [path.name for path in log.parent.iterdir()] == ["1.log.d"]


@pytest.mark.parametrize("path", ["main/1.log", "{}/no/../b/c/1.log"])
async def test_what_is_no_path_of_a_log_is_refused(files, tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(HostError, match="no plain absolute path"):
        await files.remove_log(path.format(tmp_path))


async def test_a_path_that_is_too_short_for_a_log_is_refused(files):
    with pytest.raises(HostError, match="no plain absolute path"):
        await files.remove_log("/klet-has-no-such-file.log")  # there is no short path below a temporary directory


@pytest.mark.parametrize("name", ["", ".", "..", "../pods", "../pods/ns_web_u-1/main/1.log"])
async def test_links_have_plain_names(files, log, tmp_path, caplog, name):
    """Part of a link's name is what labels in the runtime say."""
    (tmp_path / "containers").mkdir()
    with pytest.raises(HostError, match="no plain name"):
        await files.unlink(name)
    await files.link(name, str(log))
    assert "Log not linked" in caplog.text
    assert log.read_text() == "hello"
    assert not log.is_symlink()


async def test_names_that_are_no_pods_are_left_alone(files, log, tmp_path):
    names = ["x_y_..", "x_y_.", "x_y_", "_y_u-9", "x__u-9", "x_y_u-9_z", "..."]
    for name in names:
        (tmp_path / "pods" / name).mkdir()
    assert [directory.name for directory in await files.directories()] == ["ns_web_u-1"]


@pytest.mark.parametrize("name", ["", ".", "..", "../containers", "ns_web_u-1/main"])
async def test_only_a_directory_of_a_pod_is_removed(files, log, tmp_path, name):
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(HostError, match="no plain name"):
        await files.remove_directory(LogDirectory("u-1", name))
    assert sorted(tmp_path.rglob("*")) == before


async def test_the_log_directories_of_pods(files, log, tmp_path):
    (tmp_path / "pods" / "lost+found").mkdir()
    [directory] = await files.directories()
    assert directory == LogDirectory("u-1", "ns_web_u-1")
    await files.remove_directory(directory)
    assert [path.name for path in (tmp_path / "pods").iterdir()] == ["lost+found"]


async def test_without_a_directory_there_is_nothing(files):
    assert await files.directories() == ()
    assert await files.dangling_links() == ()


async def test_a_directory_that_cannot_be_listed_is_reported(files, tmp_path):
    (tmp_path / "pods").write_text("a file")
    with pytest.raises(HostError, match="cannot list"):
        await files.directories()

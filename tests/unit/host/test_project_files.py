"""/etc/projects and /etc/projid: what is read from them, what is changed in them, and what stays as it is."""

import fcntl
import os
from pathlib import Path

import pytest

from klet.host.errors import FileError
from klet.host.project_files import (
    LIMIT,
    ProjectFilePaths,
    ProjectFilesBusy,
    add_directory,
    drop_directory,
    format_lines,
    open_project_files,
    parse_table,
    read_project_files,
)

VOLUME = Path("/var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/v")
OTHER = Path("/srv/data")


@pytest.fixture
def paths(tmp_path):
    return ProjectFilePaths(tmp_path / "projects", tmp_path / "projid")


def written(table):
    return format_lines(table.directories), format_lines(table.names)


@pytest.mark.parametrize(
    ("directories", "taken", "found"),
    [
        pytest.param(b"", set(), None, id="an empty file"),
        pytest.param(b"1048577:/srv/data\n", {1048577}, 1048577, id="one directory"),
        pytest.param(b"1048577:/srv/data", {1048577}, 1048577, id="no newline at the end"),
        pytest.param(b"7:/srv/data\n8:/srv/data\n", {7, 8}, 7, id="listed twice, the first one counts"),
        pytest.param(b"#7:/srv/data\n", set(), None, id="a comment"),
        pytest.param(b" 7:/srv/data\n", set(), None, id="a space before the number"),
        pytest.param(b"7:/srv/data \n", {7}, None, id="a space is part of the path"),
        pytest.param(b"7:/srv/data\r\n", {7}, None, id="so is a carriage return"),
        pytest.param(b"7:\n:/srv/data\n7\n\n", set(), None, id="without a path, a number or a colon"),
        pytest.param(b"-7:/srv/data\n", set(), None, id="a negative number"),
        pytest.param("\u0667:/srv/data\n".encode(), set(), None, id="digits of another script"),
        pytest.param(b"4294967295:/srv/data\n", {2**32 - 1}, 2**32 - 1, id="the largest number"),
        pytest.param(b"4294967296:/srv/data\n", set(), None, id="a number that the kernel does not have"),
        pytest.param(b"9" * 500_000 + b":/srv/data\n", set(), None, id="half a million digits"),
        pytest.param(b"7:/srv/da\xff\xfeta\n", {7}, None, id="bytes that are no text"),
        pytest.param(b"\0" * 100, set(), None, id="zero bytes"),
    ],
)
def test_what_is_read_of_directories(directories, taken, found):
    table = parse_table(directories, b"")
    assert table.taken == taken
    assert table.project_of(OTHER) == found


@pytest.mark.parametrize(
    ("names", "taken"),
    [
        pytest.param(b"data:7\nvolume1048577:1048577\n", {7, 1048577}, id="two names"),
        pytest.param(b"#data:7\n:7\ndata:\ndata\ndata:x\ndata:7:8\n", set(), id="nothing that is understood"),
        pytest.param(b"data:99999999999\n", set(), id="a number that is too long"),
    ],
)
def test_what_is_read_of_names(names, taken):
    assert parse_table(b"", names).taken == taken


@pytest.mark.parametrize(
    ("before", "project", "after"),
    [
        pytest.param((b"", b""), 1048577, (b"1048577:%s\n", b"volume1048577:1048577\n"), id="empty files"),
        pytest.param(
            (b"# mine\n\n7:/srv/data\r\n\xff", b"data:7"),
            1048577,
            (b"# mine\n\n7:/srv/data\r\n\xff\n1048577:%s\n", b"data:7\nvolume1048577:1048577\n"),
            id="other lines stay, byte by byte",
        ),
        pytest.param(
            (b"", b"mine:1048577\n"), 1048577, (b"1048577:%s\n", b"mine:1048577\n"), id="the project has a name already"
        ),
    ],
)
def test_a_directory_is_added(before, project, after):
    directories, names = written(add_directory(parse_table(*before), VOLUME, project))
    assert directories == after[0] % os.fsencode(VOLUME)
    assert names == after[1]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param((b"1048577:%s\n", b"volume1048577:1048577\n"), (b"", b""), id="with its name"),
        pytest.param(
            (b"1048577:%s\n1048577:/srv/data\n", b"volume1048577:1048577\n"),
            (b"1048577:/srv/data\n", b"volume1048577:1048577\n"),
            id="not the name of a project that another directory has",
        ),
        pytest.param((b"1048577:%s\n", b"mine:1048577\n"), (b"", b"mine:1048577\n"), id="not a name of somebody else"),
        pytest.param(
            (b"7:%s\n8:%s\n", b"volume7:7\nvolume8:8\nvolume9:9\n"), (b"", b"volume9:9\n"), id="each of its lines"
        ),
        pytest.param(
            (b"7:/srv/data\n#7:%s\n", b"volume7:7\n"), (b"7:/srv/data\n#7:%s\n", b"volume7:7\n"), id="nothing of others"
        ),
    ],
)
def test_a_directory_is_dropped(before, after):
    path = os.fsencode(VOLUME)
    directories, names = written(drop_directory(parse_table(before[0].replace(b"%s", path), before[1]), VOLUME))
    assert directories == after[0].replace(b"%s", path)
    assert names == after[1]


def test_a_path_of_two_lines_is_not_listed():
    with pytest.raises(FileError, match="more than one line"):
        add_directory(parse_table(b"", b""), Path("/srv/a\n0:/etc"), 1048577)


def test_files_are_made_for_all_to_read(paths):
    with open_project_files(paths) as files:
        files.write(add_directory(files.table, VOLUME, 1048577))
    assert paths.projects.read_text() == f"1048577:{VOLUME}\n"
    assert paths.names.read_text() == "volume1048577:1048577\n"
    assert [path.stat().st_mode & 0o777 for path in (paths.projects, paths.names)] == [0o644, 0o644]
    assert read_project_files(paths).project_of(VOLUME) == 1048577


def test_the_mode_of_files_that_are_there_stays(paths):
    paths.projects.write_text("7:/srv/data\n")
    paths.projects.chmod(0o640)
    with open_project_files(paths) as files:
        files.write(add_directory(files.table, VOLUME, 1048577))
    assert paths.projects.stat().st_mode & 0o777 == 0o640


def test_what_has_not_changed_is_not_written(paths):
    for path in (paths.projects, paths.names):
        path.write_text("# mine\n")
    before = [path.stat().st_ino for path in (paths.projects, paths.names)]
    with open_project_files(paths) as files:
        files.write(drop_directory(files.table, VOLUME))
    assert [path.stat().st_ino for path in (paths.projects, paths.names)] == before


def test_reading_makes_no_files(paths):
    assert read_project_files(paths) == parse_table(b"", b"")
    assert not paths.projects.exists()


@pytest.mark.parametrize("which", ["projects", "names"])
def test_locked_files_are_not_waited_for(paths, which):
    path = getattr(paths, which)
    path.touch()
    with path.open() as held:
        # Everybody who may read it can do that.
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ProjectFilesBusy), open_project_files(paths):
            pass
    with open_project_files(paths) as files:
        assert files.table.taken == frozenset()


def test_a_second_user_is_held_off_until_the_first_is_done(paths):
    with open_project_files(paths), pytest.raises(ProjectFilesBusy), open_project_files(paths):
        pass


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        pytest.param(lambda path: path.symlink_to("/etc/passwd"), "links are not followed", id="a link"),
        pytest.param(os.mkfifo, "not a regular file", id="a named pipe"),
        pytest.param(Path.mkdir, "(?i)is a directory|not a regular file", id="a directory"),
        pytest.param(lambda path: path.write_bytes(b"\n" * (LIMIT + 1)), "longer than", id="a huge file"),
    ],
)
@pytest.mark.parametrize("which", ["projects", "names"])
def test_files_that_are_refused(paths, make, reason, which):
    make(getattr(paths, which))
    with pytest.raises(FileError, match=reason), open_project_files(paths):
        pass
    with pytest.raises(FileError, match=reason):
        read_project_files(paths)

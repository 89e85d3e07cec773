"""Paths below a directory that somebody else writes to."""

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from klet.host.contained import make_beneath, open_beneath, read_contained
from klet.host.errors import FileError, FileMissing
from klet.testing.races.swapper import swapping


@pytest.fixture
def volume(tmp_path):
    root = tmp_path / "volume"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "file").write_text("inside")
    (root / "etc").mkdir()
    (root / "etc" / "passwd").write_text("ours")
    (tmp_path / "secret").write_text("outside")
    (root / "within").symlink_to("a/b")
    (root / "absolute").symlink_to("/etc/passwd")
    (root / "up").symlink_to("../secret")
    (root / "loop").symlink_to("loop")
    (root / "whole").symlink_to(root / "a" / "b")
    (root / "over").symlink_to(root / ".." / "secret")
    (root / "beside").symlink_to(f"{root}-2")
    (root / "dangling").symlink_to("a/gone")
    return root


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param("a/b/file", b"inside", id="a plain path"),
        pytest.param("./a//b/file", b"inside", id="an odd path"),
        pytest.param("a/b/../b/file", b"inside", id="up and down again"),
        pytest.param("within/file", b"inside", id="a link within"),
        pytest.param("absolute", b"ours", id="an absolute link starts at the root"),
        pytest.param("../../../etc/passwd", b"ours", id="no way up from the root"),
        pytest.param("/etc/passwd", b"ours", id="an absolute path starts at the root"),
    ],
)
def test_read_contained(volume, path, expected):
    assert read_contained(volume, path, limit=100) == expected


def test_a_link_to_the_outside_leads_nowhere(volume):
    with pytest.raises(FileMissing):
        read_contained(volume, "up", limit=100)


@pytest.mark.parametrize(
    ("path", "limit", "rule"),
    [
        pytest.param("loop", 100, "too many links", id="a loop"),
        pytest.param("a", 100, "it is not a regular file", id="a directory"),
        pytest.param("a/b/file", 5, "it is longer than 5 bytes", id="too long"),
        pytest.param("a/b/file/c", 100, "Not a directory", id="below a file"),
    ],
)
def test_what_cannot_be_read(volume, path, limit, rule):
    with pytest.raises(FileError, match=rule):
        read_contained(volume, path, limit=limit)


def test_a_named_pipe_keeps_nobody_waiting(volume):
    os.mkfifo(volume / "pipe")
    with pytest.raises(FileError, match="not a regular file"):
        read_contained(volume, "pipe", limit=100)


LEASE = """
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
file = os.open(sys.argv[1], os.O_RDWR)
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print(flush=True)
sys.stdin.read()
"""


def test_a_file_under_a_lease_keeps_nobody_waiting(volume):
    """The kernel would hold back who opens it for up to 45 seconds."""
    (volume / "leased").write_text("x")
    argv = [sys.executable, "-c", LEASE, str(volume / "leased")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        with pytest.raises(FileError, match="temporarily unavailable"):
            read_contained(volume, "leased", limit=9)
        holder.stdin.close()


@pytest.mark.parametrize("path", ["absolute", "up", "../secret", "a/../../secret", "over", "beside"])
def test_leaving_the_root_is_an_error_where_it_must_not_be(volume, path):
    with pytest.raises(FileError, match="it leads out of"):
        open_beneath(volume, path)


@pytest.mark.parametrize("path", ["within", "whole", "a/../whole"])
def test_open_beneath_follows_links_within(volume, path):
    found = open_beneath(volume, path)
    try:
        assert os.path.samestat(os.fstat(found), (volume / "a" / "b").stat())
    finally:
        os.close(found)


def test_missing_directories_are_made_with_the_mode_asked_for(volume):
    before = os.umask(0o077)
    try:
        make_beneath(volume, "within/x/y", mode=0o2775)
    finally:
        os.umask(before)
    for path in ("a/b/x", "a/b/x/y"):
        assert stat.S_IMODE((volume / path).stat().st_mode) == 0o2775
    assert stat.S_IMODE((volume / "a" / "b").stat().st_mode) != 0o2775


def test_a_link_with_the_whole_path_is_followed_through_a_link_to_the_root(volume, tmp_path):
    (tmp_path / "alias").symlink_to(volume)
    os.close(open_beneath(tmp_path / "alias", "whole"))


@pytest.mark.parametrize("path", ["dangling", "dangling/x"])
def test_nothing_is_made_where_a_link_leads(volume, path):
    with pytest.raises(FileMissing):
        make_beneath(volume, path, mode=0o755)
    assert not (volume / "a" / "gone").exists()


def test_a_zero_byte_is_refused(volume):
    with pytest.raises(FileError, match="zero bytes"):
        open_beneath(volume, "a\0b")


@pytest.mark.parametrize("make", [False, True], ids=["opening", "making"])
def test_who_swaps_a_directory_for_a_link_shows_nobody_the_outside(volume, tmp_path, make):
    outside = tmp_path / "outside"
    outside.mkdir()
    (volume / "spare").symlink_to(outside)
    inside = volume / "a"

    with swapping(inside, volume / "spare"):
        for number in range(400):
            try:
                if make:
                    make_beneath(volume, f"a/made-{number}", mode=0o755)
                    continue
                found = open_beneath(volume, "a")
            except FileError:
                continue
            try:
                assert not os.path.samestat(os.fstat(found), outside.stat())
            finally:
                os.close(found)
    assert list(outside.iterdir()) == []


def test_two_who_make_the_same_directories_both_succeed(volume):
    def make():
        for number in range(200):
            make_beneath(volume, f"shared/{number}/x", mode=0o755)

    with ThreadPoolExecutor(2) as pool:
        for done in (pool.submit(make), pool.submit(make)):
            done.result()


def test_no_descriptor_is_left_open(volume):
    before = len(list(Path("/proc/self/fd").iterdir()))
    read_contained(volume, "within/file", limit=100)
    for path in ("up", "loop", "gone"):
        with pytest.raises(FileError):
            read_contained(volume, path, limit=100)
    make_beneath(volume, "p/q", mode=0o755)
    assert len(list(Path("/proc/self/fd").iterdir())) == before

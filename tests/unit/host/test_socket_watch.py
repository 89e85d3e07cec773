"""Which entries of the registry directory are sockets of plugins, and that none is missed."""

import asyncio
import os
import socket
from contextlib import aclosing, asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from klet.aio.threads import Threads
from klet.host import socket_watch
from klet.host.errors import FileError
from klet.host.files import read_text
from klet.host.socket_watch import (
    MOST_DIRECTORIES,
    EntryKind,
    EntryStep,
    PathRemoved,
    SocketSeen,
    SocketsListed,
    decide_entry,
    watch_sockets,
)


@pytest.mark.parametrize(
    ("name", "kind", "is_walked", "expected"),
    [
        pytest.param("a.sock", EntryKind.SOCKET, False, EntryStep.REPORT, id="a socket that comes"),
        pytest.param("a.sock", EntryKind.SOCKET, True, EntryStep.REPORT, id="a socket that is found"),
        pytest.param(".a.sock", EntryKind.SOCKET, False, EntryStep.IGNORE, id="a hidden socket that comes"),
        pytest.param(".a.sock", EntryKind.SOCKET, True, EntryStep.IGNORE, id="a hidden socket that is found"),
        pytest.param("d", EntryKind.DIRECTORY, False, EntryStep.WATCH, id="a directory that comes"),
        pytest.param("d", EntryKind.DIRECTORY, True, EntryStep.WATCH, id="a directory that is found"),
        pytest.param(".d", EntryKind.DIRECTORY, False, EntryStep.IGNORE, id="a hidden directory that comes"),
        pytest.param(".d", EntryKind.DIRECTORY, True, EntryStep.WATCH, id="a hidden directory that is found"),
        pytest.param("l", EntryKind.LINKED_DIRECTORY, False, EntryStep.WATCH, id="a link to a directory that comes"),
        pytest.param("l", EntryKind.LINKED_DIRECTORY, True, EntryStep.IGNORE, id="one that is found"),
        pytest.param("f", EntryKind.OTHER, False, EntryStep.IGNORE, id="a file that comes"),
        pytest.param("f", EntryKind.OTHER, True, EntryStep.IGNORE, id="a file that is found"),
    ],
)
def test_what_is_done_with_an_entry(name, kind, is_walked, expected):
    assert decide_entry(name, kind, is_walked=is_walked) is expected


@contextmanager
def bound(path):
    """A socket with a name."""
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.fspath(path))
        yield
    path.unlink(missing_ok=True)


class Seen:
    """Reads changes until one fits."""

    def __init__(self, changes):
        self._changes = changes

    async def next(self):
        async with asyncio.timeout(30):
            return await anext(self._changes)

    async def listed(self):
        change = await self.next()
        assert isinstance(change, SocketsListed)
        return set(change.sockets)


@asynccontextmanager
async def watching(root):
    threads = Threads(limit=1)
    try:
        async with aclosing(watch_sockets(root, threads=threads)) as changes:
            yield Seen(changes)
    finally:
        threads.close()


@pytest.fixture
def root(tmp_path):
    return tmp_path / "r"


async def test_the_directory_is_made(root):
    async with watching(root) as seen:
        assert await seen.listed() == set()
        assert root.is_dir()


async def test_sockets_that_were_there_before_are_found_however_deep(root):
    deep, hidden = root / "a" / "b", root / ".h"
    deep.mkdir(parents=True)
    hidden.mkdir()
    (root / "file.sock").touch()
    with bound(root / "x"), bound(deep / "y"), bound(hidden / "z"), bound(root / ".no"):
        async with watching(root) as seen:
            assert await seen.listed() == {str(root / "x"), str(deep / "y"), str(hidden / "z")}


async def test_a_socket_comes_and_goes(root):
    async with watching(root) as seen:
        await seen.listed()
        (root / "file").touch()
        with bound(root / ".hidden"), bound(root / "a"):
            change = await seen.next()
            assert isinstance(change, SocketSeen)
            assert change.path == str(root / "a")
        assert {(await seen.next()).path for _ in range(2)} == {str(root / "a"), str(root / ".hidden")}


async def test_sockets_of_a_new_directory_are_found_whenever_they_come(root, tmp_path):
    async with watching(root) as seen:
        await seen.listed()
        early = tmp_path / "early"
        early.mkdir()
        with bound(early / "a"):
            early.rename(root / "d")
            change = await seen.next()
            assert change.path == str(root / "d" / "a")
            with bound(root / "d" / "b"):
                assert (await seen.next()).path == str(root / "d" / "b")
        await seen.next()


async def test_a_link_to_a_socket_is_a_socket(root, tmp_path):
    async with watching(root) as seen:
        await seen.listed()
        with bound(tmp_path / "s"):
            (root / "l").symlink_to(tmp_path / "s")
            assert (await seen.next()).path == str(root / "l")


async def test_links_that_lead_nowhere_or_around_are_passed_over(root):
    root.mkdir()
    (root / "nowhere").symlink_to("missing")
    (root / "self").symlink_to("self")
    async with watching(root) as seen:
        assert await seen.listed() == set()
        (root / "around").symlink_to(".")
        (root / "lost").symlink_to("missing")
        with bound(root / "a"):
            assert (await seen.next()).path == str(root / "a")


async def test_a_socket_that_is_made_again_is_another_file(root):
    async with watching(root) as seen:
        await seen.listed()
        with bound(root / "a"):
            first = await seen.next()
            (root / "a").unlink()
            assert await seen.next() == PathRemoved(str(root / "a"))
            with bound(root / "a"):
                again = await seen.next()
        assert first.identity != again.identity


async def test_the_mode_of_a_socket_is_not_part_of_what_it_is(root):
    root.mkdir()
    with bound(root / "a"):
        before = socket_watch._look(root / "a").identity
        (root / "a").chmod(0o700)
        assert socket_watch._look(root / "a").identity == before


async def test_a_directory_that_goes_is_made_again(root):
    async with watching(root) as seen:
        await seen.listed()
        root.rmdir()
        assert await seen.listed() == set()
        with bound(root / "a"):
            assert (await seen.next()).path == str(root / "a")


async def test_a_name_that_cannot_be_shown_is_ignored(root, caplog):
    root.mkdir()
    with bound(root / "a\nb"), bound(root / os.fsdecode(b"\xff")):
        async with watching(root) as seen:
            assert await seen.listed() == set()
            with bound(root / "x\x1b[2J"), bound(root / "y"):
                assert (await seen.next()).path == str(root / "y")
    assert "unreadable name" in caplog.text
    assert "\x1b" not in caplog.text


async def test_too_many_directories_are_not_followed(root, caplog):
    for number in range(MOST_DIRECTORIES + 1):
        (root / str(number)).mkdir(parents=True)
    async with watching(root) as seen:
        assert await seen.listed() == set()
    assert "Too many directories" in caplog.text


async def test_a_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    async with watching(tmp_path / "file" / "r") as seen:
        with pytest.raises(FileError, match="cannot make"):
            await seen.next()


async def test_everything_is_listed_again_when_events_were_lost(root):
    """The kernel keeps only so many events; while nobody reads, more of them come."""
    most = int(read_text(Path("/proc/sys/fs/inotify/max_queued_events")))
    async with watching(root) as seen:
        await seen.listed()
        path = root / "f"
        for _ in range(most // 2 + 10):
            path.touch()
            path.unlink()
        with bound(root / "a"):
            while not isinstance(change := await seen.next(), SocketsListed):
                pass
            assert set(change.sockets) == {str(root / "a")}

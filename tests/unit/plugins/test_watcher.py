"""The board of sockets follows what the watch of the directory shows."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from klet.host.errors import FileError
from klet.host.socket_watch import FileIdentity, PathRemoved, SocketSeen, SocketsListed
from klet.plugins.boards import DesiredPlugins
from klet.plugins.watcher import FIRST_RETRY, MOST_SOCKETS, RegistryWatcher
from klet.testing.clock import ManualClock


def file(number):
    return FileIdentity((1, number, 0), (1, number, 0))


class Watch:
    """A watch of a directory that shows what the test says; an error ends it."""

    def __init__(self):
        self.changes = asyncio.Queue()
        self.begun = 0

    async def __call__(self):
        self.begun += 1
        while True:
            change = await self.changes.get()
            if isinstance(change, Exception):
                raise change
            yield change
            self.changes.task_done()

    async def show(self, *changes):
        for change in changes:
            self.changes.put_nowait(change)
        await self.changes.join()


@asynccontextmanager
async def following():
    watch, desired, clock = Watch(), DesiredPlugins(), ManualClock()
    watcher = RegistryWatcher(watch=watch, desired=desired, clock=clock)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(watcher.run())
        yield watch, desired, clock
        task.cancel()


async def test_sockets_come_and_go():
    async with following() as (watch, desired, _):
        await watch.show(SocketsListed({"/a": file(1)}), SocketSeen("/b", file(2)), PathRemoved("/a"))
        assert list(desired.all()) == ["/b"]


async def test_what_is_seen_twice_is_one_arrival():
    async with following() as (watch, desired, _):
        await watch.show(SocketSeen("/a", file(1)))
        identity = desired.all()["/a"].identity
        await watch.show(SocketSeen("/a", file(1)), SocketsListed({"/a": file(1)}))
        assert desired.all()["/a"].identity == identity


async def test_a_socket_that_was_made_again_is_another():
    async with following() as (watch, desired, _):
        await watch.show(SocketSeen("/a", file(1)))
        identity = desired.all()["/a"].identity
        await watch.show(SocketSeen("/a", file(2)))
        assert desired.all()["/a"].identity != identity


async def test_a_list_after_lost_events_takes_what_has_gone():
    async with following() as (watch, desired, _):
        await watch.show(SocketsListed({"/a": file(1), "/b": file(2)}))
        kept = desired.all()["/b"].identity
        await watch.show(SocketsListed({"/b": file(2), "/c": file(3)}))
        assert set(desired.all()) == {"/b", "/c"}
        assert desired.all()["/b"].identity == kept


async def test_there_is_a_limit(caplog):
    async with following() as (watch, desired, _):
        await watch.show(SocketsListed({f"/{number}": file(number) for number in range(MOST_SOCKETS + 5)}))
        assert len(desired.all()) == MOST_SOCKETS
        assert "Too many plugin sockets" in caplog.text
        await watch.show(PathRemoved("/0"), SocketSeen("/new", file(9999)))
        assert "/new" in desired.all()


async def test_a_directory_that_cannot_be_watched_is_tried_again(caplog, tmp_path):
    async with following() as (watch, desired, clock):
        watch.changes.put_nowait(FileError("cannot watch it: No space left on device", path=tmp_path))
        await clock.until_asleep()
        assert "Plugins are not watched" in caplog.text
        clock.advance(FIRST_RETRY)
        watch.changes.task_done()
        await watch.show(SocketSeen("/a", file(1)))
        assert watch.begun == 2
        assert list(desired.all()) == ["/a"]


@pytest.mark.parametrize("again", [1, 2])
async def test_a_removed_path_is_forgotten(again):
    async with following() as (watch, desired, _):
        await watch.show(SocketSeen("/a", file(1)), *(PathRemoved("/a"),) * again)
        assert desired.all() == {}

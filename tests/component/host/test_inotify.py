import asyncio
from contextlib import aclosing

import pytest

from klet.host.errors import FileError
from klet.host.inotify import ChangeKind, DirectoryChange, watch_directory

RESCAN = DirectoryChange(ChangeKind.RESCAN)


class Seen:
    """The changes of a directory, one by one, with a deadline."""

    def __init__(self, changes):
        self._changes = changes

    async def next(self):
        async with asyncio.timeout(10):
            return await anext(self._changes)

    async def take(self, count):
        return [await self.next() for _ in range(count)]


@pytest.fixture
async def watch():
    async with asyncio.timeout(30):
        streams = []

        def start(directory):
            streams.append(watch_directory(directory))
            return Seen(streams[-1])

        yield start
        for stream in streams:
            async with aclosing(stream):
                pass


async def test_the_first_change_is_a_rescan(watch, tmp_path):
    assert await watch(tmp_path).next() == RESCAN


async def test_a_written_file(watch, tmp_path):
    seen = watch(tmp_path)
    await seen.next()
    (tmp_path / "file").write_text("x")
    assert await seen.take(2) == [
        DirectoryChange(ChangeKind.CREATED, "file"),
        DirectoryChange(ChangeKind.WRITTEN, "file"),
    ]


async def test_moves_and_removals(watch, tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.touch()
    seen = watch(inside)
    await seen.next()
    outside.rename(inside / "a")
    (inside / "a").rename(inside / "b")
    (inside / "b").unlink()
    assert await seen.take(4) == [
        DirectoryChange(ChangeKind.MOVED_IN, "a"),
        DirectoryChange(ChangeKind.MOVED_OUT, "a"),
        DirectoryChange(ChangeKind.MOVED_IN, "b"),
        DirectoryChange(ChangeKind.DELETED, "b"),
    ]


async def test_a_directory_that_comes_later_with_its_parents(watch, tmp_path):
    seen = watch(tmp_path / "a" / "b" / "c")
    async with asyncio.TaskGroup() as group:
        first = group.create_task(seen.next())
        (tmp_path / "unrelated").touch()
        for part in ("a", "a/b", "a/b/c"):
            await asyncio.sleep(0)
            (tmp_path / part).mkdir()
    assert first.result() == RESCAN
    (tmp_path / "a/b/c/file").touch()
    assert await seen.next() == DirectoryChange(ChangeKind.CREATED, "file")


async def test_a_directory_that_is_removed_and_made_again(watch, tmp_path):
    directory = tmp_path / "directory"
    directory.mkdir()
    seen = watch(directory)
    await seen.next()
    directory.rmdir()
    assert await seen.next() == RESCAN
    directory.mkdir()
    assert await seen.next() == RESCAN
    (directory / "file").touch()
    assert await seen.next() == DirectoryChange(ChangeKind.CREATED, "file")


async def test_a_directory_that_is_replaced(watch, tmp_path):
    directory = tmp_path / "directory"
    directory.mkdir()
    seen = watch(directory)
    await seen.next()
    directory.rename(tmp_path / "old")
    directory.mkdir()
    assert await seen.take(2) == [RESCAN, RESCAN]
    (tmp_path / "old" / "ignored").touch()
    (directory / "file").touch()
    assert await seen.next() == DirectoryChange(ChangeKind.CREATED, "file")


async def test_a_file_in_the_place_of_the_directory(watch, tmp_path):
    place = tmp_path / "place"
    place.touch()
    seen = watch(place)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(seen.next())
        await asyncio.sleep(0)
        place.unlink()
        place.mkdir()
    assert first.result() == RESCAN


async def test_a_path_that_cannot_be_watched_names_it(watch, tmp_path):
    long = tmp_path / ("x" * 300)
    with pytest.raises(FileError, match=r"cannot watch .*xxx: File name too long"):
        await watch(long).next()

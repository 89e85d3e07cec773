"""The reader on real files, with real inotify and a clock that stands still."""

import asyncio
from contextlib import aclosing, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from klet.logs.line import LogError
from klet.logs.reader import read_logs
from klet.logs.render import LogOptions
from klet.testing.clock import ManualClock


def line(text: str, number: int = 0) -> bytes:
    return f"2023-11-14T22:13:20.{number:09}Z stdout F {text}\n".encode()


class Container:
    """Runs until it is stopped, and counts how often it was asked."""

    def __init__(self, *, running: bool = True) -> None:
        self.running = running
        self.asked = 0

    async def is_running(self) -> bool:
        self.asked += 1
        return self.running


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "0.log"
    path.write_bytes(line("one") + line("two") + line("three"))
    return path


def append(path, data: bytes) -> None:
    with path.open("ab") as writer:
        writer.write(data)


def descriptors() -> list[str]:
    """The log files of these tests and the watches that this process has open."""
    links = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            links.append(str(entry.readlink()))
    return [link for link in links if "inotify" in link or link.endswith(("/0.log", "/0.log.1", "/same.log"))]


def follow(path, clock, container, tail=0):
    return aclosing(read_logs(path, LogOptions(follow=True, tail=tail), is_running=container.is_running, clock=clock))


async def collect(path, clock, container=None, **options) -> bytes:
    container = container or Container(running=False)
    return b"".join(
        [piece async for piece in read_logs(path, LogOptions(**options), is_running=container.is_running, clock=clock)]
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({}, b"one\ntwo\nthree\n", id="the whole file"),
        pytest.param({"tail": 2}, b"two\nthree\n", id="the tail"),
        pytest.param({"tail": 0}, b"", id="tail zero"),
        pytest.param({"tail": 9}, b"one\ntwo\nthree\n", id="a tail longer than the file"),
        pytest.param({"limit": 5}, b"one\nt", id="a limit"),
        pytest.param({"follow": True}, b"one\ntwo\nthree\n", id="following a stopped container ends at once"),
        pytest.param({"follow": True, "tail": 1}, b"three\n", id="following with a tail"),
    ],
)
async def test_what_is_there_is_read(path, clock, options, expected):
    assert await collect(path, clock, **options) == expected
    assert descriptors() == []


async def test_a_file_of_many_chunks_comes_in_pieces(path, clock):
    lines = [line(f"{number:060}", number) for number in range(5000)]
    path.write_bytes(b"".join(lines))
    container = Container()
    pieces = [piece async for piece in read_logs(path, LogOptions(), is_running=container.is_running, clock=clock)]
    assert len(pieces) > 5
    assert b"".join(pieces) == b"".join(b"%060d\n" % number for number in range(5000))
    assert container.asked == 0
    assert await collect(path, clock, tail=4000) == b"".join(b"%060d\n" % number for number in range(1000, 5000))


async def test_a_long_read_gives_way_to_others(path, clock):
    path.write_bytes(line("x" * 100) * 5000)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await clock.sleep(timedelta(0))

    async with asyncio.TaskGroup() as group:
        task = group.create_task(other())
        await collect(path, clock, since=clock.now())
        task.cancel()
    assert turns > 5


async def test_following_sees_appended_lines_without_the_clock_moving(path, clock):
    container = Container()
    async with follow(path, clock, container, tail=1) as log:
        assert await anext(log) == b"three\n"
        append(path, line("four"))
        assert await anext(log) == b"four\n"
        append(path, line("five")[:20])
        append(path, line("five")[20:])
        assert await anext(log) == b"five\n"
    assert descriptors() == []


async def test_following_ends_when_the_container_stopped_and_all_was_read(path, clock):
    container = Container()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(collect(path, clock, container, follow=True))
        await clock.until_asleep()
        append(path, line("last"))
        container.running = False
        clock.advance(timedelta(seconds=1))
        await clock.until_asleep()
        clock.advance(timedelta(seconds=1))
        output = await task
    assert output == b"one\ntwo\nthree\nlast\n"
    assert descriptors() == []


async def test_without_events_the_file_is_looked_at_each_second(path, clock, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    hard_link = elsewhere / "same.log"
    hard_link.hardlink_to(path)
    container = Container()
    async with follow(path, clock, container) as log, asyncio.TaskGroup() as group:
        task = group.create_task(anext(log))
        await clock.until_asleep()
        # Writing through a name in another directory raises no event in the watched one.
        append(hard_link, line("unseen"))
        clock.advance(timedelta(seconds=1))
        assert await task == b"unseen\n"


async def test_a_rotation_loses_nothing(path, clock, tmp_path):
    container = Container()
    async with follow(path, clock, container) as log, asyncio.TaskGroup() as group:
        task = group.create_task(anext(log))
        await clock.until_asleep()
        path.rename(tmp_path / "0.log.1")
        append(tmp_path / "0.log.1", line("to the old file"))
        assert await task == b"to the old file\n"
        path.write_bytes(line("to the new file"))
        assert await anext(log) == b"to the new file\n"
        append(path, line("and on"))
        assert await anext(log) == b"and on\n"
    assert descriptors() == []


async def test_a_rotated_file_is_not_left_while_the_runtime_has_it_open(path, clock, tmp_path):
    """However busy the new file is, and without a question to the runtime: there is more to read in any case."""
    container = Container()
    async with follow(path, clock, container) as log, asyncio.TaskGroup() as group:
        task = group.create_task(anext(log))
        await clock.until_asleep()
        container.asked = 0
        with path.open("ab", buffering=0) as writer:
            path.rename(tmp_path / "0.log.1")
            path.write_bytes(line("new"))
            for number in range(50):
                await clock.run(timedelta(milliseconds=20))
                append(path, line(str(number)))
            container.running = False
            writer.write(line("late"))
            await clock.run(timedelta(seconds=5))
            assert await task == b"late\n"
            task = group.create_task(anext(log))
            await clock.run(timedelta(seconds=5))
            assert not task.done()
        await clock.run(timedelta(seconds=1))
        assert await task == b"new\n" + b"".join(b"%d\n" % number for number in range(50))
        assert container.asked <= 1


async def test_a_busy_log_does_not_ask_the_runtime_for_each_line(path, clock):
    container = Container()
    async with follow(path, clock, container, tail=1) as log:
        assert await anext(log) == b"three\n"
        for number in range(20):
            append(path, line(str(number)))
            assert await anext(log) == b"%d\n" % number
    assert container.asked <= 1


async def test_a_follower_stops_at_its_limit(path, clock):
    assert await collect(path, clock, Container(), follow=True, limit=6) == b"one\ntw"
    assert descriptors() == []


async def test_cancelling_closes_everything(path, clock):
    async with asyncio.TaskGroup() as group:
        task = group.create_task(collect(path, clock, Container(), follow=True))
        await clock.until_asleep()
        assert len(descriptors()) == 2
        task.cancel()
    assert descriptors() == []


async def test_an_incomplete_line_is_not_given_to_a_follower(path, clock):
    append(path, line("cut")[:-2])
    assert await collect(path, clock, follow=True) == b"one\ntwo\nthree\n"
    assert await collect(path, clock) == b"one\ntwo\nthree\ncu"


async def test_bad_lines_are_left_out_and_said_once(path, clock, caplog):
    append(path, b"nonsense\nmore\n" + line("four"))
    assert await collect(path, clock) == b"one\ntwo\nthree\nfour\n"
    assert [record.getMessage() for record in caplog.records] == ["Log lines left out"]


async def test_a_file_in_no_known_format_is_an_error(path, clock):
    path.write_bytes(b"plain text\n")
    with pytest.raises(LogError, match="failed to get parse function: unsupported log format"):
        await collect(path, clock)
    assert descriptors() == []


async def test_no_file_is_an_error(path, clock):
    path.unlink()
    with pytest.raises(LogError, match="failed to try resolving symlinks"):
        await collect(path, clock)


async def test_of_many_readers_one_works_in_each_round_of_the_loop(path, clock):
    """Their work is the loop's: forty readers of a log full of tiny lines would keep health checks waiting."""
    path.write_bytes(line("x" * 50) * 8000)
    container, turns, rounds, busy = Container(), asyncio.Lock(), 0, []

    async def count_rounds() -> None:
        nonlocal rounds
        while True:
            await asyncio.sleep(0)
            rounds += 1

    async def read() -> bytes:
        found = b""
        reading = read_logs(path, LogOptions(), is_running=container.is_running, clock=clock, turns=turns)
        async for piece in reading:
            busy.append(rounds)
            found += piece
        return found

    async with asyncio.TaskGroup() as group:
        counting = group.create_task(count_rounds())
        found = await asyncio.gather(*(read() for _ in range(5)))
        counting.cancel()
    assert set(found) == {(b"x" * 50 + b"\n") * 8000}
    assert len(busy) > 25
    assert len(set(busy)) == len(busy)

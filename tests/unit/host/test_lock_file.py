"""The lock that one agent hands on to the next."""

import asyncio
import os
import stat
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from klet.aio.clock import SystemClock
from klet.host.errors import HostError
from klet.host.lock_file import wait_for_lock, watch_lock
from klet.testing.clock import ManualClock


def cannot_lock(path, reason):
    return (
        f'failed to run Kubelet: unable to acquire file lock on "{path}": {reason}: give --lock-file the path of a '
        "file that klet may create or write"
    )


def make_link(path):
    path.symlink_to(path.parent / "elsewhere")


@pytest.mark.parametrize(
    ("name", "prepare", "reason"),
    [
        pytest.param("lock", lambda path: path.mkdir(), "is a directory", id="a directory"),
        pytest.param("lock", make_link, "it is a symbolic link", id="a link, which is not followed"),
        pytest.param("lock", os.mkfifo, "not a regular file", id="a pipe"),
        pytest.param("none/lock", lambda _: None, "no such file or directory", id="in a directory that is missing"),
        pytest.param("file/lock", lambda path: path.parent.write_text(""), "not a directory", id="below a file"),
        pytest.param("x" * 300, lambda _: None, "file name too long", id="with a name that no file can have"),
    ],
)
async def test_what_cannot_be_locked_is_named(tmp_path, name, prepare, reason):
    path = tmp_path / name
    prepare(path)
    with pytest.raises(HostError) as caught:
        async with wait_for_lock(path, clock=SystemClock()):
            pass
    assert str(caught.value) == cannot_lock(path, reason)
    assert not (tmp_path / "elsewhere").exists()


async def test_a_file_that_may_not_be_written_cannot_be_locked():
    # One that root may not write either.
    path = Path("/sys/kernel/uevent_seqnum")
    with pytest.raises(HostError, match=r"permission denied|read-only file system"):
        async with wait_for_lock(path, clock=SystemClock()):
            pass


async def test_a_lock_is_waited_for_as_long_as_another_has_it(tmp_path):
    clock, first = ManualClock(), AsyncExitStack()
    held = await first.enter_async_context(wait_for_lock(tmp_path / "lock", clock=clock))
    assert os.get_inheritable(held) is False
    assert stat.S_IMODE(os.fstat(held).st_mode) == 0o600

    async def take():
        async with wait_for_lock(tmp_path / "lock", clock=clock):
            pass

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        second = group.create_task(take())
        await clock.run(timedelta(minutes=1))
        assert not second.done()
        await first.aclose()
        await clock.run(timedelta(seconds=1))
        await second


@pytest.mark.parametrize(
    ("act", "is_wanted"),
    [
        pytest.param(lambda path: path.read_bytes(), True, id="opened"),
        pytest.param(lambda path: path.unlink(), True, id="deleted"),
        pytest.param(lambda path: (path.parent / "new").rename(path), True, id="replaced"),
        pytest.param(lambda path: path.chmod(0o644), False, id="another mode is no contention"),
        pytest.param(lambda path: path.stat(), False, id="nor is a look"),
    ],
)
async def test_who_wants_the_lock_is_noticed(tmp_path, act, is_wanted):
    path, wanted = tmp_path / "lock", asyncio.Event()
    (tmp_path / "new").touch()
    async with asyncio.timeout(30), wait_for_lock(path, clock=SystemClock()) as held:
        with watch_lock(held, when_wanted=wanted.set):
            act(path)
            # What has happened is read in the next round of the loop.
            for _ in range(10):
                await asyncio.sleep(0)
            assert wanted.is_set() is is_wanted

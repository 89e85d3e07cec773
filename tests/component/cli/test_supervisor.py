"""The supervisor with real child processes."""

import asyncio
import os
import signal
from datetime import timedelta

import pytest

from klet.aio.clock import SystemClock
from klet.cli.node.processes import (
    daemon_environment,
    is_alive,
    read_pid_file,
    send_signal,
    unnoted_daemons,
    wait_for_exit,
)
from klet.cli.node.services import NodeService, write_services
from klet.cli.node.supervisor import BUSY, Supervisor, sole_supervisor, supervise, trim_log

SECOND = timedelta(seconds=1)


class Bench:
    """A supervisor on a directory."""

    def __init__(self, directory):
        self.file = directory / "services.json"
        self.pids = directory / "pids"
        self.pids.mkdir()
        self.log = directory / "log"

    def supervisor(self):
        return Supervisor(services=self.file, pids=self.pids, clock=SystemClock())

    def service(self, name, *argv, revision=""):
        return NodeService(name=name, argv=argv, log=str(self.log / name), revision=revision)

    def sleeper(self, name, revision=""):
        return self.service(name, "sleep", "1000", revision=revision)

    def want(self, *services):
        write_services(self.file, services)

    def process(self, name):
        return read_pid_file(self.pids / name)

    async def until(self, condition):
        async with asyncio.timeout(10):
            while not (found := condition()):
                await SystemClock().sleep(timedelta(milliseconds=5))
        return found


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


async def test_it_runs_what_the_file_says_and_stops_it_at_the_end(bench):
    bench.want(bench.sleeper("a"), bench.sleeper("b"))
    supervisor = bench.supervisor()
    async with asyncio.TaskGroup() as group:
        group.create_task(supervisor.run())
        a = await bench.until(lambda: bench.process("a"))
        b = await bench.until(lambda: bench.process("b"))
        supervisor.end()
    assert not is_alive(a)
    assert not is_alive(b)
    assert bench.process("a") is None


async def test_a_daemon_that_dies_is_started_again(bench):
    bench.want(bench.sleeper("a"))
    supervisor = bench.supervisor()
    async with asyncio.TaskGroup() as group:
        group.create_task(supervisor.run())
        first = await bench.until(lambda: bench.process("a"))
        send_signal(first, signal.SIGKILL)
        second = await bench.until(lambda: bench.process("a") if bench.process("a") != first else None)
        assert second != first
        supervisor.end()


async def test_a_changed_file_changes_what_runs(bench):
    bench.want(bench.sleeper("a"), bench.sleeper("b"))
    supervisor = bench.supervisor()
    async with asyncio.TaskGroup() as group:
        group.create_task(supervisor.run())
        a = await bench.until(lambda: bench.process("a"))
        b = await bench.until(lambda: bench.process("b"))
        bench.want(bench.sleeper("a"), bench.sleeper("b", revision="2"), bench.sleeper("c"))
        supervisor.reload()
        await bench.until(lambda: bench.process("c"))
        assert bench.process("a") == a
        assert bench.process("b") != b
        bench.want(bench.sleeper("a"))
        supervisor.reload()
        await bench.until(lambda: bench.process("b") is None and bench.process("c") is None)
        assert is_alive(a)
        supervisor.end()


async def test_a_new_supervisor_adopts_what_a_killed_one_left(bench):
    bench.want(bench.sleeper("a"), bench.sleeper("b"))
    # Only a process that is killed leaves its children behind, so the first supervisor is one of its own.
    code = "import sys; from klet.cli.node.supervisor import main; sys.exit(main())"
    first = await asyncio.create_subprocess_exec(
        os.sys.executable, "-P", "-c", code, str(bench.file), str(bench.pids), stderr=asyncio.subprocess.DEVNULL
    )
    a = await bench.until(lambda: bench.process("a"))
    b = await bench.until(lambda: bench.process("b"))
    first.kill()
    await first.wait()
    bench.want(bench.sleeper("a"), bench.sleeper("b", revision="2"))
    second = bench.supervisor()
    async with asyncio.TaskGroup() as group:
        group.create_task(second.run())
        await bench.until(lambda: bench.process("b") not in {None, b})
        assert bench.process("a") == a
        second.end()
    assert not is_alive(a)
    assert not is_alive(b)


async def test_a_program_that_is_not_there_does_not_stop_the_others(bench, caplog):
    bench.want(bench.service("ghost", "/no/such/program"), bench.sleeper("a"))
    supervisor = bench.supervisor()
    async with asyncio.TaskGroup() as group:
        group.create_task(supervisor.run())
        await bench.until(lambda: bench.process("a"))
        supervisor.end()
    assert "Daemon not started" in caplog.text


async def test_a_bad_file_changes_nothing(bench, caplog):
    bench.want(bench.sleeper("a"))
    supervisor = bench.supervisor()
    async with asyncio.TaskGroup() as group:
        group.create_task(supervisor.run())
        a = await bench.until(lambda: bench.process("a"))
        bench.file.write_text("{")
        supervisor.reload()
        await bench.until(lambda: "Services file not read" in caplog.text)
        assert bench.process("a") == a
        supervisor.end()


async def test_output_goes_to_the_log(bench):
    bench.want(bench.service("a", "sh", "-c", "echo out; echo err >&2; sleep 1000"))
    supervisor = bench.supervisor()
    async with asyncio.TaskGroup() as group:
        group.create_task(supervisor.run())
        await bench.until(lambda: (bench.log / "a").exists() and "err" in (bench.log / "a").read_text())
        supervisor.end()
    assert (bench.log / "a").read_text() == "out\nerr\n"


async def test_the_program_itself_ends_on_sigterm_and_takes_its_daemons_along(bench):
    bench.want(bench.sleeper("a"))
    child = await asyncio.create_subprocess_exec(
        *(os.sys.executable, "-P", "-m", "klet.cli.node.supervisor", str(bench.file), str(bench.pids)),
        stderr=asyncio.subprocess.PIPE,
    )
    own = await bench.until(lambda: bench.process("supervisor"))
    a = await bench.until(lambda: bench.process("a"))
    assert own.pid == child.pid
    send_signal(own, signal.SIGHUP)
    send_signal(own, signal.SIGTERM)
    _, lines = await child.communicate()
    assert child.returncode == 0
    await wait_for_exit(a)
    assert b"INFO Daemon started daemon='a'" in lines
    assert list(bench.pids.iterdir()) == [bench.pids / "a.digest"]


def test_a_long_log_is_moved_aside(tmp_path):
    log = tmp_path / "a.log"
    trim_log(log, limit=3)
    log.write_text("123")
    trim_log(log, limit=3)
    assert log.read_text() == "123"
    log.write_text("1234")
    trim_log(log, limit=3)
    assert (log.read_text(), (tmp_path / "a.log.1").read_text()) == ("", "1234")


async def test_a_daemon_that_was_started_and_not_noted_is_stopped_before_the_next(bench):
    bench.want(bench.sleeper("a"))
    stray = await asyncio.create_subprocess_exec("sleep", "1000", env=daemon_environment(bench.pids / "a"))
    other = await asyncio.create_subprocess_exec("sleep", "1000", env=daemon_environment(bench.pids / "b"))
    try:
        supervisor = bench.supervisor()
        async with asyncio.TaskGroup() as group:
            group.create_task(supervisor.run())
            await bench.until(lambda: bench.process("a"))
            assert await stray.wait() == -signal.SIGTERM
            assert other.returncode is None
            supervisor.end()
    finally:
        other.kill()
        await other.wait()


async def test_a_disk_that_cannot_be_written_keeps_no_daemon_from_running(bench):
    bench.want(bench.sleeper("a"))
    (bench.pids / "a.digest").mkdir()
    supervisor = bench.supervisor()
    async with asyncio.TaskGroup() as group:
        group.create_task(supervisor.run())
        (started,) = await bench.until(lambda: unnoted_daemons(bench.pids / "a", ("sleep", "1000")))
        supervisor.end()
    assert not is_alive(started)


async def test_a_second_supervisor_leaves_the_field_to_the_first(bench):
    with sole_supervisor(bench.pids) as first, sole_supervisor(bench.pids) as second:
        assert (first, second) == (True, False)
        assert await supervise(bench.file, bench.pids) == BUSY

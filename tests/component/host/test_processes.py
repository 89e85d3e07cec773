import asyncio
import os
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
import uvloop

from klet.host.errors import ProcessFailed, ProcessTimeout
from klet.host.processes import run_process
from klet.testing.process_ends import dies

LONG = timedelta(seconds=20)
SHORT = timedelta(milliseconds=200)


async def test_output_and_code():
    done = await run_process(["sh", "-c", "echo out; echo err >&2; exit 3"], timeout=LONG)
    assert (done.returncode, done.stdout, done.stderr, done.truncated) == (3, b"out\n", b"err\n", False)


async def test_a_failure_shows_what_the_child_said():
    done = await run_process(["sh", "-c", "echo no such thing >&2; exit 3"], timeout=LONG)
    with pytest.raises(ProcessFailed, match="ended with code 3: no such thing") as caught:
        done.check()
    assert caught.value.returncode == 3


async def test_success_checks_out():
    done = await run_process(["true"], timeout=LONG)
    assert done.check() is done


async def test_a_command_that_is_not_there():
    with pytest.raises(ProcessFailed, match="cannot start /no/such/command: No such file"):
        await run_process(["/no/such/command"], timeout=LONG)


async def test_input_environment_and_directory(tmp_path):
    done = await run_process(
        ["sh", "-c", "cat; echo $NAME; pwd"], timeout=LONG, stdin=b"in\n", env={"NAME": "value"}, cwd=tmp_path
    )
    assert done.stdout.decode().split() == ["in", "value", str(tmp_path)]


async def test_input_that_nobody_reads_is_no_error():
    done = await run_process(["true"], timeout=LONG, stdin=b"x" * 1_000_000)
    assert done.returncode == 0


async def test_output_is_bounded_and_the_child_is_not_stuck():
    done = await run_process(["sh", "-c", "head -c 3000000 /dev/zero"], timeout=LONG, output_limit=1000)
    assert (len(done.stdout), done.truncated, done.returncode) == (1000, True, 0)


async def test_the_deadline_kills_descendants_too(tmp_path):
    script = f"sleep 600 & echo $! > {tmp_path}/pid; wait"
    with pytest.raises(ProcessTimeout, match="did not end within"):
        await run_process(["sh", "-c", script], timeout=SHORT)
    assert dies(int((tmp_path / "pid").read_text()))


async def test_a_descendant_that_outlives_the_child_is_killed_at_the_deadline(tmp_path):
    script = f"sleep 600 & echo $! > {tmp_path}/pid"
    with pytest.raises(ProcessTimeout):
        await run_process(["sh", "-c", script], timeout=SHORT)
    assert dies(int((tmp_path / "pid").read_text()))


async def test_a_cancelled_caller_leaves_no_child(tmp_path):
    pids = tmp_path / "pid"
    os.mkfifo(pids)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(run_process(["sh", "-c", f"echo $$ > {pids}; exec sleep 600"], timeout=LONG))
        pid = int(await asyncio.to_thread(pids.read_text))
        task.cancel()
    assert task.cancelled()
    assert dies(pid)


def marked(mark):
    """The processes with a mark in their environment, other than this one."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


@pytest.mark.parametrize("turns", range(12))
async def test_a_caller_that_is_cancelled_while_the_child_starts_leaves_no_descendant(turns):
    mark = f"klet-{uuid4()}"
    script = "sleep 600 & sleep 600 & wait"
    async with asyncio.TaskGroup() as group:
        task = group.create_task(run_process(["sh", "-c", script], timeout=LONG, env={**os.environ, "MARK": mark}))
        for _ in range(turns):
            await asyncio.sleep(0.001)  # time for the child: it may start descendants before the loop hears of it
        task.cancel()
    assert task.cancelled()
    assert all(map(dies, marked(mark.encode())))


@pytest.mark.parametrize("stdin", [pytest.param(b"", id="no input"), pytest.param(b"x" * (1 << 20), id="much input")])
def test_children_that_end_at_once_are_no_error_on_the_loop_of_the_agent(stdin):
    async def main():
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run_process(["true"], timeout=LONG, stdin=stdin)) for _ in range(20)]
        return [task.result().returncode for task in tasks]

    assert uvloop.run(main()) == [0] * 20

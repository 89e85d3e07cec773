"""A process that hangs outside of any test is ended with its stacks, and counts as failed."""

import io
from datetime import timedelta

import pytest

from klet.aio.clock import SystemClock
from klet.testing.runs.console import Console
from klet.testing.runs.part import Patience
from klet.testing.runs.plan import plan_whole
from klet.testing.runs.suite import SuiteRun

pytestmark = pytest.mark.deadline(300)
# Python and pytest have to be up before, on a busy machine too.
START = timedelta(seconds=15)
STACKS = timedelta(seconds=3)
HANGS_IN_COLLECTION = """
import asyncio

async def wait_in_task():
    await asyncio.Event().wait()

def pytest_collection_modifyitems():
    asyncio.run(wait_in_task())
"""
HANGS_IN_EXIT = """
import threading

def wait_in_thread():
    threading.Event().wait()

def pytest_sessionfinish():
    threading.Thread(target=wait_in_thread).start()
"""
HANGS_AT_THE_START = """
import time

def wait_for_nothing():
    time.sleep(1000)

wait_for_nothing()
"""


@pytest.mark.parametrize(
    ("conftest", "patience", "where", "stacks", "expected"),
    [
        pytest.param(
            HANGS_IN_COLLECTION,
            Patience(outside=START, stacks=STACKS),
            "its collection or start",
            ("in pytest_collection_modifyitems", "in wait_in_task", "--- asyncio task"),
            "passed 0, failed 1, skipped 0",
            id="in the collection",
        ),
        pytest.param(
            HANGS_IN_EXIT,
            Patience(exit=timedelta(seconds=1), stacks=STACKS),
            "its exit",
            ("in wait_in_thread", "Fatal Python error: Aborted"),
            "passed 1, failed 1, skipped 0",
            id="in the exit",
        ),
        pytest.param(
            HANGS_AT_THE_START,
            Patience(outside=START, stacks=STACKS),
            "its collection or start",
            ("in wait_for_nothing", "Fatal Python error: Aborted"),
            "passed 0, failed 1, skipped 0",
            id="at the start",
        ),
    ],
)
async def test_a_process_that_hangs(tmp_path, conftest, patience, where, stacks, expected):
    unit, work = tmp_path / "tests/unit", tmp_path / "work"
    unit.mkdir(parents=True)
    work.mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    (unit / "conftest.py").write_text(conftest)
    (unit / "test_it.py").write_text("def test_it(): pass\n")
    output, clock = io.StringIO(), SystemClock()
    console = Console(output=output, is_terminal=False, is_shared=False, width=80, clock=clock)
    stages = plan_whole(tmp_path / "tests")
    run = SuiteRun(stages=stages, directory=work, console=console, patience=patience, clock=clock)
    await run.run()
    assert run.finish(is_interrupted=False) == 1
    said = output.getvalue()
    assert f" in {where}: it is ended\n" in said
    for line in stacks:
        assert line in said
    assert "(the process of pytest ended: signal 6)" in said
    assert said.splitlines()[-1].startswith(expected)

"""Whatever hangs is ended at its deadline, with all stacks, and the other tests run."""

import pytest

from klet.testing.runs.records import Begun, Collected
from klet.testing.runs.watchdog import ENDED_CODE

pytestmark = pytest.mark.deadline(300)
HANGING = """
    import asyncio, os, threading, time, pytest, uvloop

    pytestmark = pytest.mark.deadline(0.5)
    healthy = pytest.mark.deadline(100)

    @healthy
    def test_before():
        pass

    def test_sync():
        wait_in_sync()

    def wait_in_sync():
        time.sleep(1000)

    def test_lock():
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()

    async def wait_in_task(event):
        await event.wait()

    async def numbers():
        await asyncio.Event().wait()
        yield 1

    async def wait_in_generator():
        async for _ in numbers():
            pass

    async def test_async():
        async with asyncio.TaskGroup() as group:
            group.create_task(wait_in_task(asyncio.Event()), name="first-task")
            group.create_task(wait_in_generator(), name="second-task")

    async def test_blocked_loop():
        time.sleep(1000)

    async def test_stubborn():
        while True:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                pass

    async def test_code_that_catches_every_exception():
        try:
            await asyncio.sleep(1000)
        except BaseException:
            pass

    def test_uvloop():
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(wait_in_generator())

    @pytest.fixture
    def slow():
        time.sleep(1000)

    def test_set_up(slow):
        pass

    @pytest.fixture
    async def late():
        yield
        await wait_in_generator()

    async def test_tear_down(late):
        pass

    @healthy
    def test_fork():
        if (pid := os.fork()) == 0:
            os._exit(0)
        os.waitpid(pid, 0)

    def test_after_a_fork():
        time.sleep(1000)

    @healthy
    def test_after():
        pass
"""


@pytest.fixture(scope="module")
def hanging(session_of):
    return session_of({"test_hanging.py": HANGING})


@pytest.mark.parametrize(
    ("test", "phase"),
    [
        pytest.param("test_sync", "call", id="a function"),
        pytest.param("test_lock", "call", id="a lock"),
        pytest.param("test_async", "call", id="a coroutine with tasks"),
        pytest.param("test_blocked_loop", "call", id="a coroutine that blocks its loop"),
        pytest.param("test_stubborn", "call", id="a coroutine that ignores cancellation"),
        pytest.param(
            "test_code_that_catches_every_exception", "call", id="a coroutine that takes every exception and ends well"
        ),
        pytest.param("test_uvloop", "call", id="another loop"),
        pytest.param("test_set_up", "set-up", id="a fixture"),
        pytest.param("test_tear_down", "tear-down", id="the end of a fixture"),
        pytest.param("test_after_a_fork", "call", id="a function after a fork"),
    ],
)
def test_what_hangs_fails(hanging, test, phase):
    assert hanging.outcomes[test] == "failed"
    message = (
        f"the {phase} of test_hanging.py::{test} took longer than its deadline of 0.5 s; the stacks are printed above"
    )
    assert message in hanging.lines


@pytest.mark.parametrize("test", ["test_before", "test_fork", "test_after"])
def test_the_others_run(hanging, test):
    assert hanging.outcomes[test] == "passed"


def test_the_stack_of_the_main_thread_is_shown(hanging):
    shown = hanging.stacks_of("test_hanging.py::test_sync")
    assert "--- thread MainThread" in shown
    assert "in test_sync\n" in shown
    assert "in wait_in_sync\n" in shown
    assert "/_pytest/" not in shown


def test_the_whole_stacks_of_the_tasks_are_shown(hanging):
    shown = hanging.stacks_of("test_hanging.py::test_async")
    _, _, first = shown.partition("--- asyncio task first-task\n")
    assert "in wait_in_task\n" in first
    assert "in Event.wait\n" in first
    _, _, second = shown.partition("--- asyncio task second-task\n")
    assert "in wait_in_generator\n" in second
    assert "in numbers\n" in second
    assert "in test_async\n" in shown


def test_the_session_lives_to_its_end(hanging):
    assert hanging.code == 1
    assert hanging.lines[-1].startswith("8 failed, 4 passed, ")


BLOCKED = """
    import asyncio, ctypes, threading

    async def wait_in_task():
        await asyncio.Event().wait()

    def test_blocked():
        threading.Thread(target=asyncio.run, args=(wait_in_task(),), name="other", daemon=True).start()
        lock_twice(ctypes.{library}(None), ctypes.create_string_buffer(64))

    def lock_twice(library, mutex):
        library.pthread_mutex_lock(mutex)
        library.pthread_mutex_lock(mutex)
"""
QUICKLY = "--override-ini=deadline_grace=0.3"


def test_a_test_that_is_blocked_in_c_ends_with_its_process(session_of):
    ran = session_of({"test_c.py": BLOCKED.format(library="CDLL")}, "--deadline=1", QUICKLY)
    assert ran.code == ENDED_CODE
    assert "+++ the call of test_c.py::test_blocked cannot be ended: the process ends" in ran.lines
    shown = ran.stacks_of("test_c.py::test_blocked")
    assert "in lock_twice\n" in shown
    assert "--- thread other\n" in shown
    assert "in wait_in_task\n" in shown


def test_c_code_that_keeps_the_interpreter_to_itself_ends_with_its_process(session_of):
    ran = session_of({"test_c.py": BLOCKED.format(library="PyDLL")}, "--deadline=1", QUICKLY)
    assert ran.code == 1
    assert ran.lines[0].startswith("Timeout (0:00:02.")
    assert "in lock_twice\n" in ran.output
    assert ran.events[-1] == Begun("test_c.py::test_blocked")


def test_a_module_that_hangs_when_imported_is_an_error(session_of):
    hangs = "import threading\nthreading.Event().wait()\n"
    ran = session_of({"test_hangs.py": hangs, "test_well.py": "def test_well(): pass\n"}, "--deadline=1")
    assert ran.outcomes == {"test_hangs.py": "failed"}
    message = "the collection of test_hangs.py took longer than its deadline of 1 s; the stacks are printed above"
    assert message in ran.lines
    assert "test_hangs.py" in ran.stacks_of("the collection of test_hangs.py")


def test_without_deadlines_nothing_is_ended(session_of):
    slow = """
        import pytest, time

        @pytest.mark.deadline(0.5)
        def test_slow():
            time.sleep(1.5)
    """
    assert session_of({"test_slow.py": slow}, "--deadline=0").outcomes == {"test_slow": "passed"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(
            ("-o", "deadlines=tests/unit"), "is not of the form <directory>: <seconds>", id="a directory alone"
        ),
        pytest.param(("-o", "deadlines=tests/unit: soon"), "is a number of seconds, not ' soon'", id="no number"),
        pytest.param(("--deadline=-1",), "is 0, for none, or more seconds, not '-1'", id="less than nothing"),
    ],
)
def test_a_deadline_that_cannot_be_read_is_refused(session_of, arguments, expected):
    ran = session_of({"test_well.py": "def test_well(): pass\n"}, *arguments)
    assert ran.code == pytest.ExitCode.USAGE_ERROR
    assert expected in ran.output


def test_each_directory_has_its_deadline(session_of):
    files = {"tests/unit/test_a.py": "def test_a(): pass\n", "tests/slow/deep/test_b.py": "def test_b(): pass\n"}
    ran = session_of(files, "-o", "deadlines=tests/unit: 60\ntests/slow: 700\ntests: 1000")
    assert [event for event in ran.events if isinstance(event, Collected)] == [Collected(2, 700)]

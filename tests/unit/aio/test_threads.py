"""Blocking work on bounded threads."""

import asyncio
import threading

import pytest

from klet.aio.threads import Threads


@pytest.fixture
def threads():
    threads = Threads(limit=2, name="test")
    yield threads
    threads.close()


async def test_a_function_runs_on_a_thread_of_the_pool_with_its_arguments(threads):
    def work(left: int, *, right: int) -> tuple[str, int]:
        return threading.current_thread().name, left + right

    name, total = await threads.run(work, 1, right=2)
    assert name.startswith("test")
    assert total == 3


async def test_an_error_reaches_the_caller(threads):
    def fail() -> None:
        raise ValueError("no luck")

    with pytest.raises(ValueError, match="no luck"):
        await threads.run(fail)


async def test_no_more_threads_than_the_limit_work_at_once(threads):
    gate = threading.Event()
    lock = threading.Lock()
    running: list[int] = [0, 0]

    def work() -> None:
        with lock:
            running[0] += 1
            running[1] = max(running[1], running[0])
        gate.wait(5)
        with lock:
            running[0] -= 1

    async with asyncio.TaskGroup() as group:
        for _ in range(6):
            group.create_task(threads.run(work))
        await asyncio.sleep(0)
        gate.set()
    assert running[0] == 0
    assert running[1] <= 2

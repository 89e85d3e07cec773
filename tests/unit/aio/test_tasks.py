"""Waiting for the first of several things."""

import asyncio
import logging
from datetime import timedelta

import pytest

from klet.aio.tasks import first_of, run_periodically
from klet.testing.clock import ManualClock

SECOND = timedelta(seconds=1)


async def test_the_first_to_end_ends_the_wait_and_cancels_the_others():
    clock = ManualClock()
    never = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(first_of(never.wait(), clock.sleep(timedelta(seconds=1))))
        await clock.run(timedelta(seconds=1))
        assert waiting.done()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_what_is_already_so_ends_the_wait_at_once():
    ready, never = asyncio.Event(), asyncio.Event()
    ready.set()
    await first_of(never.wait(), ready.wait())
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_whoever_waits_can_be_cancelled_and_leaves_nothing_behind():
    never = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(first_of(never.wait(), never.wait()))
        await asyncio.sleep(0)
        waiting.cancel()
    assert waiting.cancelled()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_failing_wait_is_not_swallowed():
    async def fail() -> None:
        raise ValueError("no luck")

    with pytest.raises(ExceptionGroup) as caught:
        await first_of(asyncio.Event().wait(), fail())
    assert caught.group_contains(ValueError, match="no luck")


async def run_for(work, duration: timedelta, clock: ManualClock) -> None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(run_periodically(work, every=SECOND, clock=clock, name="test"))
        await clock.run(duration)
        task.cancel()


async def test_the_first_pass_comes_at_once_and_the_next_after_the_pause():
    clock = ManualClock()
    passes: list[float] = []

    async def work() -> None:
        passes.append(clock.monotonic())

    await run_for(work, timedelta(seconds=2.5), clock)
    assert passes == [0, 1, 2]


async def test_the_pause_is_counted_from_the_end_of_a_pass():
    clock = ManualClock()
    passes: list[float] = []

    async def work() -> None:
        passes.append(clock.monotonic())
        await clock.sleep(3 * SECOND)

    await run_for(work, timedelta(seconds=9), clock)
    assert passes == [0, 4, 8]


async def test_a_failing_pass_is_logged_and_the_next_still_comes(caplog):
    clock = ManualClock()
    passes: list[float] = []

    async def work() -> None:
        passes.append(clock.monotonic())
        if len(passes) == 1:
            raise ValueError("no luck")

    with caplog.at_level(logging.ERROR):
        await run_for(work, timedelta(seconds=1), clock)
    assert passes == [0, 1]
    assert [(record.message, record.work, record.error) for record in caplog.records] == [
        ("Periodic work failed", "test", "ValueError('no luck')")
    ]

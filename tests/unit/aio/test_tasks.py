"""Waiting for the first of several things."""

import asyncio
from datetime import timedelta

import pytest

from klet.aio.tasks import first_of
from klet.testing.clock import ManualClock


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

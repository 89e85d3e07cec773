"""Calls for the same at the same time are one."""

import asyncio

import pytest

from klet.aio.single_flight import SingleFlight


class Work:
    """Work that ends when the test says so."""

    def __init__(self):
        self.begun = 0
        self.beginning = asyncio.Condition()
        self.end = asyncio.Event()

    async def __call__(self):
        async with self.beginning:
            self.begun += 1
            number = self.begun
            self.beginning.notify_all()
        await self.end.wait()
        return number

    async def until_begun(self, count):
        async with self.beginning:
            await self.beginning.wait_for(lambda: self.begun >= count)


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_calls_for_one_key_share_one_result():
    flights, work = SingleFlight(), Work()
    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(flights.run("a", work)) for _ in range(3)]
        await settle()
        work.end.set()
    assert [call.result() for call in calls] == [1, 1, 1]
    assert await flights.run("a", work) == 2  # nothing is kept


async def test_calls_for_other_keys_do_their_own_work():
    flights, work = SingleFlight(), Work()
    work.end.set()
    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(flights.run(key, work)) for key in "ab"]
    assert {call.result() for call in calls} == {1, 2}


async def test_a_failure_is_shared():
    flights, begun = SingleFlight(), []

    async def fail():
        begun.append(1)
        await settle()
        raise ValueError("no")

    async def call():
        with pytest.raises(ValueError, match="no"):
            await flights.run("a", fail)

    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(call())
    assert len(begun) == 1


async def test_one_that_waits_takes_over_from_a_caller_that_is_cancelled():
    flights, work = SingleFlight(), Work()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(flights.run("a", work))
        await work.until_begun(1)
        others = [group.create_task(flights.run("a", work)) for _ in range(2)]
        await settle()
        first.cancel()
        await work.until_begun(2)
        work.end.set()
    assert [other.result() for other in others] == [2, 2]


async def test_who_waits_is_cancelled_alone():
    flights, work = SingleFlight(), Work()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(flights.run("a", work))
        await work.until_begun(1)
        waiting = group.create_task(flights.run("a", work))
        await settle()
        waiting.cancel()
        await settle()
        work.end.set()
    assert waiting.cancelled()
    assert first.result() == 1

import asyncio
from datetime import timedelta

import pytest

from klet.probes.steps import Steps
from klet.testing.clock import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def woken():
    return []


@pytest.fixture
def sleep(clock, woken):
    steps = Steps(clock=clock)

    async def until(at, name):
        await steps.sleep_until(at)
        woken.append((name, clock.monotonic()))

    return until


async def test_one_sleeps_for_all_that_wait_for_the_same_instant(clock, woken, sleep):
    async with asyncio.TaskGroup() as group:
        for name in ("a", "b", "c"):
            group.create_task(sleep(2.0, name))
        group.create_task(sleep(1.0, "d"))
        await clock.until_asleep(2)
        assert clock.sleepers() == 2
        await clock.run(timedelta(seconds=2))
    assert (woken[0], sorted(woken[1:])) == (("d", 1.0), [("a", 2.0), ("b", 2.0), ("c", 2.0)])


async def test_all_wake_when_the_one_that_sleeps_is_called_away(clock, woken, sleep):
    async with asyncio.TaskGroup() as group:
        first = group.create_task(sleep(2.0, "a"))
        await clock.until_asleep()
        group.create_task(sleep(2.0, "b"))
        group.create_task(sleep(2.0, "c"))
        await clock.run(timedelta(seconds=1))
        first.cancel()
    assert woken == [("b", 1.0), ("c", 1.0)]


async def test_one_that_waits_may_be_called_away(clock, woken, sleep):
    async with asyncio.TaskGroup() as group:
        group.create_task(sleep(2.0, "a"))
        await clock.until_asleep()
        second = group.create_task(sleep(2.0, "b"))
        group.create_task(sleep(2.0, "c"))
        await clock.run(timedelta(seconds=1))
        second.cancel()
        await clock.run(timedelta(seconds=1))
    assert sorted(woken) == [("a", 2.0), ("c", 2.0)]

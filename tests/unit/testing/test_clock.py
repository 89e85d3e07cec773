import asyncio
from datetime import timedelta

from klet.testing.clock import START, ManualClock

SECOND = timedelta(seconds=1)


async def test_time_stands_still_until_moved():
    clock = ManualClock()
    assert clock.now() == START
    clock.advance(3 * SECOND)
    assert clock.now() == START + 3 * SECOND
    assert clock.monotonic() == 3.0


async def test_time_never_goes_back():
    clock = ManualClock()
    clock.advance_to(START - SECOND)
    assert clock.now() == START


async def test_a_jump_wakes_sleepers_in_the_order_of_their_due_times():
    clock = ManualClock()
    woken = []

    async def sleeper(name, duration):
        await clock.sleep(duration)
        woken.append((name, clock.monotonic()))

    async with asyncio.TaskGroup() as group:
        group.create_task(sleeper("late", 2 * SECOND))
        group.create_task(sleeper("early", SECOND))
        group.create_task(sleeper("also early", SECOND))
        await clock.until_asleep(3)
        clock.advance(2 * SECOND)
    assert woken == [("early", 2.0), ("also early", 2.0), ("late", 2.0)]


async def test_run_gives_each_sleeper_its_own_instant_and_lets_it_sleep_again():
    clock = ManualClock()
    ticks = []

    async def ticker():
        while len(ticks) < 3:
            await clock.sleep(SECOND)
            ticks.append(clock.monotonic())

    async with asyncio.TaskGroup() as group:
        group.create_task(ticker())
        await clock.run(3 * SECOND)
    assert ticks == [1.0, 2.0, 3.0]
    assert clock.monotonic() == 3.0


async def test_a_cancelled_sleeper_is_forgotten():
    clock = ManualClock()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(clock.sleep(SECOND))
        await clock.until_asleep()
        assert clock.next_wake() == START + SECOND
        task.cancel()
    assert clock.sleepers() == 0
    assert clock.next_wake() is None


async def test_sleeping_until_the_past_returns_at_once():
    clock = ManualClock()
    await clock.sleep_until(START - SECOND)
    await clock.sleep(timedelta())
    assert clock.now() == START


async def test_until_asleep_returns_at_once_when_enough_sleep():
    clock = ManualClock()
    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(clock.sleep(SECOND))
        await clock.until_asleep(2)
        await clock.until_asleep(1)
        clock.advance(SECOND)
    assert clock.sleepers() == 0

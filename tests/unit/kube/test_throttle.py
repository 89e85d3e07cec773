"""The token bucket of the client."""

import asyncio
from datetime import timedelta

import pytest

from klet.kube.throttle import TokenBucket, Unlimited, throttle_for
from klet.testing.clock import ManualClock


async def test_a_burst_passes_at_once_and_the_rest_at_the_rate():
    clock = ManualClock()
    bucket = TokenBucket(rate=2, burst=3, clock=clock)
    passed: list[int] = []

    async def ask(number: int) -> None:
        await bucket.wait()
        passed.append(number)

    async with asyncio.TaskGroup() as group:
        for number in range(6):
            group.create_task(ask(number))
        await clock.until_asleep()
        assert passed == [0, 1, 2]
        await clock.run(timedelta(milliseconds=500))
        assert passed == [0, 1, 2, 3]
        await clock.run(timedelta(seconds=1))
        assert passed == [0, 1, 2, 3, 4, 5]


async def test_tokens_come_back_up_to_the_burst():
    clock = ManualClock()
    bucket = TokenBucket(rate=1, burst=2, clock=clock)
    await bucket.wait()
    await bucket.wait()
    await clock.run(timedelta(hours=1))
    await bucket.wait()
    await bucket.wait()
    async with asyncio.TaskGroup() as group:
        third = group.create_task(bucket.wait())
        await clock.until_asleep()
        assert not third.done()
        await clock.run(timedelta(seconds=1))


@pytest.mark.parametrize(("qps", "cls"), [(0, Unlimited), (50, TokenBucket)])
def test_no_rate_is_no_limit(qps, cls):
    assert isinstance(throttle_for(qps, 100, ManualClock()), cls)


async def test_who_gives_up_waiting_costs_nothing():
    clock = ManualClock()
    bucket = TokenBucket(rate=50, burst=100, clock=clock)
    passed = []

    async def ask() -> None:
        await bucket.wait()
        passed.append(clock.monotonic())

    async with asyncio.TaskGroup() as group:
        flood = [group.create_task(bucket.wait()) for _ in range(2_000)]
        await clock.until_asleep()
        behind = group.create_task(ask())
        await clock.run(timedelta(0))
        for each in flood:
            each.cancel()
        await asyncio.wait(flood)
        after = group.create_task(ask())
        await clock.run(timedelta(seconds=1))
        assert behind.done()
        assert after.done()
    assert passed == [pytest.approx(0.02), pytest.approx(0.04)]


async def test_those_behind_one_who_gives_up_move_up_and_never_faster_than_the_rate():
    clock = ManualClock()
    bucket = TokenBucket(rate=1, burst=1, clock=clock)
    passed: dict[int, float] = {}

    async def ask(number: int) -> None:
        await bucket.wait()
        passed[number] = clock.monotonic()

    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(ask(number)) for number in range(4)]
        await clock.run(timedelta(milliseconds=500))
        asking[1].cancel()
        await clock.run(timedelta(seconds=5))
    assert passed == {0: 0.0, 2: pytest.approx(1.0), 3: pytest.approx(2.0)}

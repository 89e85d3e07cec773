import asyncio
from datetime import timedelta

import pytest

from klet.aio.clock import LoopClock
from klet.testing.loop import EPOCH, StuckError, VirtualLoop, run_virtual

DAY = timedelta(days=1)


def test_a_long_sleep_takes_no_time():
    async def main():
        clock = LoopClock(epoch=EPOCH)
        await clock.sleep(400 * DAY)
        return clock.now()

    assert run_virtual(main()) == EPOCH + 400 * DAY


def test_timers_fire_in_the_order_of_time_then_creation():
    async def main():
        seen = []
        loop = asyncio.get_running_loop()
        for number in range(20):
            loop.call_later(1.0, seen.append, number)
        loop.call_later(0.5, seen.append, "first")
        await asyncio.sleep(2)
        return seen

    assert run_virtual(main()) == ["first", *range(20)]


def test_a_seed_draws_the_order_of_simultaneous_timers_and_repeats_it():
    async def main():
        seen = []
        for number in range(20):
            asyncio.get_running_loop().call_later(1.0, seen.append, number)
        await asyncio.sleep(2)
        return seen

    assert run_virtual(main(), seed=1) == run_virtual(main(), seed=1)
    assert run_virtual(main(), seed=1) != run_virtual(main(), seed=2)


def test_a_deadlock_names_the_tasks_and_where_they_wait():
    async def wait_for_ever():
        await asyncio.Event().wait()

    async def main():
        async with asyncio.TaskGroup() as group:
            group.create_task(wait_for_ever(), name="the sleeper")

    with pytest.raises(StuckError, match=r"no timer is set.*\n.*\n  the sleeper waits at .*in .*wait_for_ever"):
        run_virtual(main())


def test_standing_still_is_reported(monkeypatch):
    monkeypatch.setattr("klet.testing.loop._MAX_PASSES_AT_ONE_INSTANT", 1000)

    async def main():
        loop = asyncio.get_running_loop()

        def again():
            loop.call_soon(again)

        again()
        await asyncio.Event().wait()

    with pytest.raises(StuckError, match="time stands still"):
        run_virtual(main())


def test_cancelling_a_group_follows_the_order_of_creation():
    async def child(name, seen):
        try:
            await asyncio.sleep(1000)
        finally:
            seen.append(name)

    async def main():
        seen = []
        try:
            async with asyncio.TaskGroup() as group:
                for name in range(50):
                    group.create_task(child(name, seen))
                await asyncio.sleep(1)
                raise ValueError
        except* ValueError:
            pass
        return seen

    first = run_virtual(main())
    keep = [object() for _ in range(1000)]  # move the addresses of what follows
    assert run_virtual(main()) == first
    assert keep


def test_default_task_names_start_over_with_each_loop():
    async def main():
        return asyncio.current_task().get_name()

    assert run_virtual(main()) == run_virtual(main())


def test_blocking_calls_run_on_the_loop():
    async def main():
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 / 0)
        return await asyncio.to_thread(lambda: 42)

    assert run_virtual(main()) == 42


def test_a_closed_loop_takes_no_timers():
    loop = VirtualLoop()
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_later(1, print)


def test_an_error_of_the_coroutine_comes_out():
    async def main():
        raise KeyError("x")

    with pytest.raises(KeyError):
        run_virtual(main())


def test_timeouts_use_virtual_time():
    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600):
                await asyncio.Event().wait()
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == pytest.approx(3600)

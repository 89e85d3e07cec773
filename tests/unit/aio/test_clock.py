"""The clocks: the machine's, and the loop's."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from klet.aio.clock import LoopClock, SystemClock
from klet.testing.loop import EPOCH, run_virtual


def test_the_loop_clock_follows_virtual_time():
    async def main() -> list[tuple[datetime, float]]:
        clock = LoopClock(epoch=EPOCH)
        seen = [(clock.now(), clock.monotonic())]
        await clock.sleep(timedelta(hours=1))
        seen.append((clock.now(), clock.monotonic()))
        await clock.sleep_until(EPOCH + timedelta(hours=3))
        seen.append((clock.now(), clock.monotonic()))
        await clock.sleep_until(EPOCH)
        await clock.sleep(timedelta(seconds=-5))
        seen.append((clock.now(), clock.monotonic()))
        return seen

    hours = [0, 1, 3, 3]
    assert run_virtual(main()) == [(EPOCH + timedelta(hours=hour), hour * 3600.0) for hour in hours]


async def test_the_system_clock_is_aware_and_goes_forward():
    clock = SystemClock()
    began, wall = clock.monotonic(), clock.now()
    await clock.sleep(timedelta(0))
    await clock.sleep_until(wall - timedelta(hours=1))
    assert wall.tzinfo is UTC
    assert clock.now() >= wall
    assert 0 <= clock.monotonic() - began < 5


@pytest.mark.parametrize(
    ("takes", "at_most", "waited", "finished"),
    [
        pytest.param(2, 5, 2, True, id="it comes in time"),
        pytest.param(9, 5, 5, False, id="it does not, and is cancelled"),
        pytest.param(9, 0, 0, False, id="there is no time at all"),
        pytest.param(9, -3, 0, False, id="the time is over already"),
    ],
)
def test_waiting_for_something_but_not_for_ever(takes, at_most, waited, finished):
    async def main() -> tuple[float, list[str]]:
        clock, done = LoopClock(epoch=EPOCH), []

        async def work() -> None:
            try:
                await clock.sleep(timedelta(seconds=takes))
                done.append("finished")
            except asyncio.CancelledError:
                done.append("cancelled")
                raise

        await clock.wait(work(), at_most=timedelta(seconds=at_most))
        return clock.monotonic(), done

    assert run_virtual(main()) == (waited, ["finished" if finished else "cancelled"])


def test_what_is_waited_for_may_itself_be_out_of_time():
    async def work() -> None:
        raise TimeoutError("mine")

    async def main() -> None:
        await LoopClock(epoch=EPOCH).wait(work(), at_most=timedelta(seconds=5))

    with pytest.raises(TimeoutError, match="mine"):
        run_virtual(main())


@pytest.mark.parametrize(
    ("cancelled_at", "ended"),
    [
        pytest.param(3, "cancelled", id="before the time is over"),
        pytest.param(6, "cancelled", id="while what is waited for takes its leave"),
        pytest.param(20, "went on", id="long after"),
    ],
)
def test_who_waits_may_be_cancelled_by_somebody_else(cancelled_at, ended):
    async def main() -> list[str]:
        clock, seen = LoopClock(epoch=EPOCH), []

        async def leave_slowly() -> None:
            try:
                await clock.sleep(timedelta(seconds=100))
            finally:
                await clock.sleep(timedelta(seconds=4))

        async def wait() -> None:
            try:
                await clock.wait(leave_slowly(), at_most=timedelta(seconds=5))
                seen.append("went on")
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise

        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(wait())
            await clock.sleep(timedelta(seconds=cancelled_at))
            waiting.cancel()
        return seen

    assert run_virtual(main()) == [ended]


def test_a_wait_that_ran_out_leaves_no_cancellation_behind():
    async def main() -> int:
        clock = LoopClock(epoch=EPOCH)
        await clock.wait(clock.sleep(timedelta(hours=1)), at_most=timedelta(seconds=1))
        await clock.sleep(timedelta(seconds=1))
        task = asyncio.current_task()
        return -1 if task is None else task.cancelling()

    assert run_virtual(main()) == 0

"""The clocks: the machine's, and the loop's."""

from datetime import UTC, datetime, timedelta

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

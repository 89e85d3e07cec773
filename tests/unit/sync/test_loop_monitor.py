"""Whether the sync loop is stuck."""

import asyncio
from datetime import timedelta

import pytest

from klet.aio.clock import LoopClock
from klet.sync.loop_monitor import SyncLoopMonitor, describe_loop
from klet.testing.loop import EPOCH, run_virtual

STUCK = "sync Loop took longer than expected"


@pytest.mark.parametrize(
    ("resync", "ago", "expected"),
    [
        pytest.param(60, None, None, id="it has not begun"),
        pytest.param(60, 300, None, id="five minutes are not too long"),
        pytest.param(60, 301, STUCK, id="more are"),
        pytest.param(600, 1200, None, id="a slow pace is given two rounds"),
        pytest.param(600, 1201, STUCK, id="and no more"),
    ],
)
def test_describe_loop(resync, ago, expected):
    entered_at = None if ago is None else EPOCH - timedelta(seconds=ago)
    assert describe_loop(entered_at, now=EPOCH, resync=timedelta(seconds=resync)) == expected


def test_a_loop_is_healthy_only_while_the_runtime_is_well():
    async def main() -> list[str | None]:
        clock, well = LoopClock(epoch=EPOCH), asyncio.Event()
        monitor = SyncLoopMonitor(until_runtime_well=well.wait, clock=clock, resync=timedelta(minutes=1))
        seen = []
        async with asyncio.TaskGroup() as group:
            task = group.create_task(monitor.run())
            for is_well in (False, True, False, True):
                well.set() if is_well else well.clear()
                await clock.sleep(timedelta(minutes=6))
                seen.append(monitor.health_error())
            task.cancel()
        return seen

    assert run_virtual(main()) == [None, None, STUCK, None]

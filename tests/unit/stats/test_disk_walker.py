"""When what is measured, in virtual time."""

import asyncio
from datetime import timedelta
from itertools import pairwise

from klet.aio.clock import LoopClock
from klet.host.disk_usage import DiskTarget, DiskTargetKind, DiskUsage, NotMeasured
from klet.metrics import MetricRegistry
from klet.simulation.node import running
from klet.stats.disk_metrics import register_volume_durations
from klet.stats.disk_walker import DEMAND, QUICK_ENTRIES, DiskWalker
from klet.testing.loop import EPOCH, run_virtual

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)


def tree(name):
    return DiskTarget(DiskTargetKind.TREE, f"/{name}", 1)


A, B, LARGE = tree("a"), tree("b"), tree("large")


class Meter:
    """Trees of so many entries; 100 of them take a second beyond the first."""

    def __init__(self, clock):
        self.clock = clock
        self.entries = {A: 3, B: 5, LARGE: 10 * QUICK_ENTRIES}
        self.walks = []

    async def measure(self, targets, *, most=None):
        found = {}
        for target in targets:
            entries = self.entries.get(target)
            if entries is None:
                found[target] = NotMeasured(reason="gone", is_missing=True)
            elif most is not None and entries > most:
                found[target] = NotMeasured(reason="large", is_large=True)
            else:
                self.walks.append((target, self.clock.monotonic()))
                await self.clock.sleep(SECOND * (entries // 1000))
                found[target] = DiskUsage(used=entries, inodes=entries, entries=entries)
        return found

    def times(self, target):
        return [round(at) for each, at in self.walks if each == target]


def run(story):
    async def wrapped():
        clock = LoopClock(epoch=EPOCH)
        meter = Meter(clock)
        walker = DiskWalker(meter=meter, durations=register_volume_durations(MetricRegistry()), clock=clock)
        async with running([walker]):
            await story(walker, meter, clock)

    run_virtual(wrapped())


def test_nothing_is_measured_that_nobody_asks_for():
    async def story(walker, meter, clock):
        await clock.sleep(10 * MINUTE)
        assert meter.walks == []

    run(story)


def test_a_first_request_waits_for_its_numbers():
    async def story(walker, meter, clock):
        walker.ask({A: MINUTE, B: MINUTE})
        assert walker.get(A) is None
        await walker.until_tried((A, B), at_most=2 * SECOND)
        assert walker.get(A).usage.used == 3
        assert walker.get(B).usage.used == 5
        assert clock.monotonic() < 1

    run(story)


def test_each_is_measured_again_after_its_period_while_it_is_asked_for():
    async def story(walker, meter, clock):
        walker.ask({A: MINUTE, B: 15 * SECOND})
        await clock.sleep(DEMAND + 10 * MINUTE)
        assert meter.times(A) == [0, 60, 120, 180, 240, 300]
        assert all(later - earlier >= 15 for earlier, later in pairwise(meter.times(B)))
        assert meter.times(B)[-1] <= DEMAND.total_seconds()

    run(story)


def test_a_large_tree_is_measured_apart_and_rarely():
    async def story(walker, meter, clock):
        walker.ask({LARGE: MINUTE, A: MINUTE})
        await walker.until_tried((LARGE, A), at_most=2 * SECOND)
        assert clock.monotonic() < 1
        assert walker.get(A) is not None
        for _ in range(40):
            walker.ask({LARGE: MINUTE, A: MINUTE})
            await clock.sleep(15 * SECOND)
        assert walker.get(LARGE).usage.used == 10 * QUICK_ENTRIES
        first, second = meter.times(LARGE)[:2]
        assert second - first >= 10 * 20
        assert len(meter.times(A)) >= 8

    run(story)


def test_what_is_gone_has_no_number_any_more():
    async def story(walker, meter, clock):
        walker.ask({A: MINUTE})
        await walker.until_tried((A,), at_most=SECOND)
        del meter.entries[A]
        walker.expire()
        await walker.until_tried((A,), at_most=SECOND)
        assert walker.get(A) is None

    run(story)


def test_old_numbers_are_not_shown_after_a_long_time_without_a_request():
    async def story(walker, meter, clock):
        walker.ask({A: MINUTE})
        await walker.until_tried((A,), at_most=SECOND)
        await clock.sleep(2 * DEMAND)
        walker.ask({A: MINUTE})
        assert walker.get(A) is None
        await walker.until_tried((A,), at_most=SECOND)
        assert walker.get(A).at == clock.now() or clock.now() - walker.get(A).at < SECOND

    run(story)


def test_a_meter_that_hangs_holds_up_no_request():
    async def story(walker, meter, clock):
        async def hang(targets, *, most=None):
            await asyncio.Event().wait()

        meter.measure = hang
        walker.ask({A: MINUTE})
        await walker.until_tried((A,), at_most=2 * SECOND)
        assert walker.get(A) is None
        assert round(clock.monotonic()) == 2

    run(story)

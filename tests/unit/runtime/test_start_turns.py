"""Who may start, and when, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from klet.aio.clock import LoopClock
from klet.model.pods import PodUID
from klet.model.stopping_pods import PodStopping, StoppingPods
from klet.runtime.start_turns import LONGEST_STEP, StartTurns
from klet.testing.loop import EPOCH, run_virtual

HOLD = LONGEST_STEP.total_seconds()


class Bench:
    """One turn, and pods that note when they got it."""

    def __init__(self) -> None:
        self.clock = LoopClock(epoch=EPOCH)
        self.stopping_pods = StoppingPods()
        self.turns = StartTurns(at_once=1, stopping_pods=self.stopping_pods, clock=self.clock)
        self.got: list[tuple[str, float]] = []

    async def sleep(self, seconds: float) -> None:
        await self.clock.sleep(timedelta(seconds=seconds))

    async def pod(self, name: str, *steps: float) -> None:
        """Take a turn for each step, which takes that long."""
        with self.turns.queue(PodUID(name)) as turn:
            for step in steps:
                await turn.take()
                self.got.append((name, self.clock.monotonic()))
                await self.sleep(step)


def on_bench(test: Callable[[Bench, asyncio.TaskGroup], Awaitable[None]]) -> Bench:
    async def main() -> Bench:
        bench = Bench()
        async with asyncio.TaskGroup() as group:
            await test(bench, group)
        return bench

    return run_virtual(main())


def test_a_pod_keeps_its_turn_for_all_its_steps_unless_one_of_them_hangs():
    async def test(bench: Bench, group: asyncio.TaskGroup) -> None:
        group.create_task(bench.pod("a", HOLD - 1, HOLD - 1))
        group.create_task(bench.pod("hung", 1000))
        group.create_task(bench.pod("b", 1))

    begin = 2 * (HOLD - 1)
    assert on_bench(test).got == [("a", 0), ("a", HOLD - 1), ("hung", begin), ("b", begin + HOLD)]


def test_a_pod_that_is_to_stop_waits_no_longer():
    async def test(bench: Bench, group: asyncio.TaskGroup) -> None:
        group.create_task(bench.pod("a", 3))

        async def stopped() -> None:
            with pytest.raises(PodStopping):
                await bench.pod("stopped", 1)
            assert bench.clock.monotonic() == 1

        group.create_task(stopped())
        group.create_task(bench.pod("b", 1))
        await bench.sleep(1)
        bench.stopping_pods.mark(PodUID("stopped"))

    assert on_bench(test).got == [("a", 0), ("b", 3)]

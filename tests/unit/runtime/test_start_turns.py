"""Who may start, and when, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from klet.aio.clock import LoopClock
from klet.model.halts import Halted, PodHalts
from klet.model.pods import PodUID
from klet.runtime.start_turns import LONGEST_STEP, StartTurns, Turn
from klet.testing.loop import EPOCH, run_virtual

HOLD = LONGEST_STEP.total_seconds()
UID = PodUID("uid-1")


class Bench:
    """Turns, and pods that note when they got theirs."""

    def __init__(self, *, at_once: int) -> None:
        self.clock = LoopClock(epoch=EPOCH)
        self.halts = PodHalts()
        self.turns = StartTurns(at_once=at_once, halts=self.halts, clock=self.clock)
        self.got: list[tuple[str, float]] = []

    async def sleep(self, seconds: float) -> None:
        await self.clock.sleep(timedelta(seconds=seconds))

    async def take(self, name: str, turn: Turn) -> None:
        await turn.take()
        self.got.append((name, self.clock.monotonic()))

    async def pod(self, name: str, *steps: float, uid: PodUID = UID) -> None:
        """Take a turn for each step, which takes that long."""
        with self.turns.queue(uid) as turn:
            for step in steps:
                await self.take(name, turn)
                await self.sleep(step)

    async def pulling_pod(self, name: str, pull: float) -> None:
        """A sandbox of a second, a pull, and a container of a second."""
        with self.turns.queue(UID) as turn:
            await self.take(name, turn)
            await self.sleep(1)
            turn.give_back()
            await self.sleep(pull)
            await self.take(name, turn)
            await self.sleep(1)


def on_bench(test: Callable[[Bench, asyncio.TaskGroup], Awaitable[None]], *, at_once: int = 1) -> Bench:
    async def main() -> Bench:
        bench = Bench(at_once=at_once)
        async with asyncio.TaskGroup() as group:
            await test(bench, group)
        return bench

    return run_virtual(main())


def test_first_come_first_served():
    async def test(bench: Bench, group: asyncio.TaskGroup) -> None:
        for name in "abcd":
            group.create_task(bench.pod(name, 1))

    assert on_bench(test, at_once=2).got == [("a", 0), ("b", 0), ("c", 1), ("d", 1)]


def test_a_pod_keeps_its_turn_from_step_to_step():
    async def test(bench: Bench, group: asyncio.TaskGroup) -> None:
        group.create_task(bench.pod("a", 4, 4, 4))
        group.create_task(bench.pod("b", 1))

    assert on_bench(test).got == [("a", 0), ("a", 4), ("a", 8), ("b", 12)]


def test_a_turn_that_was_given_back_comes_again_before_those_of_later_pods():
    async def test(bench: Bench, group: asyncio.TaskGroup) -> None:
        group.create_task(bench.pulling_pod("a", 1.5))
        for name in "bcd":
            group.create_task(bench.pod(name, 1))

    assert on_bench(test).got == [("a", 0), ("b", 1), ("c", 2), ("a", 3), ("d", 4)]


def test_a_step_that_hangs_loses_its_turn():
    async def test(bench: Bench, group: asyncio.TaskGroup) -> None:
        for name in ("hung-1", "hung-2", "hung-3"):
            group.create_task(bench.pod(name, 1000))
        group.create_task(bench.pod("a", 1))
        group.create_task(bench.pod("b", 1))

    got = on_bench(test, at_once=2).got
    assert got == [("hung-1", 0), ("hung-2", 0), ("hung-3", HOLD), ("a", HOLD), ("b", HOLD + 1)]


def test_a_pod_that_lost_its_turn_waits_for_another_before_its_next_step():
    async def test(bench: Bench, group: asyncio.TaskGroup) -> None:
        group.create_task(bench.pod("slow", HOLD + 1, 1))
        group.create_task(bench.pod("a", 3))
        group.create_task(bench.pod("b", 1))

    assert on_bench(test).got == [("slow", 0), ("a", HOLD), ("slow", HOLD + 3), ("b", HOLD + 4)]


def test_a_pod_that_lost_its_turn_gives_back_no_other():
    async def test(bench: Bench, group: asyncio.TaskGroup) -> None:
        group.create_task(bench.pod("slow", HOLD + 1))
        group.create_task(bench.pod("a", 3))
        group.create_task(bench.pod("b", 1))

    assert on_bench(test).got == [("slow", 0), ("a", HOLD), ("b", HOLD + 3)]


def test_a_pod_that_is_to_stop_waits_no_longer():
    async def test(bench: Bench, group: asyncio.TaskGroup) -> None:
        group.create_task(bench.pod("a", 3))

        async def stopped() -> None:
            with pytest.raises(Halted):
                await bench.pod("stopped", 1, uid=PodUID("other"))
            assert bench.clock.monotonic() == 1

        group.create_task(stopped())
        group.create_task(bench.pod("b", 1))
        await bench.sleep(1)
        bench.halts.halt(PodUID("other"))

    assert on_bench(test).got == [("a", 0), ("b", 3)]


def test_a_pod_whose_worker_is_cancelled_leaves_the_queue():
    async def test(bench: Bench, group: asyncio.TaskGroup) -> None:
        group.create_task(bench.pod("a", 3))
        gone = group.create_task(bench.pod("gone", 1))
        group.create_task(bench.pod("b", 1))
        await bench.sleep(1)
        gone.cancel()

    assert on_bench(test).got == [("a", 0), ("b", 3)]

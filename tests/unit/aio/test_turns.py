"""Turns, in virtual time: who gets one, and when."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from klet.aio.clock import LoopClock
from klet.aio.turns import Turn, Turns
from klet.testing.loop import EPOCH, run_virtual

HOLD = 5


class Bench:
    """Turns, and some that note when they got theirs."""

    def __init__(self, *, at_once: int) -> None:
        self.clock = LoopClock(epoch=EPOCH)
        self.turns = Turns(at_once=at_once, longest=timedelta(seconds=HOLD), clock=self.clock)
        self.got: list[tuple[str, float]] = []

    async def sleep(self, seconds: float) -> None:
        await self.clock.sleep(timedelta(seconds=seconds))

    async def take(self, name: str, turn: Turn) -> None:
        await turn.take()
        self.got.append((name, self.clock.monotonic()))

    async def work(self, name: str, *steps: float) -> None:
        """Take a turn for each step, which takes that long."""
        with self.turns.queue() as turn:
            for step in steps:
                await self.take(name, turn)
                await self.sleep(step)

    async def pausing_work(self, name: str, pause: float) -> None:
        """Two steps of a second, and a pause without a turn in between."""
        with self.turns.queue() as turn:
            await self.take(name, turn)
            await self.sleep(1)
            turn.give_back()
            await self.sleep(pause)
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
            group.create_task(bench.work(name, 1))

    assert on_bench(test, at_once=2).got == [("a", 0), ("b", 0), ("c", 1), ("d", 1)]


def test_a_turn_is_kept_from_step_to_step():
    async def test(bench: Bench, group: asyncio.TaskGroup) -> None:
        group.create_task(bench.work("a", 4, 4, 4))
        group.create_task(bench.work("b", 1))

    assert on_bench(test).got == [("a", 0), ("a", 4), ("a", 8), ("b", 12)]


def test_a_turn_that_was_given_back_comes_again_before_those_of_later_comers():
    async def test(bench: Bench, group: asyncio.TaskGroup) -> None:
        group.create_task(bench.pausing_work("a", 1.5))
        for name in "bcd":
            group.create_task(bench.work(name, 1))

    assert on_bench(test).got == [("a", 0), ("b", 1), ("c", 2), ("a", 3), ("d", 4)]


def test_a_step_that_hangs_loses_its_turn():
    async def test(bench: Bench, group: asyncio.TaskGroup) -> None:
        for name in ("hung-1", "hung-2", "hung-3"):
            group.create_task(bench.work(name, 1000))
        group.create_task(bench.work("a", 1))
        group.create_task(bench.work("b", 1))

    got = on_bench(test, at_once=2).got
    assert got == [("hung-1", 0), ("hung-2", 0), ("hung-3", HOLD), ("a", HOLD), ("b", HOLD + 1)]


def test_who_lost_a_turn_waits_for_another_before_the_next_step():
    async def test(bench: Bench, group: asyncio.TaskGroup) -> None:
        group.create_task(bench.work("slow", HOLD + 1, 1))
        group.create_task(bench.work("a", 3))
        group.create_task(bench.work("b", 1))

    assert on_bench(test).got == [("slow", 0), ("a", HOLD), ("slow", HOLD + 3), ("b", HOLD + 4)]


def test_who_lost_a_turn_gives_back_no_other():
    async def test(bench: Bench, group: asyncio.TaskGroup) -> None:
        group.create_task(bench.work("slow", HOLD + 1))
        group.create_task(bench.work("a", 3))
        group.create_task(bench.work("b", 1))

    assert on_bench(test).got == [("slow", 0), ("a", HOLD), ("b", HOLD + 3)]


def test_who_is_cancelled_leaves_the_queue():
    async def test(bench: Bench, group: asyncio.TaskGroup) -> None:
        group.create_task(bench.work("a", 3))
        gone = group.create_task(bench.work("gone", 1))
        group.create_task(bench.work("b", 1))
        await bench.sleep(1)
        gone.cancel()

    assert on_bench(test).got == [("a", 0), ("b", 3)]


def test_with_fewer_turns_to_begin_with_there_are_more_the_longer_the_queue():
    async def main() -> list[float]:
        clock = LoopClock(epoch=EPOCH)
        turns = Turns(at_once=3, first=2, longest=timedelta(seconds=HOLD), clock=clock)
        began = []

        async def work() -> None:
            with turns.queue() as turn:
                await turn.take()
                began.append(clock.monotonic())
                await clock.sleep(timedelta(seconds=1))

        for _ in range(2):
            async with asyncio.TaskGroup() as group:
                for _ in range(9):
                    group.create_task(work())
        return began

    first = [0, 0, 1, 1, 1, 2, 2, 2, 3]
    assert run_virtual(main()) == [*first, *(at + 4 for at in first)]


def test_a_lost_turn_makes_place_for_a_newcomer_at_once():
    async def test(bench: Bench, group: asyncio.TaskGroup) -> None:
        group.create_task(bench.work("slow", HOLD + 3))
        await bench.sleep(HOLD + 1)
        group.create_task(bench.work("new", 1))

    assert on_bench(test).got == [("slow", 0), ("new", HOLD + 1)]

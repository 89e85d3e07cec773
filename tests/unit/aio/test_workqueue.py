"""The queue of keys: once each, later, never twice at the same time."""

import asyncio
import random
from datetime import timedelta

import pytest

from klet.aio.workqueue import WorkQueue
from klet.testing.clock import ManualClock, SteppingClock


def s(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


class Bench:
    """A queue and a worker that notes when it got which key; it holds each key until it is let go."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.queue = WorkQueue[str](clock=self.clock)
        self.got: list[tuple[float, str]] = []

    async def work(self) -> None:
        while True:
            key = await self.queue.get()
            self.got.append((self.clock.monotonic(), key))
            self.queue.done(key)


@pytest.fixture
async def bench():
    bench = Bench()
    async with asyncio.TaskGroup() as group:
        worker = group.create_task(bench.work())
        yield bench
        worker.cancel()


async def test_keys_come_in_the_order_of_their_adding_and_once():
    queue = WorkQueue[str](clock=ManualClock())
    for key in ("a", "b", "a"):
        queue.add(key)
    assert len(queue) == 2
    assert [await queue.get(), await queue.get()] == ["a", "b"]
    assert len(queue) == 0


async def test_a_key_added_while_it_is_held_comes_again_after_done():
    queue = WorkQueue[str](clock=ManualClock())
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.add("a")
    assert len(queue) == 0
    queue.done("a")
    assert len(queue) == 1
    assert await queue.get() == "a"
    queue.done("a")
    assert len(queue) == 0


async def test_a_waiting_worker_gets_a_key_as_soon_as_it_is_added(bench):
    await bench.clock.run(s(1))
    bench.queue.add("a")
    await bench.clock.run(s(1))
    assert bench.got == [(1, "a")]


async def test_a_delayed_key_comes_when_its_time_has_come(bench):
    bench.queue.add_after("late", s(5))
    bench.queue.add_after("soon", s(2))
    bench.queue.add_after("now", s(0))
    await bench.clock.run(s(10))
    assert bench.got == [(0, "now"), (2, "soon"), (5, "late")]


async def test_a_shorter_delay_that_comes_later_is_not_missed(bench):
    bench.queue.add_after("a", s(60))
    await bench.clock.run(s(1))
    bench.queue.add_after("b", s(1))
    await bench.clock.run(s(3))
    assert bench.got == [(2, "b")]


async def test_of_two_delays_of_a_key_the_earlier_wins(bench):
    bench.queue.add_after("a", s(5))
    bench.queue.add_after("a", s(2))
    bench.queue.add_after("a", s(7))
    await bench.clock.run(s(10))
    assert bench.got == [(2, "a")]


async def test_adding_at_once_makes_a_delayed_add_needless(bench):
    bench.queue.add_after("a", s(5))
    bench.queue.add("a")
    await bench.clock.run(s(10))
    assert bench.got == [(0, "a")]


async def test_a_key_may_be_delayed_again_after_it_came(bench):
    bench.queue.add_after("a", s(5))
    await bench.clock.run(s(5))
    bench.queue.add_after("a", s(5))
    await bench.clock.run(s(5))
    assert bench.got == [(5, "a"), (10, "a")]


async def test_a_forgotten_key_does_not_come(bench):
    bench.queue.add_after("delayed", s(1))
    bench.queue.add("ready")
    bench.queue.forget("delayed")
    bench.queue.forget("ready")
    bench.queue.forget("never seen")
    await bench.clock.run(s(10))
    assert bench.got == []


async def test_forgetting_a_held_key_drops_only_its_next_turn():
    queue = WorkQueue[str](clock=ManualClock())
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.forget("a")
    queue.done("a")
    assert len(queue) == 0


async def test_many_workers_share_the_keys_and_each_key_has_one_of_them():
    clock = ManualClock()
    queue = WorkQueue[int](clock=clock)
    held: set[int] = set()
    done: list[int] = []

    async def work() -> None:
        while True:
            key = await queue.get()
            assert key not in held
            held.add(key)
            await clock.sleep(s(1))
            held.discard(key)
            done.append(key)
            queue.done(key)

    async with asyncio.TaskGroup() as group:
        workers = [group.create_task(work()) for _ in range(4)]
        for key in (*range(8), *range(8)):
            queue.add(key)
        await clock.run(s(0.5))
        for key in range(4):
            queue.add(key)
        await clock.run(s(10))
        for worker in workers:
            worker.cancel()
    assert sorted(done) == sorted([*range(8), *range(4)])


@pytest.mark.parametrize("seed", range(30))
async def test_keys_come_in_time_although_waiting_workers_come_and_go(seed):
    rng = random.Random(seed)
    clock = ManualClock()
    queue = WorkQueue[int](clock=clock)
    due: dict[int, float] = {}
    came: dict[int, float] = {}

    async def work() -> None:
        while True:
            key = await queue.get()
            came[key] = clock.monotonic()
            queue.done(key)

    async with asyncio.TaskGroup() as group:
        workers = [group.create_task(work()) for _ in range(4)]
        for key in range(60):
            wait = rng.choice((0, 0, 1, 3, 10))
            due[key] = clock.monotonic() + wait
            queue.add_after(key, s(wait))
            if rng.random() < 0.4:
                workers.pop(rng.randrange(4)).cancel()
                workers.append(group.create_task(work()))
            if rng.random() < 0.5:
                await clock.run(s(rng.choice((0, 0.5, 2))))
        await clock.run(s(20))
        for worker in workers:
            worker.cancel()
    assert came == due


async def test_a_key_wakes_one_worker_only():
    clock = CountingClock()
    queue = WorkQueue[str](clock=clock)

    async def work() -> None:
        while True:
            queue.done(await queue.get())

    async with asyncio.TaskGroup() as group:
        workers = [group.create_task(work()) for _ in range(16)]
        await clock.run(s(1))
        before = clock.reads
        queue.add("a")
        await clock.run(s(1))
        woken = clock.reads - before
        for worker in workers:
            worker.cancel()
    assert woken == 2  # the one that takes the key looks again when it has done


class CountingClock(ManualClock):
    """Counts how often somebody looks at it, as each worker does that wakes."""

    reads = 0

    def monotonic(self):
        self.reads += 1
        return super().monotonic()


@pytest.mark.parametrize("step", [timedelta(days=365), timedelta(days=-365)], ids=["forward", "back"])
async def test_a_delay_is_as_long_as_it_is_whatever_the_time_is_set_to(step):
    clock = SteppingClock()
    queue = WorkQueue[str](clock=clock)
    queue.add_after("a", s(60))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(queue.get())
        await clock.run(s(30))
        clock.step = step
        await clock.run(s(29))
        assert not task.done()
        await clock.run(s(1))
        assert task.done()

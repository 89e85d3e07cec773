"""The order of pulls: who runs, who waits, who comes next."""

import asyncio
from contextlib import suppress

import pytest

from klet.images.pull_queue import PullLine, PullQueue, QueuedPull, describe_wait, in_order


def pull(name, *, is_critical=False, asked_at=0.0):
    return QueuedPull(uid=name, pod=f"default/{name}", image=f"{name}:1", is_critical=is_critical, asked_at=asked_at)


class Bench:
    """Pulls that end when they are told to."""

    def __init__(self, at_once):
        self.queue = PullQueue(at_once=at_once)
        self.waited = {}
        self._ends = {}
        self._tasks = {}

    async def start(self, *names, is_critical=False):
        for name in names:
            self._ends[name] = asyncio.Event()
            self._tasks[name] = asyncio.create_task(self._run(name, is_critical=is_critical))
            await settled()

    async def end(self, *names):
        for name in names:
            self._ends[name].set()
            await self._tasks.pop(name)
            await settled()

    async def stop(self, name):
        task = self._tasks.pop(name)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await settled()

    async def end_and_stop(self, ending, stopping):
        """In one go: the one that ends hands its turn to the one that stops."""
        self._ends[ending].set()
        self._tasks.pop(stopping).cancel()
        await settled()

    def running(self):
        return [each.uid for each in self.queue.running()]

    def waiting(self):
        return [each.uid for each in self.queue.waiting()]

    async def close(self):
        for name in list(self._tasks):
            await self.stop(name)

    async def _run(self, name, *, is_critical):
        def note(line):
            self.waited[name] = [each.uid for each in (*line.running, *line.before)]

        async with self.queue.turn(pull(name, is_critical=is_critical), on_wait=note):
            await self._ends[name].wait()


async def settled():
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
async def bench():
    made = []

    def build(at_once):
        made.append(Bench(at_once))
        return made[-1]

    yield build
    for each in made:
        await each.close()


async def test_one_after_the_other(bench):
    queue = bench(1)
    await queue.start("a", "b", "c")
    assert (queue.running(), queue.waiting()) == (["a"], ["b", "c"])
    assert queue.waited == {"b": ["a"], "c": ["a", "b"]}
    await queue.end("a")
    assert (queue.running(), queue.waiting()) == (["b"], ["c"])
    await queue.end("b", "c")
    assert (queue.running(), queue.waiting()) == ([], [])


async def test_as_many_as_may(bench):
    queue = bench(2)
    await queue.start("a", "b", "c", "d")
    assert (queue.running(), queue.waiting()) == (["a", "b"], ["c", "d"])
    await queue.end("b")
    assert (queue.running(), queue.waiting()) == (["a", "c"], ["d"])


async def test_any_number(bench):
    queue = bench(None)
    await queue.start(*"abcdef")
    assert (len(queue.running()), queue.waiting(), queue.waited) == (6, [], {})


async def test_critical_pods_come_first_and_keep_their_order(bench):
    queue = bench(1)
    await queue.start("a", "b")
    await queue.start("x", "y", is_critical=True)
    await queue.start("c")
    assert queue.waiting() == ["x", "y", "b", "c"]
    assert queue.waited["x"] == ["a"]  # nobody is interrupted
    assert queue.waited["c"] == ["a", "x", "y", "b"]
    await queue.end("a")
    assert queue.running() == ["x"]


async def test_who_is_cancelled_leaves_the_queue(bench):
    queue = bench(1)
    await queue.start("a", "b", "c")
    await queue.stop("b")
    assert queue.waiting() == ["c"]
    await queue.stop("a")
    assert (queue.running(), queue.waiting()) == (["c"], [])


async def test_who_is_cancelled_with_the_turn_in_hand_gives_it_back(bench):
    queue = bench(1)
    await queue.start("a", "b", "c")
    await queue.end_and_stop("a", "b")
    assert (queue.running(), queue.waiting()) == (["c"], [])


def test_the_order_of_those_that_wait():
    a, b, x = pull("a"), pull("b"), pull("x", is_critical=True)
    assert in_order([a, x, b]) == (x, a, b)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (
            PullLine((pull("big"),), ()),
            'one pull runs, as many as may at a time; it is behind "big:1" of pod default/big (asked for 1m30s ago)',
        ),
        (
            PullLine((pull("big", asked_at=80.0), pull("b")), (pull("c"),)),
            (
                '2 pulls run, as many as may at a time; it is behind "big:1" of pod default/big (asked for 10s ago), '
                "and 1 that waits"
            ),
        ),
        (
            PullLine((pull("big", asked_at=91.0),), (pull("c"), pull("d"))),
            (
                'one pull runs, as many as may at a time; it is behind "big:1" of pod default/big (asked for 0s ago), '
                "and 2 that wait"
            ),
        ),
    ],
)
def test_what_is_said_of_a_wait(line, text):
    assert describe_wait("app:1", line, now=90.0) == f'Pull of image "app:1" waits: {text}'

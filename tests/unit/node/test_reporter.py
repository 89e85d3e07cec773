"""When the reporter makes a pass."""

import asyncio
import random
from datetime import timedelta

from klet.aio.broadcast import Broadcast
from klet.aio.clock import LoopClock
from klet.node.board import NodeBoard
from klet.node.reporter import ReportTimer, StatusReporter
from klet.node.settings import ReportTimes
from klet.node.status_sync import StatusOutcome
from klet.testing.loop import EPOCH, run_virtual

TIMES = ReportTimes(update=timedelta(seconds=10), report=timedelta(minutes=5))


class NoChance(random.Random):
    """Never a jitter."""

    def random(self):
        return 0.0


class Stage:
    """A reporter whose passes are noted with their times."""

    def __init__(self, node_of, *, outcome=StatusOutcome.POSTED, ready=True):
        self.clock = LoopClock(epoch=EPOCH)
        self.passes: list[float] = []
        self.outcome = outcome
        self.errors: tuple[str, ...] = ()
        self.board = NodeBoard()
        self.board.put(node_of(ready=ready))
        self.node = node_of(ready=ready)
        self.nodes, self.wakes = Broadcast[str](), Broadcast[str]()
        self.reporter = StatusReporter(
            name="n1",
            registrar=None,
            sync=self,
            nodes=self,
            wakes=(self.wakes.subscribe,),
            known=self.board,
            errors=lambda: self.errors,
            timer=ReportTimer(times=TIMES, clock=self.clock, randomness=NoChance()),
        )

    async def sync(self, _name):
        self.passes.append(round(self.clock.monotonic(), 3))
        return self.outcome

    def get(self, _name):
        return self.node

    def changes(self):
        return self.nodes.subscribe()

    async def play(self, *scenes, until=35.0):
        """Run, doing what each scene says at its second."""
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.reporter.run())
            for second, act in scenes:
                await self.clock.sleep_until(EPOCH + timedelta(seconds=second))
                act()
            await self.clock.sleep_until(EPOCH + timedelta(seconds=until))
            task.cancel()
        return self.passes


def set_errors(stage, *errors):
    return lambda: setattr(stage, "errors", errors)


def test_a_pass_each_period(node_of):
    async def run():
        return await Stage(node_of).play()

    assert run_virtual(run()) == [0, 10, 20, 30]


def test_a_hint_makes_a_pass_at_once(node_of):
    async def run():
        stage = Stage(node_of)
        return await stage.play((3, lambda: stage.wakes.send("x")), until=20)

    assert run_virtual(run()) == [0, 3, 13]


def test_our_own_change_of_the_node_makes_none(node_of):
    async def run():
        stage = Stage(node_of)
        return await stage.play((3, lambda: stage.nodes.send("n1")), until=9)

    assert run_virtual(run()) == [0]


def test_a_node_that_was_replaced_makes_one(node_of):
    async def run():
        stage = Stage(node_of)

        def replace_it() -> None:
            stage.node = node_of(uid="u2")
            stage.nodes.send("n1")

        return await stage.play((3, replace_it), until=9)

    assert run_virtual(run()) == [0, 3]


def test_a_node_that_is_not_ready_yet_sees_its_errors_go(node_of):
    async def run():
        stage = Stage(node_of, ready=False)
        stage.errors = ("starting",)
        return await stage.play((0.25, set_errors(stage)), until=1)

    assert run_virtual(run()) == [0, 0.3]


def test_a_node_that_has_been_ready_waits_for_hints(node_of):
    async def run():
        stage = Stage(node_of)
        return await stage.play((3, set_errors(stage, "down")), until=9)

    assert run_virtual(run()) == [0]


def test_a_node_that_is_late_stops_looking(node_of, caplog):
    async def run():
        stage = Stage(node_of, ready=False)
        stage.errors = ("no network",)
        return await stage.play((135, set_errors(stage)), until=139)

    assert run_virtual(run())[-2:] == [120, 130]
    assert [record.message for record in caplog.records] == ["Node not becoming ready in time after startup"]


def test_a_pass_that_was_held_back_comes_again_soon(node_of):
    async def run():
        return await Stage(node_of, outcome=StatusOutcome.HELD).play(until=5)

    assert run_virtual(run()) == [0, 2, 4]


def test_jitter_is_at_most_a_twenty_fifth(node_of):
    async def run():
        clock = LoopClock(epoch=EPOCH)
        pace = ReportTimer(times=TIMES, clock=clock, randomness=random.Random(7))
        waited = []
        for _ in range(50):
            began = clock.now()
            await pace.pause(is_held=False)
            waited.append(clock.now() - began)
        return min(waited), max(waited)

    shortest, longest = run_virtual(run())
    assert timedelta(seconds=10) <= shortest < longest <= timedelta(seconds=10.4)

"""When a status is sent."""

import random
from datetime import timedelta

import pytest

from klet.aio.clock import LoopClock
from klet.journal.memory import MemoryJournal
from klet.model.causes import Finding, FindingSubject
from klet.model.reasons import Reason
from klet.node.board import NodeBoard
from klet.node.settings import ReportTimes
from klet.node.status_sync import START_PATIENCE, Heartbeats, StatusOutcome, StatusSync
from klet.testing.loop import EPOCH, run_virtual

TIMES = ReportTimes(update=timedelta(seconds=10), report=timedelta(minutes=5))


class Seen:
    """What a watch has shown."""

    def __init__(self, node=None):
        self.node = node

    def get(self, _name):
        return self.node


class Chance(random.Random):
    """Always the same draw."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def uniform(self, low, high):
        return low + (high - low) * self.value


class Desk:
    """A sync and everything around it."""

    def __init__(self, api, composer_of, *, seen=None, draw=0.5):
        self.api = api
        self.clock = LoopClock(epoch=EPOCH)
        self.composer = composer_of(self.clock)
        self.board, self.journal = NodeBoard(), MemoryJournal(clock=self.clock)
        self.hooks = 0
        self.seen = Seen(seen)
        self.sync = StatusSync(
            heartbeats=Heartbeats(api, self._hook),
            seen=self.seen,
            composer=self.composer,
            board=self.board,
            recorder=self.journal,
            clock=self.clock,
            times=TIMES,
            randomness=Chance(draw),
        )

    async def _hook(self) -> None:
        self.hooks += 1

    async def after(self, seconds: float) -> StatusOutcome:
        await self.clock.sleep(timedelta(seconds=seconds))
        return await self.sync.sync("n1")


@pytest.fixture
def desk(api, composer_of, node_of):
    def make(**options) -> Desk:
        api.node = node_of(ready=options.pop("ready", True))
        return Desk(api, composer_of, seen=api.node, **options)

    return make


def test_the_first_report_is_sent_though_nothing_is_new(desk):
    async def run():
        return await desk().after(1)

    assert run_virtual(run()) is StatusOutcome.POSTED


@pytest.mark.parametrize(
    ("draw", "due"),
    [
        pytest.param(0.0, 150, id="at the earliest after half the time"),
        pytest.param(0.5, 300, id="in the middle"),
        pytest.param(1.0, 450, id="at the latest after half as much again"),
    ],
)
def test_the_next_report_without_a_change(desk, draw, due):
    async def run():
        made = desk(draw=draw)
        outcomes = [await made.after(1), await made.after(due - 1), await made.after(1)]
        # A report that came because it was due is followed after the plain period.
        outcomes += [await made.after(299), await made.after(1)]
        return outcomes

    posted, unchanged = StatusOutcome.POSTED, StatusOutcome.UNCHANGED
    assert run_virtual(run()) == [posted, unchanged, posted, unchanged, posted]


def test_a_change_is_sent_at_once(desk):
    async def run():
        made = desk()
        await made.after(10)
        made.composer.ready = False
        return await made.after(10), made.board.node.status.conditions[0].status

    assert run_virtual(run()) == (StatusOutcome.POSTED, "False")


def test_the_watch_is_read_first_and_the_server_after_a_failure(desk, down):
    async def run():
        made = desk()
        made.api.fail("patch status", down, down)
        return await made.after(1), made.api.calls, made.hooks

    outcome, calls, hooks = run_virtual(run())
    assert outcome is StatusOutcome.POSTED
    assert calls == ["patch status", "get", "patch status", "get", "patch status"]
    assert hooks == 1


def test_a_node_that_the_watch_has_not_shown_is_asked_for(api, composer_of, node_of):
    async def run():
        api.node = node_of(ready=False)
        return await Desk(api, composer_of).after(1)

    assert run_virtual(run()) is StatusOutcome.POSTED
    assert api.calls == ["get", "patch status"]


def test_five_tries_without_a_pause(desk, down):
    async def run():
        made = desk()
        made.api.fail("patch status", *[down] * 5)
        outcome = await made.after(1)
        return outcome, made.hooks, made.clock.now() - EPOCH

    assert run_virtual(run()) == (StatusOutcome.FAILED, 4, timedelta(seconds=1))


def test_a_ready_node_is_not_reported_otherwise_right_after_the_start(desk):
    async def run():
        made = desk(ready=True)
        made.composer.ready = False
        early = await made.after(1)
        late = await made.after(START_PATIENCE.total_seconds())
        return early, late, made.api.count("patch status")

    assert run_virtual(run()) == (StatusOutcome.HELD, StatusOutcome.POSTED, 1)


def test_a_node_that_was_not_ready_needs_no_patience(desk):
    async def run():
        made = desk(ready=False)
        made.composer.ready = False
        return await made.after(1)

    assert run_virtual(run()) is StatusOutcome.POSTED


def test_findings_of_a_failed_pass_are_not_reported(desk, down):
    async def run():
        made = desk()
        made.composer.findings = (Finding(subject=FindingSubject(), decider="t", decision=Reason.NODE_READY),)
        made.api.fail("patch status", *[down] * 5)
        await made.after(1)
        recorded = len(made.journal.all())
        await made.after(1)
        return recorded, len(made.journal.all())

    assert run_virtual(run()) == (0, 1)


def test_a_node_that_was_reset_to_an_older_state_is_reported_again(desk, node_of):
    """As from a backup of the API server: its versions are lower than the one that we wrote."""

    async def run():
        made = desk()
        await made.after(1)
        made.api.node = made.seen.node = node_of(ready=False)
        early = await made.after(10)
        late = await made.after(60)
        return early, late, made.api.node.status.conditions[0].status

    assert run_virtual(run()) == (StatusOutcome.UNCHANGED, StatusOutcome.POSTED, "True")

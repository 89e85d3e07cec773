import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta

from klet.journal.memory import MemoryJournal
from klet.kube.errors import Unreachable
from klet.kube.reach import Reach
from klet.offline.outage import ASK_AGAIN, ASK_WHILE_AWAY, Outage, OutageWatch
from klet.testing.clock import ManualClock

PATIENCE = timedelta(seconds=10)
NOW = timedelta()


class Bench:
    """An API server that answers, refuses or is gone, and the watch of it."""

    def __init__(self):
        self.clock = ManualClock()
        self.began = self.clock.now()
        self.journal = MemoryJournal(clock=self.clock)
        self.reach = Reach()
        self.outage = Outage()
        self.code = None
        self.asked = 0
        self.watch = OutageWatch(
            outage=self.outage,
            reach=self.reach,
            ask=self.ask,
            patience=PATIENCE,
            recorder=self.journal,
            clock=self.clock,
        )

    async def ask(self):
        self.asked += 1
        if self.code is None:
            self.reach.failed("refused")
            raise Unreachable("refused")
        self.reach.answered(self.code)

    async def request(self, code=None):
        if code is None:
            self.reach.failed("refused")
        else:
            self.reach.answered(code)
        await self.clock.run(NOW)

    def decisions(self):
        return [cause.finding.decision for cause in self.journal.all()]


@asynccontextmanager
async def watching():
    bench = Bench()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(bench.watch.run())
        await bench.clock.run(NOW)
        yield bench
        task.cancel()


async def test_a_server_that_never_answers_is_away_since_the_start():
    async with watching() as bench:
        await bench.clock.run(PATIENCE - timedelta(seconds=1))
        assert not bench.outage.is_away()
        await bench.clock.run(timedelta(seconds=1))
        assert bench.outage.since == bench.began
        assert bench.decisions() == ["ApiServerAway"]
        await bench.outage.until_away()


async def test_a_server_that_answers_is_not_asked():
    async with watching() as bench:
        await bench.request(200)
        await bench.clock.run(10 * PATIENCE)
        assert (bench.outage.since, bench.asked, bench.decisions()) == (None, 0, [])
        await bench.outage.until_there()


async def test_a_refusal_is_an_answer():
    for code in (401, 403, 404, 429):
        async with watching() as bench:
            bench.code = code
            await bench.clock.run(2 * PATIENCE)
            assert not bench.outage.is_away()
            assert bench.asked == 1


async def test_a_server_that_cannot_answer_for_the_cluster_is_away():
    for code in (500, 502, 503, 504):
        async with watching() as bench:
            bench.code = code
            await bench.clock.run(PATIENCE)
            assert bench.outage.is_away()


async def test_one_request_that_failed_is_no_outage():
    async with watching() as bench:
        await bench.request(200)
        bench.code = 200
        await bench.request()
        await bench.clock.run(ASK_AGAIN)
        assert bench.asked == 1
        await bench.clock.run(10 * PATIENCE)
        assert (bench.outage.is_away(), bench.asked) == (False, 1)


async def test_an_outage_begins_with_the_first_failure_and_ends_with_the_first_answer():
    async with watching() as bench:
        await bench.request(200)
        await bench.clock.run(timedelta(hours=1))
        await bench.request()
        failed = bench.clock.now()
        await bench.clock.run(PATIENCE)
        assert bench.outage.since == failed
        await bench.clock.run(timedelta(hours=2))
        await bench.request()
        assert bench.outage.is_away()
        await bench.request(403)
        assert not bench.outage.is_away()
        assert bench.decisions() == ["ApiServerAway", "ApiServerBack"]
        back = bench.journal.all()[1].finding
        assert back.message == "the API server answers again after 7210 s"
        assert back.since == failed


async def test_a_server_that_is_back_is_noticed_though_nobody_needs_it():
    async with watching() as bench:
        await bench.clock.run(PATIENCE)
        assert bench.outage.is_away()
        bench.code = 200
        await bench.clock.run(ASK_WHILE_AWAY)
        assert not bench.outage.is_away()


async def test_there_can_be_another_outage():
    async with watching() as bench:
        await bench.clock.run(PATIENCE)
        await bench.request(200)
        await bench.request()
        await bench.clock.run(PATIENCE)
        assert bench.outage.is_away()
        assert bench.decisions() == ["ApiServerAway", "ApiServerBack", "ApiServerAway"]

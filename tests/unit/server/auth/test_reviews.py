"""Questions to the API server: how many at once, who waits, and what happens when it does not answer."""

import asyncio
from datetime import timedelta

import pytest

from klet.api.meta import Status
from klet.kube.errors import KubeError, Unreachable, api_error
from klet.server.auth.reviews import Retrying, ReviewLimits, ReviewQueue, Reviews, TooManyReviews
from klet.testing.clock import ManualClock

NO_TIME = timedelta(0)
FAST = ReviewLimits(at_once=2, rate=1000, burst=1000, queued=3)


class NoRandomness:
    def random(self):
        return 0.0


class Question:
    """Something to ask that is only answered when the test says so."""

    def __init__(self, answer="yes"):
        self.times = 0
        self.running = 0
        self._answer = answer
        self._may_answer = asyncio.Event()

    def let_answer(self):
        self._may_answer.set()

    async def __call__(self):
        self.times += 1
        self.running += 1
        try:
            await self._may_answer.wait()
        finally:
            self.running -= 1
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


@pytest.fixture
def clock():
    return ManualClock()


def reviews(clock, limits=FAST):
    return Reviews(retrying=Retrying(clock=clock, randomness=NoRandomness()), limits=limits, clock=clock)


async def settle(clock):
    await clock.run(NO_TIME)


async def test_only_so_many_are_asked_at_once_and_only_so_many_wait(clock):
    asked, question = reviews(clock), Question()
    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(asked.ask(number, question, client="a")) for number in range(5)]
        await settle(clock)
        assert question.running == 2
        with pytest.raises(TooManyReviews):
            await asked.ask(6, question, client="a")
        question.let_answer()
    assert [each.result() for each in asking] == ["yes"] * 5
    assert await asked.ask(6, question, client="a") == "yes"


async def test_one_client_does_not_fill_the_queue_for_the_others(clock):
    limits = ReviewLimits(at_once=1, rate=1000, burst=1000, queued=5, queued_by_one=2)
    asked, question = reviews(clock, limits), Question()
    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(asked.ask(number, question, client="flood")) for number in range(3)]
        await settle(clock)
        with pytest.raises(TooManyReviews):
            await asked.ask(4, question, client="flood")
        asking.append(group.create_task(asked.ask(5, question, client="other")))
        await settle(clock)
        question.let_answer()
    assert [each.result() for each in asking] == ["yes"] * 4


async def test_they_have_a_rate(clock):
    asked, question = reviews(clock, ReviewLimits(at_once=10, rate=2, burst=2, queued=10)), Question()
    question.let_answer()
    async with asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(asked.ask(number, question, client="a"))
        await settle(clock)
        assert question.times == 2
        await clock.run(timedelta(seconds=1))
        assert question.times == 4


async def test_who_goes_away_gives_back_its_turn_its_place_and_its_part_of_the_rate(clock):
    queue = ReviewQueue(limits=ReviewLimits(at_once=1, rate=1, burst=1, queued=1), clock=clock)
    passed = []

    async def pass_through(number, done):
        async with queue.turn("a"):
            passed.append(number)
            await done.wait()

    never, now = asyncio.Event(), asyncio.Event()
    now.set()
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(pass_through("asks", never))
        waiting = group.create_task(pass_through("waits for its turn", now))
        await settle(clock)
        waiting.cancel()
        await settle(clock)
        second = group.create_task(pass_through("waits for the rate", now))
        await settle(clock)
        asking.cancel()
        await settle(clock)
        second.cancel()
        await settle(clock)
        group.create_task(pass_through("is last", now))
        await clock.run(timedelta(seconds=1))
    assert passed == ["asks", "is last"]


async def test_the_same_question_is_asked_once(clock):
    asked, question = reviews(clock), Question()
    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(asked.ask("same", question, client="a")) for _ in range(50)]
        await settle(clock)
        question.let_answer()
    assert question.times == 1
    assert {each.result() for each in asking} == {"yes"}


async def test_when_the_one_who_asks_goes_away_another_one_asks(clock):
    asked, question = reviews(clock), Question()
    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(asked.ask("same", question, client="a")) for _ in range(3)]
        await settle(clock)
        asking[0].cancel()
        await settle(clock)
        assert (question.times, question.running) == (2, 1)
        asking[2].cancel()
        await settle(clock)
        question.let_answer()
    assert asking[1].result() == "yes"
    assert question.times == 2


async def test_a_failure_is_that_of_all_who_wait_for_it_and_of_nobody_later(clock):
    asked, bad, good = reviews(clock), Question(api_error(Status(code=403, message="no"))), Question()
    good.let_answer()
    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(_error_of(asked.ask("same", bad, client="a"))) for _ in range(3)]
        await settle(clock)
        bad.let_answer()
    assert [each.result() for each in asking] == ["no"] * 3
    assert bad.times == 1
    assert await asked.ask("same", good, client="a") == "yes"


async def test_nobody_asks_for_a_second_when_the_api_server_did_not_answer(clock):
    limits = ReviewLimits(at_once=1, rate=1000, burst=1000, queued=100)
    asked, away, good = reviews(clock, limits), Question(Unreachable("away")), Question()
    away.let_answer()
    good.let_answer()
    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(_error_of(asked.ask(number, away, client="a"))) for number in range(20)]
        await clock.run(timedelta(seconds=4.5))
        assert [each.result() for each in asking] == ["away"] * 20
    assert away.times == 5
    assert await _error_of(asked.ask("other", good, client="a")) == "away"
    clock.advance(timedelta(seconds=1))
    assert await asked.ask("other", good, client="a") == "yes"


async def test_no_question_is_asked_again_for_long(clock):
    class Slow:
        times = 0

        async def __call__(self):
            self.times += 1
            await clock.sleep(timedelta(seconds=6))
            raise Unreachable("no answer within 6 s")

    slow = Slow()
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(_error_of(reviews(clock).ask("a", slow, client="a")))
        await clock.run(timedelta(seconds=13))
        assert asking.done()
    assert slow.times == 2


async def _error_of(asking):
    with pytest.raises(KubeError) as caught:
        await asking
    return str(caught.value)

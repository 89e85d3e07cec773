"""A flood of tokens that nobody has issued: what is asked, who is refused, and who is not delayed."""

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.api.authentication import TokenReview, TokenReviewStatus
from klet.api.authorization import SubjectAccessReviewStatus
from klet.server.auth.access import AccessReviews, AccessSettings
from klet.server.auth.filter import AuthFilter, AuthRequest
from klet.server.auth.identity import User
from klet.server.auth.reviews import Retrying
from klet.server.auth.tokens import TokenAuthenticator
from klet.testing.clock import ManualClock

MANY = 5_000
MINUTE = timedelta(minutes=1)


class NoRandomness:
    def random(self):
        return 0.0


class SlowApi:
    """Never gets to the end of a review of a token; rights it knows at once."""

    def __init__(self):
        self.running = 0
        self.asked = 0

    async def review(self, _path, body):
        if not isinstance(body, TokenReview):
            return replace(body, status=SubjectAccessReviewStatus(allowed=True))
        self.asked += 1
        self.running += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.running -= 1
        return replace(body, status=TokenReviewStatus())


@pytest.fixture
def api():
    return SlowApi()


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def auth(api, clock):
    retrying = Retrying(clock=clock, randomness=NoRandomness())
    access = AccessSettings(node_name="node-1", keep_allowed=MINUTE, keep_denied=MINUTE)
    return AuthFilter(
        certificates=None,
        tokens=TokenAuthenticator(reviewer=api, retrying=retrying, keep=MINUTE, clock=clock),
        authorizer=AccessReviews(reviewer=api, retrying=retrying, settings=access, clock=clock),
        allows_anonymous=True,
        is_fine_grained=True,
    )


def asks(token):
    return AuthRequest(method="GET", path="/pods", authorization=f"Bearer {token}" if token else "")


async def test_a_flood_is_refused_at_once_and_holds_up_no_other_review(api, auth, clock):
    async with asyncio.TaskGroup() as group:
        flood = [group.create_task(auth.check(asks(f"token-{number}"))) for number in range(MANY)]
        await clock.run(timedelta(0))
        assert api.running <= 10
        refused = [each.result() for each in flood if each.done()]
        assert len(refused) >= MANY - 200
        assert {(each.status, each.headers["Retry-After"]) for each in refused} == {(429, "1")}
        # A user who is known without a token asks for nothing but a right.
        assert isinstance(await auth.check(asks("")), User)
        for each in flood:
            each.cancel()


async def test_a_flood_that_hangs_up_leaves_nothing_behind(api, auth, clock):
    async with asyncio.TaskGroup() as group:
        flood = [group.create_task(auth.check(asks(f"token-{number}"))) for number in range(MANY)]
        await clock.run(timedelta(0))
        for each in flood:
            each.cancel()
        await asyncio.wait(flood)
        assert api.running == 0
        asked = api.asked
        last = group.create_task(auth.check(asks("last")))
        await clock.run(timedelta(0))
        assert api.asked == asked + 1
        last.cancel()

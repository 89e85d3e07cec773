"""Tokens: which are asked about, and what is remembered of them."""

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.api.authentication import TokenReviewStatus, UserInfo
from klet.kube.errors import Unreachable
from klet.server.auth.cache import LIMIT
from klet.server.auth.identity import Rejected, User
from klet.server.auth.reviews import TOKEN_REVIEWS, Retrying, ReviewLimits
from klet.server.auth.tokens import LONGEST_TOKEN, TokenAuthenticator
from klet.testing.clock import ManualClock

INVALID = Rejected("invalid bearer token")
JANE = User("jane")
MANY = ReviewLimits(at_once=1_000_000, rate=1e9, burst=1_000_000_000, queued=1_000_000)


class NoRandomness:
    def random(self):
        return 0.0


class Api:
    """Knows one token."""

    def __init__(self):
        self.asked = []
        self.is_away = False

    async def review(self, path, body):
        assert path == TOKEN_REVIEWS
        token = body.spec.token
        self.asked.append(token)
        if self.is_away:
            raise Unreachable("away")
        await asyncio.sleep(0)
        good = token == "good"
        return replace(
            body, status=TokenReviewStatus(authenticated=good, user=UserInfo(username="jane" if good else ""))
        )


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def api():
    return Api()


@pytest.fixture
def tokens(api, clock):
    return TokenAuthenticator(
        reviewer=api,
        retrying=Retrying(clock=clock, randomness=NoRandomness()),
        keep=timedelta(minutes=2),
        clock=clock,
        limits=MANY,
    )


@pytest.mark.parametrize(
    "token",
    [
        pytest.param("a" * (LONGEST_TOKEN + 1), id="too long"),
        pytest.param("a b", id="a space"),
        pytest.param("tök", id="letters of another alphabet"),
        pytest.param("\udcff\udcfe", id="bytes that are no text"),
        pytest.param("a\x00b", id="a control character"),
        pytest.param("a\n", id="a line end"),
        pytest.param("a=b", id="padding in the middle"),
        pytest.param("===", id="only padding"),
        pytest.param('{"a":1}', id="no token at all"),
    ],
)
async def test_what_cannot_be_a_token_is_not_asked_about(api, tokens, token):
    assert await tokens.authenticate(token) == INVALID
    assert api.asked == []


@pytest.mark.parametrize(
    "token",
    [
        pytest.param("a" * LONGEST_TOKEN, id="a long one"),
        pytest.param("eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJhIn0.c2ln-_", id="a JWT"),
        pytest.param("abcdef.0123456789abcdef", id="a bootstrap token"),
        pytest.param("sha256~AbC+/9==", id="an opaque one"),
        pytest.param("ya29.c.b0AUFJ......", id="one that is filled up with dots"),
    ],
)
async def test_what_may_be_a_token_is_asked_about(api, tokens, token):
    assert await tokens.authenticate(token) == INVALID
    assert api.asked == [token]


async def test_the_same_token_is_reviewed_once_however_many_show_it(api, tokens):
    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(tokens.authenticate("good")) for _ in range(100)]
    assert {each.result().name for each in asking} == {"jane"}
    assert api.asked == ["good"]


async def test_a_flood_of_bad_tokens_does_not_push_out_a_good_one(api, tokens):
    assert await tokens.authenticate("good") == JANE
    for number in range(LIMIT + 10):
        assert await tokens.authenticate(f"bad-{number}") == INVALID
    assert await tokens.authenticate("good") == JANE
    assert api.asked.count("good") == 1


async def test_good_and_bad_tokens_are_reviewed_again_after_their_time(api, tokens, clock):
    for _ in range(2):
        for token in ("good", "bad"):
            await tokens.authenticate(token)
            await tokens.authenticate(token)
        clock.advance(timedelta(minutes=2))
    assert api.asked == ["good", "bad", "good", "bad"]


async def test_no_answer_is_no_verdict(api, tokens, clock):
    api.is_away = True
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(tokens.authenticate("good"))
        await clock.run(timedelta(seconds=5))
        assert asking.result() == Rejected("away")
    assert len(api.asked) == 5
    assert await tokens.authenticate("other") == Rejected("away")
    api.is_away = False
    clock.advance(timedelta(seconds=1))
    assert await tokens.authenticate("good") == JANE

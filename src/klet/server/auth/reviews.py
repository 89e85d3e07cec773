"""Questions to the API server: few at once, each one once, and again when it is overloaded, restarting or cut off.

Every client that connects makes klet ask. Each kind of review therefore has limits of its own, apart from those of the
agent's other requests: a flood of questions of one kind delays nothing else, and is refused at once when it is long.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final, Generic, Protocol, TypeVar

from msgspec import Struct

from klet.aio.backoff import exponential_delays
from klet.aio.clock import Clock
from klet.api.authentication import TokenReview
from klet.api.authorization import SubjectAccessReview
from klet.errors import KletError
from klet.kube.errors import ApiError, KubeError, Unreachable
from klet.kube.throttle import TokenBucket

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
S = TypeVar("S", TokenReview, SubjectAccessReview)

TOKEN_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path
ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_TRIES: Final = 5
_FIRST_DELAY: Final = timedelta(milliseconds=500)
_FACTOR: Final = 1.5
_JITTER: Final = 0.2
_LATER: Final = frozenset({429, 500, 504})
_PATIENCE: Final = timedelta(seconds=10)
"""No question is asked again after that."""
_AWAY: Final = timedelta(seconds=1)
"""The pause after the API server did not answer in spite of all retries."""


class TooManyReviews(KletError):
    """So many questions wait for the API server already that another one has no chance."""


class Reviewer(Protocol):
    """The part of the API client that is needed here."""

    async def review(self, path: str, body: S) -> S: ...


class ReviewLimits(Struct, frozen=True, kw_only=True):
    """How many questions of one kind are asked at once and a second, and how many may wait."""

    at_once: int = 10
    rate: float = 20
    burst: int = 40
    queued: int = 100
    queued_by_one: int = 25
    """Of one client: the rest is for others."""


LIMITS: Final = ReviewLimits()


class ReviewQueue:
    """Turns to ask. A caller that is cancelled gives its turn back."""

    def __init__(self, *, limits: ReviewLimits, clock: Clock) -> None:
        self._limits = limits
        self._waiting = Counter[str]()
        self._turns = asyncio.Semaphore(limits.at_once)
        self._bucket = TokenBucket(rate=limits.rate, burst=limits.burst, clock=clock)

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """Wait for a turn. Raises TooManyReviews at once if the queue is full, or full of this client's."""
        if self._turns.locked() and self._is_full_for(client):
            raise TooManyReviews("too many reviews wait for the API server")
        self._waiting[client] += 1
        try:
            await self._turns.acquire()
        finally:
            self._waiting[client] -= 1
            if not self._waiting[client]:
                del self._waiting[client]
        try:
            await self._bucket.wait()
            yield
        finally:
            self._turns.release()

    def _is_full_for(self, client: str) -> bool:
        limits = self._limits
        return self._waiting.total() >= limits.queued or self._waiting[client] >= limits.queued_by_one


class Reviews(Generic[K, T]):
    """The reviews of one kind. A caller whose question is already being asked waits for that answer."""

    def __init__(self, *, retrying: "Retrying", limits: ReviewLimits, clock: Clock) -> None:
        self._retrying = retrying
        self._queue = ReviewQueue(limits=limits, clock=clock)
        self._clock = clock
        self._asked: dict[K, asyncio.Future[T | KletError | None]] = {}
        self._failure: KubeError | None = None
        self._failed_at = 0.0

    async def ask(self, key: K, question: Callable[[], Awaitable[T]], *, client: str) -> T:
        """Ask on behalf of a client. Raises KubeError, or TooManyReviews."""
        while (asked := self._asked.get(key)) is not None:
            outcome = await asyncio.shield(asked)
            if outcome is not None:
                return _returned(outcome)
            # The caller that asked was cancelled: one of those that wait for its answer asks instead.
        self._asked[key] = asked = asyncio.get_running_loop().create_future()
        outcome = None
        try:
            outcome = await self._ask(question, client)
        except KletError as error:
            outcome = error
        finally:
            del self._asked[key]
            asked.set_result(outcome)
        return _returned(outcome)

    async def _ask(self, question: Callable[[], Awaitable[T]], client: str) -> T:
        self._check_away()
        async with self._queue.turn(client):
            self._check_away()
            try:
                return await self._retrying.ask(question)
            except KubeError as error:
                if may_pass(error):
                    self._failure, self._failed_at = error, self._clock.monotonic()
                raise

    def _check_away(self) -> None:
        """Fail as the last question did, if that was just now: otherwise the tries of many would pile up."""
        if self._failure is None:
            return
        if self._clock.monotonic() - self._failed_at < _AWAY.total_seconds():
            raise Unreachable(str(self._failure)) from self._failure
        self._failure = None


class Retrying:
    """Asks up to five times."""

    def __init__(self, *, clock: Clock, randomness: random.Random) -> None:
        self._clock = clock
        self._randomness = randomness

    async def ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """Ask, and ask again after failures. Raises the last KubeError."""
        delays = exponential_delays(first=_FIRST_DELAY, longest=timedelta(minutes=1), factor=_FACTOR)
        began = self._clock.monotonic()
        for _, delay in zip(range(_TRIES - 1), delays, strict=False):
            try:
                return await question()
            except KubeError as error:
                if not may_pass(error) or self._clock.monotonic() - began >= _PATIENCE.total_seconds():
                    raise
            await self._clock.sleep(delay * (1 + self._randomness.random() * _JITTER))
        return await question()


def may_pass(error: KubeError) -> bool:
    """Return whether the same question may be answered later."""
    return isinstance(error, Unreachable) or (isinstance(error, ApiError) and error.code in _LATER)


def _returned(outcome: T | KletError) -> T:
    if isinstance(outcome, KletError):
        raise outcome
    return outcome

"""Questions to the API server, asked again when it is overloaded, restarting or cut off in the middle."""

import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, Protocol, TypeVar

from klet.aio.backoff import exponential_delays
from klet.aio.clock import Clock
from klet.api.authentication import TokenReview
from klet.api.authorization import SubjectAccessReview
from klet.kube.errors import ApiError, KubeError, Unreachable

T = TypeVar("T")
S = TypeVar("S", TokenReview, SubjectAccessReview)

TOKEN_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path
ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_TRIES: Final = 5
_FIRST_DELAY: Final = timedelta(milliseconds=500)
_FACTOR: Final = 1.5
_JITTER: Final = 0.2
_LATER: Final = frozenset({429, 500, 504})


class Reviewer(Protocol):
    """The part of the API client that is needed here."""

    async def review(self, path: str, body: S) -> S: ...


class Retrying:
    """Asks up to five times."""

    def __init__(self, *, clock: Clock, randomness: random.Random) -> None:
        self._clock = clock
        self._randomness = randomness

    async def ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """Raises the last KubeError."""
        delays = exponential_delays(first=_FIRST_DELAY, longest=timedelta(minutes=1), factor=_FACTOR)
        for _, delay in zip(range(_TRIES - 1), delays, strict=False):
            try:
                return await question()
            except KubeError as error:
                if not _may_pass(error):
                    raise
            await self._clock.sleep(delay * (1 + self._randomness.random() * _JITTER))
        return await question()


def _may_pass(error: KubeError) -> bool:
    return isinstance(error, Unreachable) or (isinstance(error, ApiError) and error.code in _LATER)

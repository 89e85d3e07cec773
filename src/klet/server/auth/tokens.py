"""Bearer tokens, which the API server is asked about (TokenReview)."""

import hashlib
import logging
import re
from datetime import timedelta
from typing import Final

from klet.aio.clock import Clock
from klet.api.authentication import TokenReview, TokenReviewSpec
from klet.errors import level_for
from klet.kube.errors import KubeError
from klet.server.auth.cache import TimedCache
from klet.server.auth.identity import Rejected, User, Verdict
from klet.server.auth.reviews import LIMITS, TOKEN_REVIEWS, Retrying, Reviewer, ReviewLimits, Reviews

logger = logging.getLogger(__name__)

LONGEST_TOKEN: Final = 16 * 1024
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""What a bearer token looks like (RFC 6750, 2.1)."""
_INVALID: Final = Rejected("invalid bearer token")


class TokenAuthenticator:
    """Knows users by their tokens. Good and bad ones are remembered for a while, failures to ask are not.

    They are remembered apart: however many bad ones come, the good ones stay known.
    """

    def __init__(
        self,
        *,
        reviewer: Reviewer,
        retrying: Retrying,
        keep: timedelta,
        clock: Clock,
        limits: ReviewLimits = LIMITS,
    ) -> None:
        self._reviewer = reviewer
        self._reviews: Reviews[bytes, TokenReview] = Reviews(retrying=retrying, limits=limits, clock=clock)
        self._keep = keep
        self._good: TimedCache[bytes, User] = TimedCache(clock=clock)
        self._bad: TimedCache[bytes, Rejected] = TimedCache(clock=clock)

    async def authenticate(self, token: str, *, client: str = "") -> Verdict:
        """Authenticate. Raises TooManyReviews. The client is an address: it has a share of the questions."""
        if not token:
            return None
        if len(token) > LONGEST_TOKEN or not _TOKEN.fullmatch(token):
            return _INVALID  # no API server has issued that
        key = hashlib.sha256(token.encode()).digest()  # so that no token stays in memory
        if (known := self._good.get(key) or self._bad.get(key)) is not None:
            return known
        review = TokenReview(
            api_version="authentication.k8s.io/v1", kind="TokenReview", spec=TokenReviewSpec(token=token)
        )
        try:
            answer = await self._reviews.ask(key, lambda: self._reviewer.review(TOKEN_REVIEWS, review), client=client)
        except KubeError as error:
            logger.log(level_for(error), "A token could not be reviewed", extra={"error": str(error)})
            return Rejected(str(error))
        status = answer.status
        if not status.authenticated:
            self._bad.put(key, _INVALID, keep=self._keep)
            return _INVALID
        user = User(status.user.username, status.user.uid, tuple(status.user.groups), dict(status.user.extra))
        self._good.put(key, user, keep=self._keep)
        return user

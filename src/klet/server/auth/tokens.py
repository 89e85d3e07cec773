"""Bearer tokens, which the API server is asked about (TokenReview)."""

import hashlib
import logging
from datetime import timedelta

from klet.aio.clock import Clock
from klet.api.authentication import TokenReview, TokenReviewSpec
from klet.errors import level_for
from klet.kube.errors import KubeError
from klet.server.auth.cache import TimedCache
from klet.server.auth.identity import Rejected, User, Verdict
from klet.server.auth.reviews import TOKEN_REVIEWS, Retrying, Reviewer

logger = logging.getLogger(__name__)

_INVALID = Rejected("invalid bearer token")


class TokenAuthenticator:
    """Knows users by their tokens. Good and bad ones are remembered for a while, failures to ask are not."""

    def __init__(self, *, reviewer: Reviewer, retrying: Retrying, keep: timedelta, clock: Clock) -> None:
        self._reviewer = reviewer
        self._retrying = retrying
        self._keep = keep
        self._known: TimedCache[bytes, User | Rejected] = TimedCache(clock=clock)

    async def authenticate(self, token: str) -> Verdict:
        if not token:
            return None
        try:
            key = hashlib.sha256(token.encode()).digest()  # so that no token stays in memory
        except UnicodeEncodeError:
            return _INVALID  # a header of bytes that are no text: no API server has issued that
        if (known := self._known.get(key)) is not None:
            return known
        review = TokenReview(
            api_version="authentication.k8s.io/v1", kind="TokenReview", spec=TokenReviewSpec(token=token)
        )
        try:
            answer = await self._retrying.ask(lambda: self._reviewer.review(TOKEN_REVIEWS, review))
        except KubeError as error:
            logger.log(level_for(error), "A token could not be reviewed", extra={"error": str(error)})
            return Rejected(str(error))
        status = answer.status
        verdict = (
            User(status.user.username, status.user.uid, tuple(status.user.groups), dict(status.user.extra))
            if status.authenticated
            else _INVALID
        )
        self._known.put(key, verdict, keep=self._keep)
        return verdict

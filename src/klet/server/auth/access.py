"""Authorization: the API server decides (SubjectAccessReview, mode Webhook), or everything is allowed (AlwaysAllow)."""

from collections.abc import Hashable
from datetime import timedelta
from typing import Final, Protocol

from msgspec import Struct

from klet.aio.clock import Clock
from klet.api.authorization import ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec
from klet.server.auth.cache import TimedCache
from klet.server.auth.identity import User
from klet.server.auth.reviews import ACCESS_REVIEWS, LIMITS, Retrying, Reviewer, ReviewLimits, Reviews

_LARGEST_CACHED: Final = 10_000


class Authorizer(Protocol):
    """Decides about one verb on one subresource of this node."""

    async def allows(self, user: User, verb: str, subresource: str) -> bool:
        """Decide. Raises KubeError if the API server cannot answer, TooManyReviews if too many ask."""
        ...


class AlwaysAllow:
    """Every authenticated user may do everything."""

    async def allows(self, user: User, verb: str, subresource: str) -> bool:  # noqa: ARG002 - none of it matters
        return True


class AccessSettings(Struct, frozen=True, kw_only=True):
    """The node in question, and how long answers stay good."""

    node_name: str
    keep_allowed: timedelta
    keep_denied: timedelta


class AccessReviews:
    """Asks the API server, and caches its answers."""

    def __init__(
        self,
        *,
        reviewer: Reviewer,
        retrying: Retrying,
        settings: AccessSettings,
        clock: Clock,
        limits: ReviewLimits = LIMITS,
    ) -> None:
        self._reviewer = reviewer
        self._reviews: Reviews[Hashable, SubjectAccessReview] = Reviews(retrying=retrying, limits=limits, clock=clock)
        self._settings = settings
        self._known: TimedCache[Hashable, bool] = TimedCache(clock=clock)

    async def allows(self, user: User, verb: str, subresource: str) -> bool:
        key = (user.name, user.uid, user.groups, tuple(sorted(user.extra.items())), verb, subresource)
        if (known := self._known.get(key)) is not None:
            return known
        spec = self._spec(user, verb, subresource)
        review = SubjectAccessReview(api_version="authorization.k8s.io/v1", kind="SubjectAccessReview", spec=spec)
        answer = await self._reviews.ask(key, lambda: self._reviewer.review(ACCESS_REVIEWS, review), client=user.name)
        is_allowed = answer.status.allowed
        if _size(spec) <= _LARGEST_CACHED:
            keep = self._settings.keep_allowed if is_allowed else self._settings.keep_denied
            self._known.put(key, is_allowed, keep=keep)
        return is_allowed

    def _spec(self, user: User, verb: str, subresource: str) -> SubjectAccessReviewSpec:
        attributes = ResourceAttributes(
            verb=verb, version="v1", resource="nodes", subresource=subresource, name=self._settings.node_name
        )
        return SubjectAccessReviewSpec(
            resource_attributes=attributes, user=user.name, groups=user.groups, uid=user.uid, extra=user.extra
        )


def _size(spec: SubjectAccessReviewSpec) -> int:
    """Return the bytes of what a caller controls."""
    texts = [spec.user, spec.uid, *spec.groups]
    for name, values in spec.extra.items():
        texts += (name, *values)
    return sum(len(text.encode()) for text in texts)

"""Token requests and reviews (authentication.k8s.io/v1)."""

from collections.abc import Mapping

from klet.api.base import ApiObject, Int64, required
from klet.api.meta import ObjectMeta
from klet.api.times import Time


class BoundObjectReference(ApiObject, frozen=True, kw_only=True):
    kind: str = ""
    api_version: str = ""
    name: str = ""
    uid: str = ""


class UserInfo(ApiObject, frozen=True, kw_only=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}


class SelfSubjectReviewStatus(ApiObject, frozen=True, kw_only=True):
    user_info: UserInfo = UserInfo()


class SelfSubjectReview(ApiObject, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    status: SelfSubjectReviewStatus = SelfSubjectReviewStatus()


class TokenRequestSpec(ApiObject, frozen=True, kw_only=True):
    audiences: tuple[str, ...] = required(tuple)
    expiration_seconds: Int64 | None = None
    bound_object_ref: BoundObjectReference | None = None


class TokenRequestStatus(ApiObject, frozen=True, kw_only=True):
    token: str = required(str)
    expiration_timestamp: Time | None = None


class TokenRequest(ApiObject, frozen=True, kw_only=True):
    """Asks for a token of a service account."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: TokenRequestSpec = TokenRequestSpec()
    status: TokenRequestStatus = TokenRequestStatus()


class TokenReviewSpec(ApiObject, frozen=True, kw_only=True):
    token: str = ""
    audiences: tuple[str, ...] = ()


class TokenReviewStatus(ApiObject, frozen=True, kw_only=True):
    authenticated: bool = False
    user: UserInfo = UserInfo()
    audiences: tuple[str, ...] = ()
    error: str = ""


class TokenReview(ApiObject, frozen=True, kw_only=True):
    """Asks whom a token belongs to."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: TokenReviewSpec = TokenReviewSpec()
    status: TokenReviewStatus = TokenReviewStatus()

"""Requests that are answered and not stored: reviews of tokens and of access, and tokens for service accounts."""

import re
from datetime import timedelta
from typing import Final, Protocol, TypeVar

from msgspec.structs import replace

from klet.api.authentication import TokenRequest, TokenRequestStatus, TokenReview, TokenReviewStatus, UserInfo
from klet.api.authorization import SubjectAccessReview, SubjectAccessReviewSpec, SubjectAccessReviewStatus
from klet.api.base import ApiObject
from klet.api.codec import DecodeError, decode
from klet.api.kinds import find_kind
from klet.api.times import Time
from klet.embedded import refusals
from klet.embedded.identities import ApiUser, Bound, Identities
from klet.embedded.store import Key, Store

T = TypeVar("T", bound=ApiObject)

DEFAULT_LIFETIME: Final = 3600
_REVIEW_OF_IDENTITY: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
_REVIEW_OF_ACCESS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_TOKEN: Final = re.compile(r"/api/v1/namespaces/([^/]+)/serviceaccounts/([^/]+)/token")


class Rights(Protocol):
    """Decides what users may do."""

    def allows(self, asked: SubjectAccessReviewSpec) -> bool: ...


class ReviewAnswers:
    """Answers what is asked with a POST."""

    def __init__(self, *, store: Store, identities: Identities, rights: Rights) -> None:
        self._store = store
        self._identities = identities
        self._rights = rights

    def answer(self, method: str, path: str, body: bytes) -> ApiObject | None:
        """Return the answer; None if this is no question. Raises RequestRefused."""
        if method != "POST":
            return None
        if path == _REVIEW_OF_IDENTITY:
            return self._review_token(_read(TokenReview, body))
        if path == _REVIEW_OF_ACCESS:
            return self._review_access(_read(SubjectAccessReview, body))
        if (named := _TOKEN.fullmatch(path)) is not None:
            return self._make_token(named[1], named[2], _read(TokenRequest, body))
        return None

    def _review_token(self, review: TokenReview) -> TokenReview:
        if not review.spec.token:
            raise refusals.bad_request("token is required for TokenReview in authentication")
        user = self._identities.review(review.spec.token, review.spec.audiences)
        if user is None:
            return replace(review, status=TokenReviewStatus(error="invalid bearer token"))
        info = UserInfo(username=user.name, uid=user.uid, groups=user.groups, extra=user.extra)
        return replace(review, status=TokenReviewStatus(authenticated=True, user=info, audiences=review.spec.audiences))

    def _review_access(self, review: SubjectAccessReview) -> SubjectAccessReview:
        asked = ApiUser(review.spec.user, groups=review.spec.groups)
        allowed = asked.may_do_everything or self._rights.allows(review.spec)
        return replace(review, status=SubjectAccessReviewStatus(allowed=allowed))

    def _make_token(self, namespace: str, account: str, request: TokenRequest) -> TokenRequest:
        kind = find_kind("v1", "ServiceAccount")
        assert kind is not None
        if self._store.get(Key("serviceaccounts", namespace, account)) is None:
            raise refusals.not_found(kind, account)
        wanted = request.spec.bound_object_ref
        bound = Bound(namespace, account, request.spec.audiences)
        if wanted is not None:
            self._check_pod(namespace, account, wanted.name, wanted.uid)
            bound = Bound(namespace, account, request.spec.audiences, wanted.kind, wanted.name)
        seconds = request.spec.expiration_seconds or DEFAULT_LIFETIME
        token, until = self._identities.issue(bound, timedelta(seconds=seconds))
        spec = replace(request.spec, expiration_seconds=seconds)
        return replace(request, spec=spec, status=TokenRequestStatus(token=token, expiration_timestamp=Time.of(until)))

    def _check_pod(self, namespace: str, account: str, name: str, uid: str) -> None:
        kind = find_kind("v1", "Pod")
        assert kind is not None
        pod = self._store.get(Key("pods", namespace, name))
        if pod is None:
            raise refusals.not_found(kind, name)
        if uid and uid != pod["metadata"]["uid"]:
            why = (
                f"the UID in the bound object reference ({uid}) does not match the UID in record."
                " The object might have been deleted and then recreated"
            )
            raise refusals.conflict(kind, name, why)
        if pod["spec"].get("serviceAccountName", "") != account:
            message = (
                f'cannot bind token for serviceaccount "{account}" to pod running with different serviceaccount name.'
            )
            raise refusals.bad_request(message)


class AllowEverything:
    """Authorizes every request: one machine, one owner."""

    def allows(self, asked: SubjectAccessReviewSpec) -> bool:
        return bool(asked.user)


def _read(struct: type[T], body: bytes) -> T:
    try:
        return decode(struct, body)
    except DecodeError as error:
        raise refusals.bad_request(f"{struct.__name__} cannot be read: {error}") from error

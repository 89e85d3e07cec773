"""When a token of a service account has to be renewed, and under which key it is kept. Pure."""

from datetime import datetime, timedelta
from typing import Final, NamedTuple

from klet.api.authentication import BoundObjectReference, TokenRequest

LONGEST_USE: Final = timedelta(hours=24)
LONGEST_JITTER: Final = 10
"""Seconds, not reached."""
_LAST_PART: Final = 20
"""Percent of its life in which a token is renewed."""


class TokenKey(NamedTuple):
    """A token request. What the server made of it, such as another lifetime, is not part of it."""

    account: str
    namespace: str
    audiences: tuple[str, ...]
    seconds: int
    bound: BoundObjectReference | None
    request_uid: str

    def __str__(self) -> str:
        audiences = "{" + ", ".join(map(_quoted, self.audiences)) + "}" if self.audiences else "(nil)"
        bound = self.bound or BoundObjectReference()
        shown = ", ".join(
            f"{name}:{_quoted(value)}"
            for name, value in (
                ("Kind", bound.kind),
                ("APIVersion", bound.api_version),
                ("Name", bound.name),
                ("UID", bound.uid),
            )
        )
        account, namespace, uid = map(_quoted, (self.account, self.namespace, self.request_uid))
        return f"{account}/{namespace}/[]string{audiences}/{self.seconds}/v1.BoundObjectReference{{{shown}}}/{uid}"


def token_key(namespace: str, account: str, request: TokenRequest) -> TokenKey:
    spec = request.spec
    return TokenKey(
        account=account,
        namespace=namespace,
        audiences=spec.audiences,
        seconds=spec.expiration_seconds or 0,
        bound=spec.bound_object_ref,
        request_uid=request.metadata.uid,
    )


def refresh_due(issued: TokenRequest, *, jitter: timedelta) -> datetime | None:
    """Return when to renew a token: near its end, or after a day; None for one of unknown lifetime."""
    seconds, until = issued.spec.expiration_seconds, issued.status.expiration_timestamp
    if seconds is None or until is None:
        return None
    try:
        made = until - timedelta(seconds=seconds)
        near_end = until - timedelta(seconds=seconds * _LAST_PART // 100)
        return min(made + LONGEST_USE, near_end) - jitter
    except OverflowError:
        return None  # no lifetime of this calendar


def refresh_after(issued: TokenRequest) -> timedelta | None:
    """Return how long after it was issued a token is renewed at the latest, whatever the node's own clock says."""
    seconds = issued.spec.expiration_seconds
    if seconds is None:
        return None
    return timedelta(seconds=min(LONGEST_USE.total_seconds(), seconds - seconds * _LAST_PART // 100))


def has_expired(issued: TokenRequest, now: datetime) -> bool:
    until = issued.status.expiration_timestamp
    return until is not None and now > until


def _quoted(text: str) -> str:
    return f'"{text}"'

"""A user, and the credentials of a request. Pure."""

import base64
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from msgspec import Struct, field

ANONYMOUS: Final = "system:anonymous"
UNAUTHENTICATED: Final = "system:unauthenticated"
AUTHENTICATED: Final = "system:authenticated"
TOKEN_PROTOCOL: Final = "base64url.bearer.authorization.k8s.io."  # noqa: S105 - the prefix of a header's value


class User(Struct, frozen=True):
    """The user of a request (upstream: user.Info)."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def is_anonymous(self) -> bool:
        return UNAUTHENTICATED in self.groups


class Rejected(Struct, frozen=True):
    """Credentials that are wrong, or could not be checked. They do not make a client anonymous."""

    reason: str


Verdict: TypeAlias = User | Rejected | None
"""None: there were no credentials of that kind."""


def anonymous() -> User:
    return User(ANONYMOUS, groups=(UNAUTHENTICATED,))


def as_authenticated(user: User) -> User:
    """Add the group `system:authenticated` to every user but anonymous ones."""
    if AUTHENTICATED in user.groups or UNAUTHENTICATED in user.groups:
        return user
    return User(user.name, user.uid, (*user.groups, AUTHENTICATED), user.extra)


def read_bearer(authorization: str) -> str:
    """Return the token of an Authorization header; empty if it has none."""
    parts = authorization.strip().split(" ", 2)
    return parts[1] if len(parts) > 1 and parts[0].lower() == "bearer" else ""


def read_token_protocol(protocols: Iterable[str]) -> str | Rejected:
    """Return the token among a WebSocket's subprotocols (browsers cannot set headers); empty if there is none."""
    offered = _offered(protocols)
    tokens = [each.removeprefix(TOKEN_PROTOCOL) for each in offered if each.startswith(TOKEN_PROTOCOL)]
    if not tokens:
        return ""
    if len(tokens) > 1:
        return Rejected("multiple base64.bearer.authorization tokens specified")
    try:
        token = base64.b64decode(tokens[0] + "=" * (-len(tokens[0]) % 4), altchars=b"-_", validate=True).decode()
    except ValueError:  # no base64, no ASCII, or no UTF-8 in it
        return Rejected("invalid base64.bearer.authorization token encoding")
    if token and len(offered) == 1:
        return Rejected("missing additional subprotocol")
    return token


def without_token(protocols: str) -> str:
    """Return a subprotocol header as it is passed on: the token stays here."""
    return ",".join(each for each in _offered([protocols]) if not each.startswith(TOKEN_PROTOCOL))


def _offered(protocols: Iterable[str]) -> list[str]:
    return [each.strip() for header in protocols for each in header.split(",")]

"""Builds the auth filter that the configuration asks for."""

import random
from typing import Final

from msgspec import Struct

from klet.aio.clock import Clock
from klet.config.sections import Authentication, Authorization
from klet.errors import KletError
from klet.server.auth.access import AccessReviews, AccessSettings, AlwaysAllow, Authorizer
from klet.server.auth.certificates import CertificateAuthenticator, ClientAuthorities
from klet.server.auth.filter import AuthFilter
from klet.server.auth.reviews import Retrying, Reviewer
from klet.server.auth.tokens import TokenAuthenticator

_ALWAYS_ALLOW: Final = "AlwaysAllow"


class AuthError(KletError):
    """Settings that would refuse every client, or admit every client."""


class AuthSettings(Struct, frozen=True, kw_only=True):
    """`authentication`, `authorization`, the node's name and the gate KubeletFineGrainedAuthz."""

    authentication: Authentication
    authorization: Authorization
    node_name: str
    is_fine_grained: bool
    streams_by_method: bool = False
    """`streamsByMethod` of the KletConfiguration."""


def build_auth_filter(
    settings: AuthSettings,
    *,
    reviewer: Reviewer | None,
    authorities: ClientAuthorities | None,
    randomness: random.Random,
    clock: Clock,
) -> AuthFilter:
    """Build the filter. Raises AuthError. Without an API server there are no token and access reviews."""
    authentication = settings.authentication
    asks_about_tokens = authentication.webhook.enabled
    if not (asks_about_tokens or authorities is not None or authentication.anonymous.enabled):
        raise AuthError(
            "no authentication method configured: set authentication.x509.clientCAFile, "
            "authentication.webhook.enabled or authentication.anonymous.enabled"
        )
    if asks_about_tokens and reviewer is None:
        raise AuthError(
            "no client provided, cannot use webhook authentication: "
            "give --kubeconfig or set authentication.webhook.enabled to false"
        )
    retrying = Retrying(clock=clock, randomness=randomness)
    tokens = None
    if asks_about_tokens and reviewer is not None:
        tokens = TokenAuthenticator(
            reviewer=reviewer, retrying=retrying, keep=authentication.webhook.cache_ttl, clock=clock
        )
    certificates = None
    if authorities is not None:
        certificates = CertificateAuthenticator(authorities=authorities, clock=clock)
    return AuthFilter(
        certificates=certificates,
        tokens=tokens,
        authorizer=_authorizer(settings, reviewer, retrying, clock),
        allows_anonymous=authentication.anonymous.enabled,
        is_fine_grained=settings.is_fine_grained,
        streams_by_method=settings.streams_by_method,
    )


def _authorizer(settings: AuthSettings, reviewer: Reviewer | None, retrying: Retrying, clock: Clock) -> Authorizer:
    mode = settings.authorization.mode
    if mode == _ALWAYS_ALLOW:
        return AlwaysAllow()
    if not mode:
        raise AuthError("no authorization mode specified: set authorization.mode to Webhook or AlwaysAllow")
    if mode != "Webhook":
        raise AuthError(f'unknown authorization mode "{mode}": authorization.mode is Webhook or AlwaysAllow')
    if reviewer is None:
        raise AuthError(
            "no client provided, cannot use webhook authorization: "
            "give --kubeconfig or set authorization.mode to AlwaysAllow"
        )
    webhook = settings.authorization.webhook
    access = AccessSettings(
        node_name=settings.node_name,
        keep_allowed=webhook.cache_authorized_ttl,
        keep_denied=webhook.cache_unauthorized_ttl,
    )
    return AccessReviews(reviewer=reviewer, retrying=retrying, settings=access, clock=clock)

"""The check before every registered path: authentication, then authorization (upstream: the auth filter)."""

import logging
from collections.abc import Mapping
from typing import Final, TypeAlias

from msgspec import Struct, field

from klet.errors import level_for
from klet.kube.errors import KubeError
from klet.model.foreign_text import shorten
from klet.server.auth.access import Authorizer
from klet.server.auth.attributes import read_attributes
from klet.server.auth.certificates import CertificateAuthenticator, PresentedCertificate
from klet.server.auth.identity import (
    Rejected,
    User,
    Verdict,
    anonymous,
    as_authenticated,
    read_bearer,
    read_token_protocol,
)
from klet.server.auth.reviews import TooManyReviews
from klet.server.auth.tokens import TokenAuthenticator

logger = logging.getLogger(__name__)

_LONGEST_PATH: Final = 256
"""Bytes of a path in the log, which unauthenticated clients write."""


class AuthRequest(Struct, frozen=True, kw_only=True):
    """The part of a request that the check needs."""

    method: str
    path: str
    authorization: str = ""
    protocols: tuple[str, ...] = ()
    """The subprotocols of a WebSocket; none if it is no WebSocket."""
    client: str = ""
    """Where it comes from: its address."""
    certificate: PresentedCertificate | Rejected | None = None
    """What the client has shown in the handshake."""


class AuthRefusal(Struct, frozen=True):
    """Why a request is not served: an HTTP status, its body and headers."""

    status: int
    body: str
    headers: Mapping[str, str] = field(default_factory=dict)


AuthResult: TypeAlias = User | AuthRefusal
_UNAUTHORIZED: Final = AuthRefusal(401, "Unauthorized")
_TOO_MANY: Final = AuthRefusal(429, "Too many requests, please try again later.", {"Retry-After": "1"})


class AuthFilter:
    """Authenticates and authorizes requests. What is not configured is None."""

    def __init__(
        self,
        *,
        certificates: CertificateAuthenticator | None,
        tokens: TokenAuthenticator | None,
        authorizer: Authorizer,
        allows_anonymous: bool,
        is_fine_grained: bool,
        streams_by_method: bool = False,
    ) -> None:
        self._certificates = certificates
        self._tokens = tokens
        self._authorizer = authorizer
        self._allows_anonymous = allows_anonymous
        self._is_fine_grained = is_fine_grained
        self._streams_by_method = streams_by_method

    async def check(self, request: AuthRequest) -> AuthResult:
        try:
            user = await self._authenticate(request)
            if user is None:
                return _UNAUTHORIZED
            return await self._authorize(user, request)
        except TooManyReviews as error:
            logger.debug("Request refused", extra={"path": shorten(request.path, _LONGEST_PATH), "error": str(error)})
            return _TOO_MANY

    async def _authenticate(self, request: AuthRequest) -> User | None:
        certificate = self._by_certificate(request)
        if isinstance(certificate, User):
            return as_authenticated(certificate)
        token = await self._by_token(request)
        if isinstance(token, User):
            return as_authenticated(token)
        wrong = [verdict.reason for verdict in (certificate, token) if verdict is not None]
        if wrong:
            logger.info(
                "Credentials refused", extra={"path": shorten(request.path, _LONGEST_PATH), "error": "; ".join(wrong)}
            )
            return None
        return anonymous() if self._allows_anonymous else None

    def _by_certificate(self, request: AuthRequest) -> Verdict:
        return self._certificates.authenticate(request.certificate) if self._certificates is not None else None

    async def _by_token(self, request: AuthRequest) -> Verdict:
        if self._tokens is None:
            return None
        header = await self._tokens.authenticate(read_bearer(request.authorization), client=request.client)
        if isinstance(header, User):
            return header
        offered = read_token_protocol(request.protocols)
        protocol = (
            offered
            if isinstance(offered, Rejected)
            else await self._tokens.authenticate(offered, client=request.client)
        )
        return protocol or header

    async def _authorize(self, user: User, request: AuthRequest) -> AuthResult:
        attributes = read_attributes(
            request.method,
            request.path,
            is_fine_grained=self._is_fine_grained,
            streams_by_method=self._streams_by_method,
        )
        who = f"user={user.name}, verb={attributes.verb}, resource=nodes"
        for subresource in attributes.subresources:
            try:
                if await self._authorizer.allows(user, attributes.verb, subresource):
                    return user
            except KubeError as error:
                extra = {"user": user.name, "subresource": subresource, "error": str(error)}
                logger.log(level_for(error), "Authorization could not be decided", extra=extra)
                return AuthRefusal(500, f"Authorization error ({who}, subresource={subresource})")
        path = shorten(request.path, _LONGEST_PATH)
        logger.info("Request forbidden", extra={"user": user.name, "verb": attributes.verb, "path": path})
        return AuthRefusal(403, f"Forbidden ({who}, subresource(s)=[{' '.join(attributes.subresources)}])\n")

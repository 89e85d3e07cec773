"""Tokens of service accounts: requested for pods, kept, renewed before they expire (token manager)."""

import logging
import random
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from klet.aio.clock import Clock
from klet.aio.turns import Turns
from klet.api.authentication import TokenRequest
from klet.api.config import ServiceAccount
from klet.errors import KletError, level_for
from klet.kube.authorizer_lag import once_allowed
from klet.kube.errors import NotFound
from klet.model.objects import IssuedToken
from klet.model.pods import PodUID
from klet.model.roles import TokenClient
from klet.objectcache.errors import TokenFailed
from klet.objectcache.token_rules import (
    LONGEST_JITTER,
    TokenKey,
    has_expired,
    refresh_after,
    refresh_due,
    token_key,
)

logger = logging.getLogger(__name__)

SWEEP: Final = timedelta(minutes=1)
AT_ONCE: Final = 8
"""Requests at a time: so the first pods of a full node have their tokens first, and connections are used again."""
LONGEST_TURN: Final = timedelta(seconds=1)
"""A request that takes longer keeps no other one waiting."""
_API_VERSION: Final = "authentication.k8s.io/v1"


class _Resource(msgspec.Struct, frozen=True):
    name: str = ""


class _Resources(msgspec.Struct, frozen=True):
    resources: tuple[_Resource, ...] = ()


class _Kept(Struct, frozen=True):
    issued: TokenRequest
    due: datetime | None
    renew_at: float | None
    """The same on the clock that never steps: a node whose time is behind must not miss the end of its tokens."""

    def is_due(self, clock: Clock) -> bool:
        return (self.due is not None and clock.now() >= self.due) or (
            self.renew_at is not None and clock.monotonic() >= self.renew_at
        )

    def as_issued(self, clock: Clock) -> IssuedToken:
        due = self.due
        if due is not None and self.renew_at is not None:
            due = min(due, clock.now() + timedelta(seconds=self.renew_at - clock.monotonic()))
        return IssuedToken(self.issued.status.token, due, self.issued.status.expiration_timestamp)


class TokenCache:
    """Tokens by their requests."""

    def __init__(self, *, client: TokenClient, randomness: random.Random, clock: Clock) -> None:
        self._client = client
        self._randomness = randomness
        self._clock = clock
        self._turns = Turns(at_once=AT_ONCE, longest=LONGEST_TURN, clock=clock)
        self._kept: dict[TokenKey, _Kept] = {}
        self._has_tokens = False
        """Whether the API server is known to make tokens at all."""

    async def run(self) -> None:
        """Forget tokens that have run out."""
        while True:
            await self._clock.sleep(SWEEP)
            now = self._clock.now()
            self._kept = {key: kept for key, kept in self._kept.items() if not has_expired(kept.issued, now)}

    async def get(self, namespace: str, account: str, request: TokenRequest) -> IssuedToken:
        """Return a token that is good for a while; the kept one if no new one is given out and it is still good."""
        key = token_key(namespace, account, request)
        kept = self._kept.get(key)
        if kept is not None and not kept.is_due(self._clock):
            return kept.as_issued(self._clock)
        try:
            issued = await self._ask(namespace, account, request)
        except KletError as error:
            if kept is None:
                raise TokenFailed(f"failed to fetch token: {error}") from error
            if has_expired(kept.issued, self._clock.now()):
                raise TokenFailed(f"token {key} expired and refresh failed: {error}") from error
            extra = {"account": account, "namespace": namespace, "error": str(error)}
            logger.log(level_for(error), "Token not renewed", extra=extra)
            return kept.as_issued(self._clock)
        kept = self._kept[key] = self._keep(issued)
        return kept.as_issued(self._clock)

    def forget_pod(self, uid: PodUID) -> None:
        """Drop the tokens that are bound to a pod."""
        self._kept = {key: kept for key, kept in self._kept.items() if key.bound is None or key.bound.uid != uid}

    def __len__(self) -> int:
        return len(self._kept)

    def _keep(self, issued: TokenRequest) -> _Kept:
        jitter = timedelta(seconds=self._randomness.randrange(LONGEST_JITTER))
        after = refresh_after(issued)
        renew_at = None if after is None else self._clock.monotonic() + (after - jitter).total_seconds()
        return _Kept(issued, refresh_due(issued, jitter=jitter), renew_at)

    async def _ask(self, namespace: str, account: str, request: TokenRequest) -> TokenRequest:
        body = replace(request, api_version=_API_VERSION, kind="TokenRequest")

        async def ask() -> TokenRequest:
            with self._turns.queue() as turn:
                await turn.take()
                return await self._client.create_sub(ServiceAccount, account, namespace, "token", body)

        try:
            return await (ask() if request.spec.bound_object_ref is None else once_allowed(ask, self._clock))
        except NotFound as error:
            if await self._makes_tokens():
                raise
            raise TokenFailed("the API server does not have TokenRequest endpoints enabled") from error

    async def _makes_tokens(self) -> bool:
        """Return whether the account exists, to distinguish a missing one from an API server that makes no tokens."""
        if not self._has_tokens:
            try:
                found = msgspec.json.decode(await self._client.read("/api/v1"), type=_Resources)
            except (KletError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                logger.log(level_for(error), "Discovery failed", extra={"error": str(error)})
                return True  # unknown, and the server's answer to this request is better than a guess
            self._has_tokens = any(resource.name == "serviceaccounts/token" for resource in found.resources)
        return self._has_tokens

"""Tokens of service accounts, kept sealed until they run out, for pods that start while the API server is away."""

import hashlib
from collections.abc import Callable, Iterable
from typing import TypeVar

from klet.aio.clock import Clock
from klet.api.authentication import TokenRequest
from klet.api.base import ApiObject
from klet.kube.errors import ApiError, KubeError
from klet.kube.reach import FAILING
from klet.model.pods import PodUID
from klet.model.roles import TokenClient
from klet.offline.object_files import Files, file_stem

S = TypeVar("S", bound=ApiObject)

SUBRESOURCE = "token"


class KeptTokens:
    """A client that remembers the tokens it got. Only those that die with a pod are kept."""

    def __init__(
        self, *, inner: TokenClient, files: Files[TokenRequest], is_away: Callable[[], bool], clock: Clock
    ) -> None:
        self._inner = inner
        self._files = files
        self._is_away = is_away
        self._clock = clock

    async def read(self, path: str) -> bytes:
        return await self._inner.read(path)

    async def create_sub(self, struct: type[ApiObject], name: str, namespace: str, subresource: str, body: S) -> S:
        """Request a token, unless the API server is away and a kept one is still valid."""
        owner = _owner(name, namespace, subresource, body)
        if owner is not None and self._is_away() and (kept := await self._find(owner, body)) is not None:
            return kept
        try:
            issued = await self._inner.create_sub(struct, name, namespace, subresource, body)
        except KubeError as error:
            if owner is None or _is_refusal(error) or (kept := await self._find(owner, body)) is None:
                raise
            return kept
        if owner is not None and isinstance(issued, TokenRequest):
            digest = hashlib.sha256(issued.status.token.encode()).hexdigest()
            await self._files.keep(owner, issued, version=digest)
        return issued

    async def _find(self, owner: str, body: S) -> S | None:
        known = await self._files.find(owner)
        if known is None or known.value is None or not isinstance(known.value, type(body)):
            return None
        until = known.value.status.expiration_timestamp
        return known.value if until is not None and self._clock.now() < until else None


async def forget_tokens(pods: Iterable[PodUID], files: Files[TokenRequest]) -> None:
    """Remove the tokens of all other pods."""
    begins = tuple(file_stem(f"{uid}/") for uid in pods)
    await files.retain(lambda name: name.startswith(begins))


def _owner(account: str, namespace: str, subresource: str, body: ApiObject) -> str | None:
    if subresource != SUBRESOURCE or not isinstance(body, TokenRequest) or body.spec.bound_object_ref is None:
        return None
    spec = body.spec
    audiences = ",".join(spec.audiences)
    return f"{body.spec.bound_object_ref.uid}/{namespace}/{account}/{spec.expiration_seconds or 0}/{audiences}"


def _is_refusal(error: KubeError) -> bool:
    return isinstance(error, ApiError) and error.status.code < FAILING

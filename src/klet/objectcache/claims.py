"""Claims and the volumes that they are bound to, read from the API server when they are needed.

A node may only get those that its pods use, one by one: there is nothing to watch, and nothing is kept.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from klet.aio.clock import Clock
from klet.api.claim import PersistentVolumeClaim
from klet.api.storage import PersistentVolume
from klet.kube.authorizer_lag import once_allowed
from klet.objectcache.errors import Standalone
from klet.objectcache.standalone import NO_OBJECTS
from klet.objectcache.store import A, ObjectClient


class ClaimClient(ObjectClient, Protocol):
    """The part of the API client that changes a status, too."""

    async def patch(
        self, struct: type[A], name: str, namespace: str = "", *, patch: Mapping[str, Any], subresource: str = ""
    ) -> A: ...


class ClusterClaims:
    """Asks the API server each time."""

    def __init__(self, *, client: ClaimClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def claim(self, namespace: str, name: str) -> PersistentVolumeClaim:
        return await once_allowed(lambda: self._client.get(PersistentVolumeClaim, name, namespace), self._clock)

    async def persistent_volume(self, name: str) -> PersistentVolume:
        return await once_allowed(lambda: self._client.get(PersistentVolume, name), self._clock)

    async def patch_claim_status(self, namespace: str, name: str, patch: Mapping[str, Any]) -> PersistentVolumeClaim:
        return await self._client.patch(PersistentVolumeClaim, name, namespace, patch=patch, subresource="status")


class StandaloneClaims:
    """No claims: there is no API server."""

    async def claim(self, namespace: str, name: str) -> PersistentVolumeClaim:  # noqa: ARG002 - the role's arguments
        raise Standalone(NO_OBJECTS)

    async def persistent_volume(self, name: str) -> PersistentVolume:  # noqa: ARG002 - the role's arguments
        raise Standalone(NO_OBJECTS)

    async def patch_claim_status(
        self,
        namespace: str,  # noqa: ARG002 - the role's arguments
        name: str,  # noqa: ARG002 - the role's arguments
        patch: Mapping[str, Any],  # noqa: ARG002 - the role's arguments
    ) -> PersistentVolumeClaim:
        raise Standalone(NO_OBJECTS)

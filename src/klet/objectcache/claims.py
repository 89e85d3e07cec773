"""Claims and the volumes that they are bound to, read from the API server when they are needed.

A node may only get those that its pods use, one by one: there is nothing to watch, and nothing is kept.
"""

from klet.api.claim import PersistentVolumeClaim
from klet.api.storage import PersistentVolume
from klet.objectcache.errors import Standalone
from klet.objectcache.standalone import NO_OBJECTS
from klet.objectcache.store import ObjectClient


class ClusterClaims:
    """Asks the API server each time."""

    def __init__(self, *, client: ObjectClient) -> None:
        self._client = client

    async def claim(self, namespace: str, name: str) -> PersistentVolumeClaim:
        return await self._client.get(PersistentVolumeClaim, name, namespace)

    async def persistent_volume(self, name: str) -> PersistentVolume:
        return await self._client.get(PersistentVolume, name)


class StandaloneClaims:
    """No claims: there is no API server."""

    async def claim(self, namespace: str, name: str) -> PersistentVolumeClaim:  # noqa: ARG002 - the role's arguments
        raise Standalone(NO_OBJECTS)

    async def persistent_volume(self, name: str) -> PersistentVolume:  # noqa: ARG002 - the role's arguments
        raise Standalone(NO_OBJECTS)

"""Attachments and secrets of CSI volumes, read from the API server when they are needed: nothing is kept."""

from collections.abc import Mapping

from klet.api.config import Secret
from klet.api.storage import VolumeAttachment
from klet.objectcache.errors import Standalone, UnusableSecret
from klet.objectcache.standalone import NO_OBJECTS
from klet.objectcache.store import ObjectClient


class ClusterCsiObjects:
    """Asks the API server each time."""

    def __init__(self, *, client: ObjectClient) -> None:
        self._client = client

    async def attachment(self, name: str) -> VolumeAttachment:
        return await self._client.get(VolumeAttachment, name)

    async def secret_data(self, namespace: str, name: str) -> Mapping[str, str]:
        """Return the content of a secret as text, which is all that drivers can be given."""
        secret = await self._client.get(Secret, name, namespace)
        try:
            return {key: value.decode() for key, value in secret.data.items()}
        except UnicodeDecodeError as error:
            raise UnusableSecret(f'secret "{namespace}/{name}" has a value that is not UTF-8') from error


class StandaloneCsiObjects:
    """None: there is no API server."""

    async def attachment(self, name: str) -> VolumeAttachment:  # noqa: ARG002 - the role's arguments
        raise Standalone(NO_OBJECTS)

    async def secret_data(self, namespace: str, name: str) -> Mapping[str, str]:  # noqa: ARG002 - the role's arguments
        raise Standalone(NO_OBJECTS)

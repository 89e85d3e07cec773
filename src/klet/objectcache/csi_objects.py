"""Attachments and secrets of CSI volumes, read from the API server when they are needed: nothing is kept."""

from collections.abc import Mapping

from klet.aio.clock import Clock
from klet.api.config import Secret
from klet.api.storage import VolumeAttachment
from klet.kube.authorizer_lag import once_allowed
from klet.objectcache.errors import Standalone, UnusableSecret
from klet.objectcache.standalone import NO_OBJECTS
from klet.objectcache.store import ObjectClient


class ClusterCsiObjects:
    """Asks the API server each time."""

    def __init__(self, *, client: ObjectClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def attachment(self, name: str) -> VolumeAttachment:
        return await once_allowed(lambda: self._client.get(VolumeAttachment, name), self._clock)

    async def secret_data(self, namespace: str, name: str) -> Mapping[str, str]:
        """Return the content of a secret as text, which is all that drivers can be given."""
        secret = await once_allowed(lambda: self._client.get(Secret, name, namespace), self._clock)
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

"""Service accounts, read from the API server each time: their annotations say what credential providers may do."""

from klet.aio.clock import Clock
from klet.api.config import ServiceAccount
from klet.kube.authorizer_lag import once_allowed
from klet.objectcache.store import ObjectClient


class ClusterAccounts:
    """Reads accounts of the node's pods."""

    def __init__(self, *, client: ObjectClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def get(self, namespace: str, name: str) -> ServiceAccount:
        """Return an account; raises KubeError."""
        return await once_allowed(lambda: self._client.get(ServiceAccount, name, namespace), self._clock)

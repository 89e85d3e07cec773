"""What the CSI plugin needs from other parts."""

from collections.abc import Mapping
from typing import Protocol

from klet.api.authentication import TokenRequest
from klet.api.storage import CSIDriver, VolumeAttachment
from klet.model.objects import IssuedToken


class DriverEndpoints(Protocol):
    """Knows the drivers that are registered on this node."""

    def endpoint(self, driver: str) -> str | None:
        """Return the socket of a driver; None while it is not registered."""
        ...


class DriverObjects(Protocol):
    """Knows the CSIDriver objects."""

    @property
    def is_synced(self) -> bool:
        """Return whether all of them are known."""
        ...

    def driver(self, name: str) -> CSIDriver | None: ...


class CsiObjects(Protocol):
    """Reads objects from the API server each time. A failure is a KletError."""

    async def attachment(self, name: str) -> VolumeAttachment: ...

    async def secret_data(self, namespace: str, name: str) -> Mapping[str, str]: ...


class AccountTokens(Protocol):
    """Gets tokens of service accounts."""

    async def get(self, namespace: str, account: str, request: TokenRequest) -> IssuedToken: ...


class LimitRefresh(Protocol):
    """Has the limits of a driver read again. A failure is logged by it."""

    async def refresh_limits(self, driver: str) -> None: ...

"""What the CSI plugin needs from other parts."""

from collections.abc import Mapping
from typing import Protocol

from klet.api.storage import CSIDriver, VolumeAttachment


class KnownDrivers(Protocol):
    """Knows the CSIDriver objects, as far as they are known now."""

    @property
    def is_synced(self) -> bool:
        """Return whether all of them are known. Until then a driver only seems to have no object."""
        ...

    def get(self, name: str) -> CSIDriver | None: ...


class CsiObjects(Protocol):
    """Reads objects from the API server each time. A failure is a KletError."""

    async def attachment(self, name: str) -> VolumeAttachment: ...

    async def secret_data(self, namespace: str, name: str) -> Mapping[str, str]: ...


class LimitRefresh(Protocol):
    """Has a driver asked again how many volumes the node can have. A failure is a KletError."""

    async def refresh(self, name: str) -> None: ...

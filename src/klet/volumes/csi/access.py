"""Drivers and the objects about them, as each operation needs them. What is not there yet is a TransientFailure."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from klet.api.storage import CSIDriver, VolumeAttachment
from klet.csi.client import CsiClient, CsiConnector
from klet.csi.connection import DriverAddress
from klet.csi.errors import CsiError
from klet.errors import KletError
from klet.model.roles import RegisteredDrivers
from klet.volumes.csi import driver_rules
from klet.volumes.csi.places import PREFIX, attachment_name
from klet.volumes.csi.roles import CsiObjects, KnownDrivers
from klet.volumes.csi.source import CsiSource
from klet.volumes.errors import TransientFailure, UncertainProgress
from klet.volumes.spec import SecretName

NOT_SYNCED: Final = "the CSIDriver objects are not known yet"


class CsiAccess:
    """Finds drivers, what their CSIDriver objects say, attachments and secrets."""

    def __init__(
        self,
        *,
        registered: RegisteredDrivers,
        known: KnownDrivers,
        objects: CsiObjects,
        connector: CsiConnector,
        node: str,
    ) -> None:
        self._registered = registered
        self._known = known
        self._objects = objects
        self._connector = connector
        self.node = node

    @asynccontextmanager
    async def open(self, driver: str, *, failure: str, is_migrated: bool = False) -> AsyncIterator[CsiClient]:
        """Yield a client of a driver for one operation. `failure` is the beginning of the message without a driver."""
        if not driver:
            raise TransientFailure(f"{PREFIX}{failure}: driver name is empty")
        found = self._registered.find(driver)
        if found is None:
            missing = f"driver name {driver} not found in the list of registered CSI drivers"
            raise TransientFailure(f"{PREFIX}{failure}: {missing}")
        address = DriverAddress(driver=driver, endpoint=found.endpoint, is_migrated=is_migrated)
        async with self._connector.open(address) as client:
            yield client

    @property
    def is_synced(self) -> bool:
        return self._known.is_synced

    def find_object(self, driver: str) -> CSIDriver | None:
        """Return what is known now: None also while nothing is."""
        return self._known.get(driver)

    def object_of(self, driver: str) -> CSIDriver | None:
        if not self._known.is_synced:
            raise TransientFailure(f"{PREFIX}{NOT_SYNCED}")
        return self._known.get(driver)

    async def attachment(self, source: CsiSource) -> VolumeAttachment:
        return await self._objects.attachment(attachment_name(source.handle, source.driver, self.node))

    async def publish_context(self, source: CsiSource) -> Mapping[str, str]:
        """Return what attaching has found out; nothing for a driver whose volumes are not attached."""
        if not driver_rules.requires_attach(self.object_of(source.driver)):
            return {}
        try:
            return (await self.attachment(source)).status.attachment_metadata
        except KletError as error:
            raise TransientFailure(str(error)) from error

    async def secret(self, ref: SecretName | None, *, failure: str) -> Mapping[str, str]:
        """Return the content of a secret; of none, nothing. `failure` has a place for the secret's name."""
        if ref is None:
            return {}
        try:
            return await self._objects.secret_data(ref.namespace, ref.name)
        except KletError as error:
            missing = f"failed to find the secret {ref.name} in the namespace {ref.namespace} with error: {error}"
            raise TransientFailure(f"{failure.format(ref)}: {PREFIX}{missing}") from error


def classify(error: CsiError) -> KletError:
    """Return the error of a stage or a publish as the manager understands it, with the same words."""
    return error if error.is_final else UncertainProgress(str(error))

"""What one node status is computed from, and its reading: the machine, the runtime and the parts of the agent at one
moment. Never waits long for any of them.
"""

import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, Protocol

from msgspec import Struct, field

from klet.aio.clock import Clock
from klet.aio.tasks import first_of
from klet.api.node import Node
from klet.api.times import Time
from klet.cri.errors import CriError
from klet.host.addresses import AddressFacts
from klet.host.errors import HostError
from klet.host.machine.cache import FactReader
from klet.host.machine.info import MachineInfo, SystemVersions
from klet.model.images import ImageRecord
from klet.model.unknown import Unknown
from klet.node.addresses import needs_lookup, preferred_version
from klet.node.capacity import DeviceResources
from klet.node.runtime_state import RuntimeReport, RuntimeState
from klet.node.settings import NodeSettings
from klet.wire import cri_v1_pb2 as cri

PATIENCE: Final = timedelta(seconds=2)
"""How long a status waits for an outside call: it must go out even if a resolver or the runtime hangs."""

_SEMANTIC: Final = re.compile(r"\s*v?(\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?)$")
_GENERIC: Final = re.compile(r"\s*v?(\d+(?:\.\d+)+)")


class StatusInputs(Struct, frozen=True, kw_only=True):
    """Everything that one node status is computed from."""

    now: Time
    machine: MachineInfo | Unknown
    versions: SystemVersions | Unknown
    runtime: RuntimeReport
    runtime_version: str = ""
    """As nodeInfo has it: `containerd://1.6.20`."""
    storage: int | None = None
    """The size of the filesystem with the root directory, if it counts."""
    addresses: AddressFacts = field(default_factory=AddressFacts)
    images: tuple[ImageRecord, ...] | Unknown = ()
    devices: DeviceResources = field(default_factory=DeviceResources)
    pressures: frozenset[str] = frozenset()
    """The pressure conditions that hold, by their types."""
    errors: tuple[str, ...] = ()
    """Why the node is not ready: of the runtime, the network, the storage, the shutdown, in this order."""
    warnings: tuple[str, ...] = ()
    """What is degraded on a node that is ready all the same."""
    volumes_in_use: tuple[str, ...] | None = None
    """None until the volumes of a previous run of the agent have been found."""


class Addresses(Protocol):
    """The addresses of the machine."""

    async def read(self, *, name: str, prefer: int, lookup: bool) -> AddressFacts: ...


class VersionCall(Protocol):
    """The part of the runtime that reports its version."""

    async def version(self, request: cri.VersionRequest) -> cri.VersionResponse: ...


class ListedImages(Protocol):
    """The images of the last listing."""

    @property
    def found(self) -> tuple[ImageRecord, ...] | Unknown: ...


def _nothing() -> None:
    return None


async def _no_storage() -> None:
    return None


class PartReports(Struct, frozen=True, kw_only=True):
    """What other parts of the agent report of the node, asked again for each status; a missing part reports nothing."""

    storage: Callable[[], Awaitable[int | None]] = _no_storage
    """The size of the filesystem with the root directory."""
    pressures: Callable[[], frozenset[str]] = frozenset
    devices: Callable[[], DeviceResources] = DeviceResources
    volumes_in_use: Callable[[], tuple[str, ...] | None] = _nothing
    storage_error: Callable[[], str | None] = _nothing
    shutdown_error: Callable[[], str | None] = _nothing
    warnings: Callable[[], tuple[str, ...]] = tuple
    """What is degraded; the message of Ready names it."""


class StatusInputsReader:
    """Reads the inputs of one status after the other."""

    def __init__(
        self,
        *,
        machine: FactReader,
        addresses: Addresses,
        health: RuntimeState,
        runtime: VersionCall,
        images: ListedImages,
        parts: PartReports,
        settings: NodeSettings,
        clock: Clock,
    ) -> None:
        self._machine = machine
        self._addresses = addresses
        self._health = health
        self._runtime = runtime
        self._images = images
        self._parts = parts
        self._settings = settings
        self._clock = clock
        self._runtime_name = "containerd"
        self._runtime_version = "Unknown"

    def errors(self) -> tuple[str, ...]:
        """Return why the node is not ready, at this moment."""
        others = (self._parts.storage_error(), self._parts.shutdown_error())
        return (*self.runtime_errors(), *(error for error in others if error is not None))

    def runtime_errors(self) -> tuple[str, ...]:
        """Return what the runtime and its network lack, at this moment."""
        network = self._health.network_error()
        return (*self._health.errors(), *((network,) if network is not None else ()))

    async def read(self, node: Node) -> StatusInputs:
        """Return everything about a node that looks like this now."""
        settings = self._settings
        addresses = await self._addresses.read(
            name=settings.name, prefer=preferred_version(settings), lookup=needs_lookup(node, settings)
        )
        self._runtime_version = "Unknown"
        await first_of(self._ask_version(), self._clock.sleep(PATIENCE))
        storage = await self._parts.storage() if settings.counts_storage else None
        return StatusInputs(
            now=Time.of(self._clock.now()),
            machine=self._read_machine(),
            versions=self._read_versions(),
            runtime=self._health.report,
            runtime_version=f"{self._runtime_name}://{self._runtime_version}",
            storage=storage,
            addresses=addresses,
            images=self._images.found,
            devices=self._parts.devices(),
            pressures=self._parts.pressures(),
            errors=self.errors(),
            warnings=self._parts.warnings(),
            volumes_in_use=self._parts.volumes_in_use(),
        )

    def _read_machine(self) -> MachineInfo | Unknown:
        try:
            return self._machine.info()
        except HostError as error:
            return Unknown(f"error getting machine info: {error}")

    def _read_versions(self) -> SystemVersions | Unknown:
        try:
            return self._machine.versions()
        except HostError as error:
            return Unknown(f"error getting version info: {error}")

    async def _ask_version(self) -> None:
        try:
            answer = await self._runtime.version(cri.VersionRequest())
        except CriError:
            return  # the runtime checks report what is wrong with it
        self._runtime_name = answer.runtime_name
        self._runtime_version = plain_version(answer.runtime_version)


def plain_version(text: str) -> str:
    """Return a version as upstream reports it: a semantic one whole, else its leading numbers ("1.6.20~ds1")."""
    found = _SEMANTIC.match(text) or _GENERIC.match(text)
    return "Unknown" if found is None else found[1]

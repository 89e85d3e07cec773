"""Gathers what a node status is computed from, and never waits long for anybody."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from klet.aio.clock import Clock
from klet.aio.tasks import first_of
from klet.api.node import Node
from klet.api.times import Time
from klet.cri.errors import CriError
from klet.node.addresses import needs_lookup, preferred_version
from klet.node.observation import (
    PATIENCE,
    AddressFacts,
    DeviceResources,
    ImageRecord,
    Machine,
    Observation,
    SystemVersions,
    Unknown,
)
from klet.node.runtime_state import RuntimeReport
from klet.node.settings import NodeSettings
from klet.wire import cri_v1_pb2 as cri

_SEMANTIC: Final = re.compile(r"\s*v?(\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?)$")
_GENERIC: Final = re.compile(r"\s*v?(\d+(?:\.\d+)+)")


class MachineFacts(Protocol):
    """What the machine says of itself."""

    def machine(self) -> Machine | Unknown: ...

    def versions(self) -> SystemVersions | Unknown: ...

    async def storage(self) -> int | None: ...

    async def addresses(self, *, name: str, prefer: int, lookup: bool) -> AddressFacts: ...


class RuntimeHealth(Protocol):
    """What is known of the runtime."""

    @property
    def report(self) -> RuntimeReport: ...

    def errors(self) -> tuple[str, ...]: ...

    def network_error(self) -> str | None: ...


class VersionCall(Protocol):
    """The part of the runtime that tells its version."""

    async def version(self, request: cri.VersionRequest) -> cri.VersionResponse: ...


class ListedImages(Protocol):
    """The images of the last listing."""

    @property
    def found(self) -> tuple[ImageRecord, ...] | Unknown: ...


def _nothing() -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInputs:
    """What other parts of the agent say of the node, asked anew for each status; a missing part says nothing."""

    pressures: Callable[[], frozenset[str]] = frozenset
    devices: Callable[[], DeviceResources] = DeviceResources
    volumes_in_use: Callable[[], tuple[str, ...] | None] = _nothing
    storage_error: Callable[[], str | None] = _nothing
    shutdown_error: Callable[[], str | None] = _nothing
    warnings: Callable[[], tuple[str, ...]] = tuple
    """What is degraded; the message of Ready names it."""


class NodeObserver:
    """Looks at the machine, the runtime and the other parts."""

    def __init__(
        self,
        *,
        machine: MachineFacts,
        health: RuntimeHealth,
        runtime: VersionCall,
        images: ListedImages,
        inputs: NodeInputs,
        settings: NodeSettings,
        clock: Clock,
    ) -> None:
        self._machine = machine
        self._health = health
        self._runtime = runtime
        self._images = images
        self._inputs = inputs
        self._settings = settings
        self._clock = clock
        self._runtime_name = "containerd"
        self._runtime_version = "Unknown"

    def errors(self) -> tuple[str, ...]:
        """Why the node is not ready, at this moment."""
        others = (self._health.network_error(), self._inputs.storage_error(), self._inputs.shutdown_error())
        return (*self._health.errors(), *(error for error in others if error is not None))

    async def observe(self, node: Node) -> Observation:
        """Everything about a node that looks like this now."""
        settings = self._settings
        addresses = await self._machine.addresses(
            name=settings.name, prefer=preferred_version(settings), lookup=needs_lookup(node, settings)
        )
        self._runtime_version = "Unknown"
        await first_of(self._ask_version(), self._clock.sleep(PATIENCE))
        storage = await self._machine.storage() if settings.counts_storage else None
        return Observation(
            now=Time.of(self._clock.now()),
            machine=self._machine.machine(),
            versions=self._machine.versions(),
            runtime=self._health.report,
            runtime_version=f"{self._runtime_name}://{self._runtime_version}",
            storage=storage,
            addresses=addresses,
            images=self._images.found,
            devices=self._inputs.devices(),
            pressures=self._inputs.pressures(),
            errors=self.errors(),
            warnings=self._inputs.warnings(),
            volumes_in_use=self._inputs.volumes_in_use(),
        )

    async def _ask_version(self) -> None:
        try:
            answer = await self._runtime.version(cri.VersionRequest())
        except CriError:
            return  # the runtime checks tell what is wrong with it
        self._runtime_name = answer.runtime_name
        self._runtime_version = plain_version(answer.runtime_version)


def plain_version(text: str) -> str:
    """A version as upstream tells it: a semantic one whole, of any other the leading numbers ("1.6.20~ds1")."""
    found = _SEMANTIC.match(text) or _GENERIC.match(text)
    return "Unknown" if found is None else found[1]

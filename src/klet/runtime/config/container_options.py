"""What resource managers add to one container: devices, files, variables, annotations (RunContainerOptions)."""

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct, field

from klet.api.container import Container, EphemeralContainer
from klet.api.pod import Pod


class DeviceNode(Struct, frozen=True, kw_only=True):
    """A device of the host that the container sees."""

    host_path: str
    container_path: str
    permissions: str


class HostMount(Struct, frozen=True, kw_only=True):
    """A file or directory of the host that a device's driver needs."""

    host_path: str
    container_path: str
    read_only: bool = False


class ContainerOptions(Struct, frozen=True, kw_only=True):
    """Everything a container gets with its devices."""

    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[HostMount, ...] = ()
    devices: tuple[DeviceNode, ...] = ()
    cdi_devices: tuple[str, ...] = ()
    """Fully qualified names by which the runtime finds devices itself."""
    annotations: Mapping[str, str] = field(default_factory=dict)


class DeviceOptions(Protocol):
    """Knows which devices were allocated to a container."""

    async def options_for(self, pod: Pod, container: Container | EphemeralContainer) -> ContainerOptions: ...


class NoDevices:
    """A node that has no devices to give out."""

    async def options_for(
        self,
        pod: Pod,  # noqa: ARG002 - the protocol's signature
        container: Container | EphemeralContainer,  # noqa: ARG002 - the protocol's signature
    ) -> ContainerOptions:
        return ContainerOptions()

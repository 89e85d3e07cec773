"""What resource managers add to one container: devices, files, variables, annotations (RunContainerOptions)."""

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct, field

from klet.api.container import Container, EphemeralContainer, ResourceRequirements
from klet.api.pod import Pod
from klet.runtime.claims import find_container_claims, refuse_claims


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

    async def options_for(
        self, pod: Pod, container: Container | EphemeralContainer, given: ResourceRequirements
    ) -> ContainerOptions:
        """Return them for a container with these resources; raises KletError if it cannot have them."""
        ...


class NoDevices:
    """A node that has no devices to give out: a container that claims some cannot be started."""

    async def options_for(
        self, pod: Pod, container: Container | EphemeralContainer, given: ResourceRequirements
    ) -> ContainerOptions:
        refuse_claims(find_container_claims(pod, container.name, given))
        return ContainerOptions()

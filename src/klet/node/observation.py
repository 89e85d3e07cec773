"""What a node status is made of: facts about the machine, the runtime and the parts of the agent at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from ipaddress import IPv4Address, IPv6Address
from typing import Final, TypeAlias

from klet.api.quantity import Quantity
from klet.api.times import Time
from klet.node.runtime_state import RuntimeReport

IPAddress: TypeAlias = IPv4Address | IPv6Address

PATIENCE: Final = timedelta(seconds=2)
"""How long a status waits for somebody outside: it must go out though a resolver or the runtime hangs."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Could not be found out, and why."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What does not change while the machine runs; sizes are in bytes."""

    cpus: int
    memory: int
    hugepages: Mapping[int, int] = field(default_factory=dict)
    """How many there are of each size."""
    swap: int = 0
    machine_id: str = ""
    system_uuid: str = ""
    boot_id: str = ""


@dataclass(frozen=True, slots=True)
class SystemVersions:
    """The operating system: its kernel, and how it calls itself."""

    kernel: str
    image: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressFacts:
    """What is known of the node's addresses."""

    local: frozenset[IPAddress] = frozenset()
    """On the interfaces of the machine."""
    looked_up: tuple[IPAddress, ...] = ()
    """What the resolver says of the node's name."""
    default: IPAddress | Unknown = field(default_factory=lambda: Unknown("no default routes found"))
    """Where traffic to the world comes from."""


@dataclass(frozen=True, slots=True)
class ImageRecord:
    """An image that the runtime holds."""

    id: str
    digests: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceResources:
    """What device plugins offer; `removed` names what they offered before and do not any more."""

    capacity: Mapping[str, Quantity] = field(default_factory=dict)
    allocatable: Mapping[str, Quantity] = field(default_factory=dict)
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Everything that one node status is computed from."""

    now: Time
    machine: Machine | Unknown
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
    """None until the volumes of an earlier life of the agent have been found."""

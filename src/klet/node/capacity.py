"""What the machine has, and what of it is left for pods (upstream: the MachineInfo setter). Pure."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from msgspec import Struct, field

from klet.api.node import Node
from klet.api.pod_resources import HUGEPAGES_PREFIX
from klet.api.quantity import ZERO, Format, Quantity
from klet.api.validation.resources import is_extended_resource
from klet.host.machine.info import MachineInfo
from klet.model.pod_resources import CPU, EPHEMERAL_STORAGE, MEMORY, PID, PODS
from klet.model.unknown import Unknown
from klet.node.settings import NodeSettings, Reservations

Resources = Mapping[str, Quantity]

REQUIRED: Final = (CPU, MEMORY, PODS)
"""Without these a node is not ready."""


class DeviceResources(Struct, frozen=True, kw_only=True):
    """What device plugins offer; `removed` names what they offered before and do not any more."""

    capacity: Resources = field(default_factory=dict)
    allocatable: Resources = field(default_factory=dict)
    removed: tuple[str, ...] = ()


def compute_capacity(
    before: Resources,
    machine: MachineInfo | Unknown,
    *,
    storage: int | None,
    devices: DeviceResources,
    settings: NodeSettings,
) -> dict[str, Quantity]:
    """Return the capacity. What is there and not ours to know, such as an administrator's own resource, stays."""
    if isinstance(machine, Unknown):
        unknown = {CPU: ZERO, MEMORY: Quantity.of(0, Format.BINARY_SI), PODS: Quantity.of(settings.max_pods)}
        return {**before, **unknown}
    capacity = {**before, **machine_capacity(machine), PODS: Quantity.of(_max_pods(machine, settings))}
    if settings.counts_storage and storage is not None:
        capacity[EPHEMERAL_STORAGE] = Quantity.of(storage, Format.BINARY_SI)
    # A device that went away stays with nothing left: that is how it differs from one that never was there.
    return {**capacity, **devices.capacity, **dict.fromkeys(devices.removed, ZERO)}


def compute_allocatable(
    before: Resources, capacity: Resources, *, devices: DeviceResources, reservations: Reservations
) -> dict[str, Quantity]:
    """Return what pods can have: the capacity without what is reserved, kept free or made into huge pages."""
    kept = {name: left for name, left in before.items() if name in capacity or not is_extended_resource(name)}
    computed = {name: _floor(has - reservations.of(name, has)) for name, has in capacity.items()}
    allocatable = {**kept, **computed, **devices.allocatable}
    if MEMORY in allocatable:
        for name, size in capacity.items():
            if is_hugepage(name):
                allocatable[MEMORY] = _floor(allocatable[MEMORY] - size)
    return allocatable


def expect_allocatable(machine: MachineInfo, *, storage: int | None, settings: NodeSettings) -> dict[str, Quantity]:
    """Return what a new Node of this machine would have for pods."""
    capacity = compute_capacity({}, machine, storage=storage, devices=DeviceResources(), settings=settings)
    return compute_allocatable({}, capacity, devices=DeviceResources(), reservations=settings.reservations)


def _no_node() -> None:
    return None


class AllocatableResources:
    """What the node has for pods: what its object says, or, until there is one, what it will say (getNodeAnyWay)."""

    def __init__(self, *, expected: Resources, find_node: Callable[[], Node | None] = _no_node) -> None:
        self._expected = expected
        self._find_node = find_node

    def allocatable(self) -> Resources:
        # A Node whose status has not been written yet has no allocatable resources.
        node = self._find_node()
        return self._expected if node is None else node.status.allocatable or self._expected


def find_reservation_problems(capacity: Resources, reservations: Reservations) -> Iterator[str]:
    """Return reservations that the machine cannot meet; no agent starts with one."""
    for name, has in capacity.items():
        if (reserved := reservations.of(name, has)) > has:
            yield (
                f'Resource "{name}" has a reservation of {reserved} but capacity of {has}. '
                "Expected capacity >= reservation."
            )


def machine_capacity(machine: MachineInfo) -> dict[str, Quantity]:
    """Return CPUs, memory and huge pages."""
    return {
        CPU: Quantity.of(machine.cpus),
        MEMORY: Quantity.of(machine.memory, Format.BINARY_SI),
        **{
            f"{HUGEPAGES_PREFIX}{Quantity.of(size, Format.BINARY_SI)}": Quantity.of(size * count, Format.BINARY_SI)
            for size, count in machine.hugepages.items()
        },
    }


def internal_capacity(machine: MachineInfo) -> dict[str, Quantity]:
    """Return what cgroups are limited by: also the processes that the kernel allows, which the Node does not show."""
    capacity = machine_capacity(machine)
    if machine.max_processes is not None:
        capacity[PID] = Quantity.of(machine.max_processes)
    return capacity


def is_hugepage(resource: str) -> bool:
    return resource.startswith(HUGEPAGES_PREFIX)


def _max_pods(machine: MachineInfo, settings: NodeSettings) -> int:
    if settings.pods_per_core <= 0:
        return settings.max_pods
    return min(machine.cpus * settings.pods_per_core, settings.max_pods)


def _floor(amount: Quantity) -> Quantity:
    return amount if amount.sign >= 0 else Quantity(0, amount.format)

"""The systemd driver: slices as transient units, their values as unit properties.

The D-Bus connection is a port of its own (`klet.host.systemd_bus`), so that nothing imports dbus-fast without need.
"""

import logging
from datetime import timedelta
from typing import Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from klet.host.cgroups.layout import CgroupMode
from klet.host.cgroups.names import CgroupDriver, slice_unit
from klet.host.cgroups.resources import DEFAULT_PERIOD, UNLIMITED, CgroupResources, weight_from_shares
from klet.host.cgroups.v2 import unified_values
from klet.host.cpulist import cpu_mask, parse_cpu_list
from klet.host.errors import SystemdError, SystemdTimeout

logger = logging.getLogger(__name__)

PropertyValue: TypeAlias = str | bool | int | bytes | tuple[str, ...]

JOB_DEADLINE = timedelta(seconds=30)
INFINITY = (1 << 64) - 1
QUOTA_STEP = 10_000
_MICROSECONDS = 1_000_000
_PERIOD_SINCE = 242
_ALLOWED_CPUS_SINCE = 244
_UNIT_EXISTS = "org.freedesktop.systemd1.UnitExists"
_UNIFIED_PROPERTIES = {
    "memory.min": "MemoryMin",
    "memory.low": "MemoryLow",
    "memory.high": "MemoryHigh",
    "memory.max": "MemoryMax",
    "memory.swap.max": "MemorySwapMax",
}


class UnitProperty(Struct, frozen=True):
    """A property as it goes over D-Bus, with its type signature."""

    name: str
    signature: str
    value: PropertyValue


class SystemdBus(Protocol):
    """systemd's manager object. Every call raises SystemdError, SystemdTimeout or SystemdUnavailable."""

    async def version(self) -> int: ...

    async def start_transient_unit(self, unit: str, properties: tuple[UnitProperty, ...], deadline: timedelta) -> str:
        """Start a unit and wait for the job; returns its result, `done` if all is well."""
        ...

    async def set_unit_properties(self, unit: str, properties: tuple[UnitProperty, ...]) -> None:
        """Set properties until the next boot."""
        ...

    async def stop_unit(self, unit: str, deadline: timedelta) -> str:
        """Stop a unit and wait for the job; returns its result."""
        ...

    async def reset_failed_unit(self, unit: str) -> None: ...


class SystemdUnits:
    """Keeps systemd's slices in step with the cgroups (the Units of the systemd driver)."""

    def __init__(self, *, bus: SystemdBus, mode: CgroupMode) -> None:
        self._bus = bus
        self._mode = mode

    @property
    def driver(self) -> CgroupDriver:
        return CgroupDriver.SYSTEMD

    async def start(self, path: str) -> None:
        if path == "/":
            return
        unit, parent = slice_unit(path)
        try:
            result = await self._bus.start_transient_unit(unit, slice_properties(unit, parent), JOB_DEADLINE)
        except SystemdTimeout as error:
            await self._reset_failed(unit)
            raise SystemdTimeout(f"Timeout waiting for systemd to create {unit}") from error
        except SystemdError as error:
            if error.name == _UNIT_EXISTS:
                return
            raise
        if result != "done":
            await self._reset_failed(unit)
            raise SystemdError(f"error creating systemd unit `{unit}`: got `{result}`")

    async def set(self, path: str, resources: CgroupResources) -> CgroupResources:
        if path == "/":
            return resources
        rounded = round_quota(resources)
        properties = resource_properties(rounded, version=await self._bus.version(), mode=self._mode)
        await self._bus.set_unit_properties(slice_unit(path)[0], properties)
        return rounded

    async def stop(self, path: str) -> None:
        if path == "/":
            return
        unit, _ = slice_unit(path)
        try:
            result = await self._bus.stop_unit(unit, JOB_DEADLINE)
        except SystemdTimeout as error:
            raise SystemdTimeout(f"Timed out while waiting for systemd to remove {unit}") from error
        except SystemdError as error:
            if not error.name:
                raise
            # systemd knows no such unit: the directories are all that is left of it.
            logger.debug("Slice not stopped", extra={"unit": unit, "error": str(error)})
            return
        if result != "done":
            logger.warning("Slice was not stopped as asked", extra={"unit": unit, "result": result})
        await self._reset_failed(unit)

    async def _reset_failed(self, unit: str) -> None:
        """Reset a failed unit. One that did not fail answers with an error, which is the usual case."""
        try:
            await self._bus.reset_failed_unit(unit)
        except SystemdError as error:
            if not error.name:
                raise


def slice_properties(unit: str, parent: str) -> tuple[UnitProperty, ...]:
    """Return the properties of a new slice."""
    return (
        UnitProperty("Description", "s", f"libcontainer container {unit}"),
        UnitProperty("Wants", "as", (parent,)),
        UnitProperty("MemoryAccounting", "b", value=True),
        UnitProperty("CPUAccounting", "b", value=True),
        UnitProperty("IOAccounting", "b", value=True),
        UnitProperty("TasksAccounting", "b", value=True),
        UnitProperty("DefaultDependencies", "b", value=False),
    )


def round_quota(resources: CgroupResources) -> CgroupResources:
    """Round CPU time per second up to systemd's steps of 10 ms; the same is written to the file."""
    quota = resources.cpu_quota
    if quota is None or quota <= 0:
        return resources
    period = resources.cpu_period or DEFAULT_PERIOD
    return replace(resources, cpu_quota=_quota_per_second(quota, period) * period // _MICROSECONDS)


def resource_properties(resources: CgroupResources, *, version: int, mode: CgroupMode) -> tuple[UnitProperty, ...]:
    """Return the values that systemd knows; huge pages go through the files alone."""
    unified = mode is CgroupMode.UNIFIED
    values: dict[str, int] = {}
    if resources.memory_limit:
        values["MemoryMax" if unified else "MemoryLimit"] = resources.memory_limit
    if resources.cpu_shares and unified:
        values["CPUWeight"] = weight_from_shares(resources.cpu_shares)
    elif resources.cpu_shares:
        values["CPUShares"] = resources.cpu_shares
    if resources.cpu_period and version >= _PERIOD_SINCE:
        values["CPUQuotaPeriodUSec"] = resources.cpu_period
    if quota := resources.cpu_quota:
        period = resources.cpu_period or DEFAULT_PERIOD
        values["CPUQuotaPerSecUSec"] = _quota_per_second(quota, period) if quota > 0 else UNLIMITED
    if (pids := resources.pids_limit) and (pids > 0 or pids == UNLIMITED):
        values["TasksMax"] = pids
    if unified:
        values |= _unified_properties(resources)
    properties = tuple(UnitProperty(name, "t", value % (INFINITY + 1)) for name, value in values.items())
    if resources.cpuset and version >= _ALLOWED_CPUS_SINCE:
        return (*properties, UnitProperty("AllowedCPUs", "ay", cpu_mask(parse_cpu_list(resources.cpuset))))
    return properties


def _quota_per_second(quota: int, period: int) -> int:
    per_second = quota * _MICROSECONDS // period
    return -(-per_second // QUOTA_STEP) * QUOTA_STEP


def _unified_properties(resources: CgroupResources) -> dict[str, int]:
    return {
        _UNIFIED_PROPERTIES[key]: UNLIMITED if text == "max" else int(text)
        for key, text in unified_values(resources).items()
        if key in _UNIFIED_PROPERTIES
    }

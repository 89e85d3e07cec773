"""The state files of the Go kubelet, byte for byte, so that klet and it can take over each other's node."""

import zlib
from collections.abc import Mapping
from typing import TypeAlias, TypeVar

import msgspec

from klet.checkpoint.dump import (
    INT,
    STRING,
    UINT64,
    Bytes,
    DumpField,
    DumpScalar,
    GoType,
    Map,
    Pointer,
    Slice,
    Struct,
    checksum,
)
from klet.checkpoint.errors import CheckpointDamaged

CORRUPTED = "checkpoint is corrupted"

S = TypeVar("S", bound=msgspec.Struct)


class CpuManagerState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`cpu_manager_state`. `container_entries` is what the first version held: CPUs by container ID, to be migrated."""

    policy_name: str = msgspec.field(name="policyName")
    default_cpu_set: str = msgspec.field(name="defaultCpuSet")
    entries: dict[str, dict[str, str]] = {}
    container_entries: dict[str, str] = {}
    checksum: int = 0


class MemoryTable(msgspec.Struct, frozen=True, kw_only=True):
    total: int
    system_reserved: int = msgspec.field(name="systemReserved")
    allocatable: int
    reserved: int
    free: int


class NumaNodeState(msgspec.Struct, frozen=True, kw_only=True):
    number_of_assignments: int = msgspec.field(name="numberOfAssignments")
    memory_map: dict[str, MemoryTable] | None = msgspec.field(name="memoryMap")
    cells: tuple[int, ...] | None


class MemoryBlock(msgspec.Struct, frozen=True, kw_only=True):
    numa_affinity: tuple[int, ...] | None = msgspec.field(name="numaAffinity")
    type: str
    size: int


class MemoryManagerState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`memory_manager_state`."""

    policy_name: str = msgspec.field(name="policyName")
    machine_state: dict[int, NumaNodeState] = msgspec.field(name="machineState")
    entries: dict[str, dict[str, tuple[MemoryBlock, ...]]] = {}
    checksum: int = 0


class PodDevices(msgspec.Struct, frozen=True, kw_only=True):
    pod_uid: str = msgspec.field(name="PodUID")
    container_name: str = msgspec.field(name="ContainerName")
    resource_name: str = msgspec.field(name="ResourceName")
    device_ids: dict[int, tuple[str, ...]] | None = msgspec.field(name="DeviceIDs")
    alloc_resp: bytes | None = msgspec.field(name="AllocResp")


class DeviceManagerState(msgspec.Struct, frozen=True, kw_only=True):
    """The data of `kubelet_internal_checkpoint`."""

    pod_device_entries: tuple[PodDevices, ...] | None = msgspec.field(name="PodDeviceEntries", default=None)
    registered_devices: dict[str, tuple[str, ...]] | None = msgspec.field(name="RegisteredDevices", default=None)


class _Data(msgspec.Struct, frozen=True, kw_only=True):
    data: str
    checksum: int


class _CapitalData(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    data: str
    checksum: int


class _DeviceFile(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    data: DeviceManagerState
    checksum: int


_CHECKSUM = DumpField("Checksum", "checksum", DumpScalar("checksum.Checksum"))
_RESOURCE = DumpScalar("v1.ResourceName")


def _cpu_type(entries: Map, attribute: str) -> GoType:
    return Pointer(
        Struct(
            "state.CPUManagerCheckpoint",
            (
                DumpField("PolicyName", "policy_name", STRING),
                DumpField("DefaultCPUSet", "default_cpu_set", STRING),
                DumpField("Entries", attribute, entries),
                _CHECKSUM,
            ),
        )
    )


_CPU = _cpu_type(Map("map[string]map[string]string", Map("map[string]string", STRING)), "entries")
_CPU_V1 = _cpu_type(Map("map[string]string", STRING), "container_entries")

_TABLE = Struct(
    "state.MemoryTable",
    (
        DumpField("TotalMemSize", "total", UINT64),
        DumpField("SystemReserved", "system_reserved", UINT64),
        DumpField("Allocatable", "allocatable", UINT64),
        DumpField("Reserved", "reserved", UINT64),
        DumpField("Free", "free", UINT64),
    ),
)
_NODE = Struct(
    "state.NUMANodeState",
    (
        DumpField("NumberOfAssignments", "number_of_assignments", INT),
        DumpField("MemoryMap", "memory_map", Map("map[v1.ResourceName]*state.MemoryTable", Pointer(_TABLE))),
        DumpField("Cells", "cells", Slice("[]int", INT)),
    ),
)
_BLOCK = Struct(
    "state.Block",
    (
        DumpField("NUMAAffinity", "numa_affinity", Slice("[]int", INT)),
        DumpField("Type", "type", _RESOURCE),
        DumpField("Size", "size", UINT64),
    ),
)
_MEMORY = Pointer(
    Struct(
        "state.MemoryManagerCheckpoint",
        (
            DumpField("PolicyName", "policy_name", STRING),
            DumpField("MachineState", "machine_state", Map("state.NUMANodeMap", Pointer(_NODE))),
            DumpField(
                "Entries",
                "entries",
                Map(
                    "state.ContainerMemoryAssignments", Map("map[string][]state.Block", Slice("[]state.Block", _BLOCK))
                ),
            ),
            _CHECKSUM,
        ),
    )
)

_POD_DEVICES = Struct(
    "checkpoint.PodDevicesEntry",
    (
        DumpField("PodUID", "pod_uid", STRING),
        DumpField("ContainerName", "container_name", STRING),
        DumpField("ResourceName", "resource_name", STRING),
        DumpField("DeviceIDs", "device_ids", Map("checkpoint.DevicesPerNUMA", Slice("[]string", STRING))),
        DumpField("AllocResp", "alloc_resp", Bytes()),
    ),
)
_DEVICES = Struct(
    "checkpoint.checkpointData",
    (
        DumpField("PodDeviceEntries", "pod_device_entries", Slice("[]checkpoint.PodDevicesEntry", _POD_DEVICES)),
        DumpField("RegisteredDevices", "registered_devices", Map("map[string][]string", Slice("[]string", STRING))),
    ),
)


class CpuManagerFormat:
    """Reads both versions, writes the second. Older kubelets wrote checksum 0, which counts as right."""

    def encode(self, value: CpuManagerState) -> bytes:
        if value.container_entries:
            raise CheckpointDamaged("entries by container ID are of the first version and have to be migrated")
        return _sealed(value, _CPU)

    def decode(self, data: bytes) -> CpuManagerState:
        raw = _object(data)
        entries = raw.get("entries")
        is_first = isinstance(entries, dict) and any(isinstance(each, str) for each in entries.values())
        if is_first:
            raw["container_entries"] = raw.pop("entries")
        value = _convert(raw, CpuManagerState, defaults={"policyName": "", "defaultCpuSet": ""})
        # Without entries the two versions look the same, but their checksums differ by the printed type.
        possible = (_CPU_V1,) if is_first else (_CPU,) if value.entries else (_CPU, _CPU_V1)
        if value.checksum and not any(_matches(value, go_type) for go_type in possible):
            raise CheckpointDamaged(CORRUPTED)
        return value


class MemoryManagerFormat:
    def encode(self, value: MemoryManagerState) -> bytes:
        return _sealed(value, _MEMORY)

    def decode(self, data: bytes) -> MemoryManagerState:
        value = _convert(_object(data), MemoryManagerState, defaults={"policyName": "", "machineState": {}})
        if not _matches(value, _MEMORY):
            raise CheckpointDamaged(CORRUPTED)
        return value


class DeviceManagerFormat:
    def encode(self, value: DeviceManagerState) -> bytes:
        return _encode(_DeviceFile(data=value, checksum=checksum(value, _DEVICES)))

    def decode(self, data: bytes) -> DeviceManagerState:
        file = _convert(_object(data), _DeviceFile, defaults={})
        if checksum(file.data, _DEVICES) != file.checksum:
            raise CheckpointDamaged(CORRUPTED)
        return file.data


class PodStateFormat:
    """`allocated_pods_state` and `actuated_pods_state`: JSON within JSON; the value is the inner text."""

    def encode(self, value: str) -> bytes:
        return _encode(_Data(data=value, checksum=checksum(value, STRING)))

    def decode(self, data: bytes) -> str:
        file = _convert(_object(data), _Data, defaults={})
        if checksum(file.data, STRING) != file.checksum:
            raise CheckpointDamaged(CORRUPTED)
        return file.data


class DraManagerFormat:
    """`dra_manager_state`: JSON within JSON, with a CRC; the value is the inner text."""

    def encode(self, value: str) -> bytes:
        return _encode(_CapitalData(data=value, checksum=zlib.crc32(value.encode())))

    def decode(self, data: bytes) -> str:
        file = _convert(_object(data), _CapitalData, defaults={})
        if zlib.crc32(file.data.encode()) != file.checksum:
            raise CheckpointDamaged(CORRUPTED)
        return file.data


_Sealed: TypeAlias = CpuManagerState | MemoryManagerState


def _sealed(value: _Sealed, go_type: GoType) -> bytes:
    """Return the file of a value whose checksum is a field of its own, and 0 while it is computed."""
    return _encode(msgspec.structs.replace(value, checksum=_own_checksum(value, go_type)))


def _matches(value: _Sealed, go_type: GoType) -> bool:
    return _own_checksum(value, go_type) == value.checksum


def _own_checksum(value: _Sealed, go_type: GoType) -> int:
    return checksum(msgspec.structs.replace(value, checksum=0), go_type)


def _encode(value: msgspec.Struct) -> bytes:
    # Go writes the keys of a map sorted as text and the fields of a struct as declared.
    return msgspec.json.encode(msgspec.to_builtins(value, str_keys=True, order="deterministic"))


def _object(data: bytes) -> dict[str, object]:
    try:
        return msgspec.json.decode(data, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointDamaged(f"it is not a JSON object: {error}") from error


def _convert(raw: Mapping[str, object], kind: type[S], *, defaults: Mapping[str, object]) -> S:
    """Convert as Go does: keys match whatever their case, and what is absent or null has Go's zero value."""
    names = {field.encode_name.lower(): field.encode_name for field in msgspec.structs.fields(kind)}
    present = {names.get(key.lower(), key): value for key, value in raw.items() if value is not None}
    try:
        return msgspec.convert({**defaults, **present}, type=kind, str_keys=True)
    except msgspec.ValidationError as error:
        raise CheckpointDamaged(str(error)) from error

"""The answer of `/stats/summary` (upstream's `stats/v1alpha1`): one struct for each type, fields in upstream's order.

A number that is not known is None and left out. Instants keep the precision with which they were measured, which
`/metrics/resource` needs; `encode` writes whole seconds, as upstream does. The records refer to nothing that could
refer back: `gc=False` spares the collector.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct, field


class PSIData(Struct, frozen=True, kw_only=True, gc=False):
    """How long tasks were stalled: the total in microseconds, and the share of three spans in percent."""

    total: int = 0
    avg10: float = 0.0
    avg60: float = 0.0
    avg300: float = 0.0


class PSIStats(Struct, frozen=True, kw_only=True, gc=False):
    """Pressure stall information of one resource: all tasks stalled, and some."""

    full: PSIData = PSIData()
    some: PSIData = PSIData()


class CPUStats(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """Use of CPU."""

    time: datetime
    usage_nano_cores: int | None = None
    usage_core_nano_seconds: int | None = None
    psi: PSIStats | None = None


class MemoryStats(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """Use of memory."""

    time: datetime
    available_bytes: int | None = None
    usage_bytes: int | None = None
    working_set_bytes: int | None = None
    rss_bytes: int | None = None
    page_faults: int | None = None
    major_page_faults: int | None = None
    psi: PSIStats | None = None


class IOStats(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Pressure of I/O."""

    time: datetime
    psi: PSIStats | None = None


class SwapStats(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """Use of swap."""

    time: datetime
    swap_available_bytes: int | None = None
    swap_usage_bytes: int | None = None


class InterfaceStats(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """Traffic of one network interface."""

    name: str
    rx_bytes: int | None = None
    rx_errors: int | None = None
    tx_bytes: int | None = None
    tx_errors: int | None = None


class NetworkStats(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """Traffic of all interfaces; that of the default one stands beside them, without a name if there is none."""

    time: datetime
    name: str
    rx_bytes: int | None = None
    rx_errors: int | None = None
    tx_bytes: int | None = None
    tx_errors: int | None = None
    interfaces: tuple[InterfaceStats, ...] = ()


class FsStats(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """Use of a filesystem; `used_bytes` and `inodes_used` may be of a part of it only."""

    time: datetime
    available_bytes: int | None = None
    capacity_bytes: int | None = None
    used_bytes: int | None = None
    inodes_free: int | None = None
    inodes: int | None = None
    inodes_used: int | None = None


class PVCReference(Struct, frozen=True, kw_only=True, gc=False):
    """The claim behind a volume."""

    name: str
    namespace: str


class VolumeHealthStats(Struct, frozen=True, kw_only=True, gc=False):
    """Whether a CSI driver found a volume abnormal."""

    abnormal: bool


class VolumeStats(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """Use of a volume: the fields of `FsStats`, and which volume it is."""

    time: datetime
    available_bytes: int | None = None
    capacity_bytes: int | None = None
    used_bytes: int | None = None
    inodes_free: int | None = None
    inodes: int | None = None
    inodes_used: int | None = None
    name: str = ""
    pvc_ref: PVCReference | None = None
    volume_health_stats: VolumeHealthStats | None = None


class RuntimeStats(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """The filesystems of the runtime."""

    image_fs: FsStats | None = None
    container_fs: FsStats | None = None


class RlimitStats(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """How many processes the machine may have, and has."""

    time: datetime
    maxpid: int | None = None
    curproc: int | None = None


class ProcessStats(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """How many processes a pod has."""

    process_count: int | None = None


class AcceleratorStats(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """Use of an accelerator; upstream's kubelet no longer fills it in, and neither does klet."""

    make: str
    model: str
    id: str
    memory_total: int
    memory_used: int
    duty_cycle: int


class UserDefinedMetric(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A metric of a container's own; the runtimes of today have none."""

    name: str
    type: str
    units: str
    labels: Mapping[str, str] | None = None
    time: datetime
    value: float


class ContainerStats(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """Use of a container, or of a system container of the node."""

    name: str
    start_time: datetime | None
    cpu: CPUStats | None = None
    memory: MemoryStats | None = None
    io: IOStats | None = None
    accelerators: tuple[AcceleratorStats, ...] = ()
    rootfs: FsStats | None = None
    logs: FsStats | None = None
    user_defined_metrics: tuple[UserDefinedMetric, ...] = ()
    swap: SwapStats | None = None


class PodReference(Struct, frozen=True, kw_only=True, gc=False):
    """Which pod it is."""

    name: str
    namespace: str
    uid: str


class PodStats(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """Use of a pod."""

    pod_ref: PodReference
    start_time: datetime | None
    containers: tuple[ContainerStats, ...]
    cpu: CPUStats | None = None
    memory: MemoryStats | None = None
    io: IOStats | None = None
    network: NetworkStats | None = None
    volume: tuple[VolumeStats, ...] = ()
    ephemeral_storage: FsStats | None = field(default=None, name="ephemeral-storage")
    process_stats: ProcessStats | None = field(default=None, name="process_stats")
    swap: SwapStats | None = None


class NodeStats(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """Use of the node."""

    node_name: str
    system_containers: tuple[ContainerStats, ...] = ()
    start_time: datetime | None
    cpu: CPUStats | None = None
    memory: MemoryStats | None = None
    io: IOStats | None = None
    network: NetworkStats | None = None
    fs: FsStats | None = None
    runtime: RuntimeStats | None = None
    rlimit: RlimitStats | None = None
    swap: SwapStats | None = None


class Summary(Struct, frozen=True, kw_only=True, gc=False):
    """The whole answer."""

    node: NodeStats
    pods: tuple[PodStats, ...]


def encode(summary: Summary) -> bytes:
    """Return the JSON as upstream writes it: indented by one space, instants in whole seconds."""
    plain = msgspec.to_builtins(summary, builtin_types=(datetime,))
    _cut_fractions(plain)
    return msgspec.json.format(msgspec.json.encode(plain), indent=1)


def _cut_fractions(value: dict[str, Any] | list[Any] | tuple[Any, ...]) -> None:
    """Cut the instants of a tree of plain values in place."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if isinstance(inner, datetime):
                value[key] = inner.replace(microsecond=0)
            elif isinstance(inner, dict | list | tuple):
                _cut_fractions(inner)
        return
    for inner in value:
        if isinstance(inner, dict):
            _cut_fractions(inner)

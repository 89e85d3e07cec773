"""The families of `/metrics/cadvisor`: name, type and value of each, with cAdvisor's rules of absence. Pure.

A cgroup without a controller shows zeros where cAdvisor does: only its settings (`container_spec_…`) are left out.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from msgspec import Struct

from klet.api.stats import PSIData
from klet.host.machine.info import MachineInfo
from klet.model.stats import (
    GREATEST_LIMIT,
    CgroupStats,
    CpuCounters,
    DeviceIo,
    DiskCounters,
    InterfaceCounters,
    MachineFilesystem,
    MemoryCounters,
)
from klet.stats.exposition import FamilyType, Number, SampleFamily

Cgroups: TypeAlias = SampleFamily[CgroupStats]
Numbers: TypeAlias = SampleFamily[Number]
Interfaces: TypeAlias = SampleFamily[InterfaceCounters]
Filesystems: TypeAlias = SampleFamily[MachineFilesystem]
Machines: TypeAlias = SampleFamily[MachineInfo]

_GAUGE: Final = FamilyType.GAUGE
_COUNTER: Final = FamilyType.COUNTER
_NO_CPU: Final = CpuCounters(usage=0)
_NO_MEMORY: Final = MemoryCounters(usage=0, working_set=0)
_NO_DISK: Final = DiskCounters(
    reads=0,
    reads_merged=0,
    sectors_read=0,
    read_time=0,
    writes=0,
    writes_merged=0,
    sectors_written=0,
    write_time=0,
    io_in_progress=0,
    io_time=0,
    weighted_io_time=0,
)


class DiskOperations(Struct, frozen=True, gc=False):
    """Completed operations on one device: of the whole machine for `/`, of the cgroup otherwise."""

    reads: int
    writes: int


def filesystem_operations(filesystem: MachineFilesystem) -> DiskOperations:
    disk = _disk(filesystem)
    return DiskOperations(disk.reads, disk.writes)


def device_operations(io: DeviceIo) -> DiskOperations:
    return DiskOperations(io.operations.get("Read", 0), io.operations.get("Write", 0))


def _number(value: Number) -> Number:
    return value


def _disk(filesystem: MachineFilesystem) -> DiskCounters:
    return filesystem.disk if filesystem.disk is not None else _NO_DISK


def _cpu(name: str, about: str, read: Callable[[CpuCounters], Number | None]) -> Cgroups:
    return SampleFamily(name, _COUNTER, about, lambda stats: read(stats.cpu if stats.cpu is not None else _NO_CPU))


def _memory(name: str, about: str, read: Callable[[MemoryCounters], int], family_type: FamilyType = _GAUGE) -> Cgroups:
    return SampleFamily(
        f"container_memory_{name}",
        family_type,
        about,
        lambda stats: read(stats.memory if stats.memory is not None else _NO_MEMORY),
    )


def _throttling(name: str, about: str, read: Callable[[CpuCounters], Number]) -> Cgroups:
    return _cpu(f"container_cpu_cfs_{name}", about, lambda cpu: None if cpu.quota is None else read(cpu))


def _pressure(name: str, about: str, read: Callable[[CgroupStats], PSIData]) -> Cgroups:
    return SampleFamily(
        f"container_pressure_{name}_seconds_total", _COUNTER, about, lambda stats: read(stats).total / 1_000_000
    )


def _cpu_setting(name: str, about: str, read: Callable[[CpuCounters], int | None]) -> Cgroups:
    return SampleFamily(
        f"container_spec_cpu_{name}", _GAUGE, about, lambda stats: None if stats.cpu is None else read(stats.cpu)
    )


def _memory_setting(name: str, about: str, read: Callable[[MemoryCounters], int]) -> Cgroups:
    def read_limit(stats: CgroupStats) -> int | None:
        if stats.memory is None:
            return None
        limit = read(stats.memory)
        return limit if limit <= GREATEST_LIMIT else 0

    return SampleFamily(f"container_spec_memory_{name}_bytes", _GAUGE, about, read_limit)


def _filesystem(name: str, about: str, read: Callable[[MachineFilesystem], int]) -> Filesystems:
    return SampleFamily(f"container_fs_{name}", _GAUGE, about, read)


def _diskstats(
    name: str, about: str, read: Callable[[DiskCounters], Number], family_type: FamilyType = _COUNTER
) -> Filesystems:
    return SampleFamily(f"container_fs_{name}", family_type, about, lambda filesystem: read(_disk(filesystem)))


def _device(name: str, about: str, operation: str) -> SampleFamily[DeviceIo]:
    return SampleFamily(f"container_fs_{name}", _COUNTER, about, lambda io: io.bytes.get(operation, 0))


def _interface(name: str, about: str, read: Callable[[InterfaceCounters], int]) -> Interfaces:
    return SampleFamily(f"container_network_{name}_total", _COUNTER, about, read)


def _machine(name: str, about: str, read: Callable[[MachineInfo], Number]) -> Machines:
    return SampleFamily(f"machine_{name}", _GAUGE, about, read)


SETTINGS: Final[tuple[Cgroups, ...]] = (
    SampleFamily(
        "container_start_time_seconds",
        _GAUGE,
        "When the cgroup was created, in seconds since 1970.",
        lambda stats: int(stats.created_at.timestamp()),
    ),
    _cpu_setting("period", "CPU period in microseconds.", lambda cpu: cpu.period),
    _cpu_setting("quota", "CPU time of each period in microseconds.", lambda cpu: cpu.quota),
    _cpu_setting("shares", "CPU shares.", lambda cpu: cpu.shares),
    _memory_setting("limit", "Limit of memory; 0 if there is none.", lambda memory: memory.limit),
    _memory_setting("swap_limit", "Limit of swap; 0 if there is none.", lambda memory: memory.swap_limit),
    _memory_setting("reservation_limit", "Reserved memory; 0 if there is none.", lambda memory: memory.reservation),
)
"""Of each cgroup, without timestamps."""

CGROUPS: Final[tuple[Cgroups, ...]] = (
    _cpu("container_cpu_user_seconds_total", "CPU time in user mode.", lambda cpu: cpu.user / 1e9),
    _cpu("container_cpu_system_seconds_total", "CPU time in the kernel.", lambda cpu: cpu.system / 1e9),
    _throttling("periods_total", "Periods in which the quota applied.", lambda cpu: cpu.periods),
    _throttling("throttled_periods_total", "Periods whose quota was used up.", lambda cpu: cpu.throttled_periods),
    _throttling("throttled_seconds_total", "Time for which the quota held back.", lambda cpu: cpu.throttled / 1e9),
    # cAdvisor's reader of loads is off in the kubelet: always 0.
    SampleFamily("container_cpu_load_average_10s", _GAUGE, "Running tasks; not measured.", lambda _: 0),
    SampleFamily("container_cpu_load_d_average_10s", _GAUGE, "Tasks that wait for I/O; not measured.", lambda _: 0),
    _memory("cache", "Page cache in bytes.", lambda memory: memory.cache),
    _memory("rss", "Anonymous memory in bytes.", lambda memory: memory.rss),
    _memory("kernel_usage", "Kernel memory in bytes.", lambda memory: memory.kernel),
    _memory("mapped_file", "Mapped files in bytes.", lambda memory: memory.mapped_file),
    _memory("swap", "Swap in use, in bytes.", lambda memory: memory.swap),
    _memory("failcnt", "How often the limit of memory was hit.", lambda memory: memory.failures, _COUNTER),
    _memory("usage_bytes", "All memory in use, also what could be reclaimed.", lambda memory: memory.usage),
    _memory("max_usage_bytes", "The most memory that was in use.", lambda memory: memory.max_usage),
    _memory("working_set_bytes", "Memory in use that is not easily reclaimed.", lambda memory: memory.working_set),
    _memory("total_active_file_bytes", "Page cache that was used recently.", lambda memory: memory.active_file),
    _memory("total_inactive_file_bytes", "Page cache that was not.", lambda memory: memory.inactive_file),
    SampleFamily("container_processes", _GAUGE, "Processes.", lambda stats: stats.processes.processes),
    SampleFamily("container_threads", _GAUGE, "Threads.", lambda stats: stats.processes.threads),
    SampleFamily(
        "container_threads_max",
        _GAUGE,
        "Limit of threads; 0 if there is none.",
        lambda stats: stats.processes.threads_max,
    ),
    SampleFamily("container_file_descriptors", _GAUGE, "Open files.", lambda stats: stats.processes.file_descriptors),
    SampleFamily("container_sockets", _GAUGE, "Open sockets.", lambda stats: stats.processes.sockets),
    SampleFamily(
        "container_oom_events_total", _COUNTER, "Processes that were killed for memory.", lambda stats: stats.oom_events
    ),
    _pressure("cpu_stalled", "Time in which all tasks waited for a CPU.", lambda stats: stats.pressure.cpu.full),
    _pressure("cpu_waiting", "Time in which some task waited for a CPU.", lambda stats: stats.pressure.cpu.some),
    _pressure("memory_stalled", "Time in which all tasks waited for memory.", lambda stats: stats.pressure.memory.full),
    _pressure("memory_waiting", "Time in which some task waited for memory.", lambda stats: stats.pressure.memory.some),
    _pressure("io_stalled", "Time in which all tasks waited for I/O.", lambda stats: stats.pressure.io.full),
    _pressure("io_waiting", "Time in which some task waited for I/O.", lambda stats: stats.pressure.io.some),
)
"""Of each cgroup, with the time of its reading."""

LAST_SEEN: Final[Numbers] = SampleFamily(
    "container_last_seen", _GAUGE, "When the cgroup was there, in seconds since 1970.", _number
)
CPU_USAGE: Final[Cgroups] = _cpu(
    "container_cpu_usage_seconds_total", "CPU time.", lambda cpu: cpu.usage / 1e9 if cpu.usage else None
)
TASKS: Final[Numbers] = SampleFamily("container_tasks_state", _GAUGE, "Tasks by state; not measured.", _number)
TASK_STATES: Final = ("iowaiting", "running", "sleeping", "stopped", "uninterruptible")
PAGE_FAULTS: Final[Numbers] = SampleFamily(
    "container_memory_failures_total", _COUNTER, "Page faults, of the cgroup itself and with all below it.", _number
)
SOFT_LIMITS: Final[Numbers] = SampleFamily(
    "container_ulimits_soft", _GAUGE, "Soft limits of the first process; -1 if unlimited.", _number
)

FILESYSTEMS: Final[tuple[Filesystems, ...]] = (
    _filesystem("inodes_free", "Free inodes.", lambda filesystem: filesystem.inodes_free),
    _filesystem("inodes_total", "All inodes.", lambda filesystem: filesystem.inodes),
    _filesystem("limit_bytes", "Capacity of the filesystem.", lambda filesystem: filesystem.capacity),
    _filesystem("usage_bytes", "Used bytes of the filesystem.", lambda filesystem: filesystem.used),
    _diskstats("sector_reads_total", "Sectors read.", lambda disk: disk.sectors_read),
    _diskstats("sector_writes_total", "Sectors written.", lambda disk: disk.sectors_written),
    _diskstats("reads_merged_total", "Reads that were merged.", lambda disk: disk.reads_merged),
    _diskstats("writes_merged_total", "Writes that were merged.", lambda disk: disk.writes_merged),
    _diskstats("read_seconds_total", "Time spent reading.", lambda disk: disk.read_time / 1000),
    _diskstats("write_seconds_total", "Time spent writing.", lambda disk: disk.write_time / 1000),
    _diskstats("io_current", "I/O operations in progress.", lambda disk: disk.io_in_progress, _GAUGE),
    _diskstats("io_time_seconds_total", "Time in which there was I/O.", lambda disk: disk.io_time / 1000),
    _diskstats(
        "io_time_weighted_seconds_total",
        "Time of I/O, multiplied by the operations in progress.",
        lambda disk: disk.weighted_io_time / 1000,
    ),
)
"""Of each filesystem of the machine, for `/` alone."""

DEVICES: Final[tuple[SampleFamily[DeviceIo], ...]] = (
    _device("reads_bytes_total", "Bytes read.", "Read"),
    _device("writes_bytes_total", "Bytes written.", "Write"),
)
OPERATIONS: Final[tuple[SampleFamily[DiskOperations], ...]] = (
    SampleFamily("container_fs_reads_total", _COUNTER, "Completed reads.", lambda done: done.reads),
    SampleFamily("container_fs_writes_total", _COUNTER, "Completed writes.", lambda done: done.writes),
)
BLOCK_IO: Final[Numbers] = SampleFamily(
    "container_blkio_device_usage_total", _COUNTER, "Bytes of I/O by device and operation.", _number
)

INTERFACES: Final[tuple[Interfaces, ...]] = (
    _interface("receive_bytes", "Received bytes.", lambda each: each.rx_bytes),
    _interface("receive_packets", "Received packets.", lambda each: each.rx_packets),
    _interface("receive_packets_dropped", "Received packets that were dropped.", lambda each: each.rx_dropped),
    _interface("receive_errors", "Errors while receiving.", lambda each: each.rx_errors),
    _interface("transmit_bytes", "Sent bytes.", lambda each: each.tx_bytes),
    _interface("transmit_packets", "Sent packets.", lambda each: each.tx_packets),
    _interface("transmit_packets_dropped", "Packets that were dropped while sending.", lambda each: each.tx_dropped),
    _interface("transmit_errors", "Errors while sending.", lambda each: each.tx_errors),
)

MACHINE: Final[tuple[Machines, ...]] = (
    _machine("cpu_cores", "Logical CPUs.", lambda machine: machine.cpus),
    _machine(
        "cpu_physical_cores",
        "Cores of all sockets.",
        lambda machine: len({(cpu.socket, cpu.core) for cpu in machine.topology}),
    ),
    _machine("cpu_sockets", "CPU sockets.", lambda machine: len({cpu.socket for cpu in machine.topology})),
    _machine("memory_bytes", "Memory of the machine.", lambda machine: machine.memory),
    _machine("swap_bytes", "Swap of the machine.", lambda machine: machine.swap),
    # cAdvisor reads these with a library that the kubelet is built without: always 0.
    _machine("nvm_avg_power_budget_watts", "Power budget of NVM; not measured.", lambda _: 0),
)
NVM_CAPACITY: Final[Numbers] = SampleFamily("machine_nvm_capacity", _GAUGE, "NVM by mode; not measured.", _number)
NVM_MODES: Final = ("app_direct_mode", "memory_mode")
DIMM_COUNT: Final[Numbers] = SampleFamily("machine_dimm_count", _GAUGE, "Memory modules by type.", _number)
DIMM_CAPACITY: Final[Numbers] = SampleFamily(
    "machine_dimm_capacity_bytes", _GAUGE, "Capacity of memory modules by type.", _number
)

VERSIONS: Final[Numbers] = SampleFamily(
    "cadvisor_version_info", _GAUGE, "Versions of kernel and operating system, as labels.", _number
)
SCRAPE_ERROR: Final[Numbers] = SampleFamily(
    "container_scrape_error", _GAUGE, "1 if cgroups or versions could not be read.", _number
)
MACHINE_SCRAPE_ERROR: Final[Numbers] = SampleFamily(
    "machine_scrape_error", _GAUGE, "1 if the facts of the machine could not be read.", _number
)

"""What the node, its pods and its containers use right now (what cAdvisor gives upstream's kubelet). Values only.

One `StatsSnapshot` is read for `/stats/summary`, `/metrics/cadvisor` and `/metrics/resource` alike. Counters are in
the units of the kernel's newest interface: CPU time in nanoseconds, sizes in bytes. A part is None where the cgroup has
no such controller. What is on disks is measured apart from it, see `DiskStats`.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Protocol

from msgspec import Struct

from klet.api.stats import FsStats, PSIStats, RuntimeStats, Summary, VolumeStats
from klet.model.pods import PodUID
from klet.model.runtime import ContainerId

GREATEST_LIMIT: Final = 1 << 62
"""A limit above it means that there is none."""
NO_LIMIT: Final = (1 << 64) - 1
"""The limit of a cgroup that has none."""


class CgroupLevel(StrEnum):
    """What a cgroup is to the node."""

    ROOT = "root"
    SYSTEM = "system"
    """Of the agent, the runtime or the rest of the system."""
    PODS = "pods"
    """The root of all pods, `/kubepods`."""
    QOS = "qos"
    POD = "pod"
    SANDBOX = "sandbox"
    CONTAINER = "container"
    OTHER = "other"
    """One that a container has made for itself, or one that the runtime does not know."""


class CgroupIdentity(Struct, frozen=True, kw_only=True):
    """Which cgroup it is; the texts are empty where they are not known. A sandbox has no container name."""

    path: str
    """Below the cgroup mount, as cAdvisor shows it (label `id`): `/`, `/kubepods/burstable`."""
    level: CgroupLevel
    container_id: ContainerId | None = None
    """Of a container or sandbox (label `name`)."""
    image: str = ""
    namespace: str = ""
    pod: str = ""
    pod_uid: PodUID | None = None
    container: str = ""


class CpuCounters(Struct, frozen=True, gc=False):
    """CPU time, how often the quota held processes back, and the CPU settings of the cgroup."""

    usage: int
    user: int = 0
    system: int = 0
    periods: int = 0
    throttled_periods: int = 0
    throttled: int = 0
    rate: int | None = None
    """Nanoseconds of CPU per second between the two newest samples; None while that is not known."""
    shares: int = 0
    quota: int | None = None
    """Microseconds in each period; None without a quota."""
    period: int = 0


class MemoryCounters(Struct, frozen=True, gc=False):
    """Memory, and its limits. A limit that is not set is `NO_LIMIT` or above `GREATEST_LIMIT`."""

    usage: int
    working_set: int
    rss: int = 0
    cache: int = 0
    mapped_file: int = 0
    swap: int = 0
    kernel: int = 0
    max_usage: int = 0
    failures: int = 0
    """How often the limit was hit (failcnt)."""
    active_file: int = 0
    """With all below it (`total_active_file`)."""
    inactive_file: int = 0
    page_faults: int = 0
    """Of the cgroup itself."""
    major_page_faults: int = 0
    hierarchy_page_faults: int = 0
    """With all below it."""
    hierarchy_major_page_faults: int = 0
    limit: int = NO_LIMIT
    swap_limit: int = NO_LIMIT
    reservation: int = 0


class DeviceIo(Struct, frozen=True, gc=False):
    """I/O of a cgroup on one block device, by operation: Read, Write, Sync, Async, Discard, Total, as cAdvisor does."""

    major: int
    minor: int
    device: str
    """`/dev/sda`; empty if the device is not known."""
    bytes: Mapping[str, int]
    operations: Mapping[str, int]


class InterfaceCounters(Struct, frozen=True, gc=False):
    """Traffic of one network interface."""

    name: str
    rx_bytes: int
    rx_packets: int
    rx_errors: int
    rx_dropped: int
    tx_bytes: int
    tx_packets: int
    tx_errors: int
    tx_dropped: int


class ProcessCounters(Struct, frozen=True, gc=False):
    """Processes of the cgroup itself, without those below it; threads with them."""

    processes: int = 0
    threads: int = 0
    threads_max: int = 0
    """0: no limit."""
    file_descriptors: int = 0
    sockets: int = 0
    max_open_files: int | None = None
    """The soft limit of a container's first process (label `max_open_files`); None if it is not known or unlimited."""


class CgroupPressure(Struct, frozen=True, gc=False):
    """Pressure stall information; all zero on a machine without it."""

    cpu: PSIStats = PSIStats()
    memory: PSIStats = PSIStats()
    io: PSIStats = PSIStats()


class FoundCgroup(Struct, frozen=True, gc=False):
    """A directory of a cgroup; the inode distinguishes it from a later one of the same path."""

    path: str
    inode: int
    changed: float
    """When the directory last changed, in seconds since 1970."""


class CgroupRequest(Struct, frozen=True, gc=False):
    """A cgroup to be read, and what besides its counters."""

    found: FoundCgroup
    is_container: bool = False
    """It has a first process, whose limits are read."""
    has_network: bool = False
    """The network of its first process is its own."""


class CgroupReading(Struct, frozen=True, kw_only=True, gc=False):
    """What was read of one cgroup, and when by both clocks."""

    read_at: float
    sampled_at: datetime
    created_at: datetime
    cpu: CpuCounters | None = None
    memory: MemoryCounters | None = None
    io: tuple[DeviceIo, ...] = ()
    network: tuple[InterfaceCounters, ...] | None = None
    processes: ProcessCounters = ProcessCounters()
    pressure: CgroupPressure = CgroupPressure()
    oom_events: int = 0


class ProcessLimits(Struct, frozen=True):
    """How many processes the machine may have, and how many it has."""

    maximum: int
    current: int


class CgroupStats(Struct, frozen=True, kw_only=True, gc=False):
    """All of one cgroup, read at one instant."""

    cgroup: CgroupIdentity
    sampled_at: datetime
    created_at: datetime
    cpu: CpuCounters | None = None
    memory: MemoryCounters | None = None
    io: tuple[DeviceIo, ...] = ()
    network: tuple[InterfaceCounters, ...] | None = None
    """Of the root and of sandboxes with a network of their own; None elsewhere."""
    processes: ProcessCounters = ProcessCounters()
    pressure: CgroupPressure = CgroupPressure()
    oom_events: int = 0


class DiskCounters(Struct, frozen=True, gc=False):
    """One line of /proc/diskstats; a sector has 512 bytes, times are in milliseconds."""

    reads: int
    reads_merged: int
    sectors_read: int
    read_time: int
    writes: int
    writes_merged: int
    sectors_written: int
    write_time: int
    io_in_progress: int
    io_time: int
    weighted_io_time: int


class MachineFilesystem(Struct, frozen=True, kw_only=True, gc=False):
    """A mounted filesystem of the machine, which cAdvisor shows for `/`."""

    device: str
    """As the label `device`: the source of the mount, or the mount point of a tmpfs."""
    mount_point: str
    capacity: int
    free: int
    available: int
    inodes: int
    inodes_free: int
    disk: DiskCounters | None = None
    """None for a filesystem that is on no block device."""

    @property
    def used(self) -> int:
        return self.capacity - self.free


class SystemCgroups(Struct, frozen=True, kw_only=True):
    """The paths of the cgroups that the summary shows as system containers; empty: there is none."""

    kubelet: str = ""
    runtime: str = ""
    misc: str = ""
    pods: str = ""


class StatsSnapshot(Struct, frozen=True, kw_only=True):
    """One reading of all cgroups of the node; parents come before their children, the root first."""

    taken_at: datetime
    cgroups: tuple[CgroupStats, ...]
    system: SystemCgroups = SystemCgroups()
    filesystems: tuple[MachineFilesystem, ...] = ()

    @property
    def root(self) -> CgroupStats | None:
        """None if even the root could not be read."""
        first = self.cgroups[0] if self.cgroups else None
        return first if first is not None and first.cgroup.level is CgroupLevel.ROOT else None

    def by_path(self) -> Mapping[str, CgroupStats]:
        return {stats.cgroup.path: stats for stats in self.cgroups}

    def by_container(self) -> Mapping[ContainerId, CgroupStats]:
        """Return the cgroups of containers and sandboxes, by id."""
        return {stats.cgroup.container_id: stats for stats in self.cgroups if stats.cgroup.container_id is not None}

    def by_pod(self) -> Mapping[PodUID, CgroupStats]:
        """Return the pod-level cgroups."""
        pods = (stats for stats in self.cgroups if stats.cgroup.level is CgroupLevel.POD)
        return {stats.cgroup.pod_uid: stats for stats in pods if stats.cgroup.pod_uid is not None}


class ContainerDisk(Struct, frozen=True, kw_only=True):
    """What a container has on disk: its writable layer and its logs."""

    rootfs: FsStats | None = None
    logs: FsStats | None = None


class PodDisk(Struct, frozen=True, kw_only=True):
    """What a pod has on disk; containers by id."""

    containers: Mapping[ContainerId, ContainerDisk]
    volumes: tuple[VolumeStats, ...] = ()
    """Ephemeral ones first, as in the summary."""
    ephemeral_storage: FsStats | None = None
    abnormal_volumes: Mapping[str, str] = {}
    """What CSI drivers say of the volumes that they find abnormal, by their names in the pod."""


class StatsReader(Protocol):
    """Reads what the node's cgroups use."""

    async def snapshot(self, *, max_age: timedelta | None = None) -> StatsSnapshot:
        """Return a snapshot no older than that; without an age, than `--housekeeping-interval`."""
        ...


class SummaryReader(Protocol):
    """Composes the summary of the node and its pods."""

    async def summary(self, *, only_cpu_and_memory: bool = False) -> Summary:
        """Return it. Raises KletError with upstream's words for what could not be read."""
        ...


class DiskStats(Protocol):
    """Measures what the node, the images and the pods use of their disks."""

    async def node_fs(self) -> FsStats:
        """Return the filesystem of the root directory. Raises KletError if it cannot be read."""
        ...

    async def image_fs(self) -> RuntimeStats:
        """Return the filesystems of images and containers. Raises KletError if the runtime does not report them."""
        ...

    async def pods(self) -> Mapping[PodUID, PodDisk]:
        """Return what is known of each pod with a container in the runtime. Raises KletError if that fails."""
        ...

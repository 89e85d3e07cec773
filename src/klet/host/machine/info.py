"""Facts of the machine, as immutable values (upstream: cAdvisor's MachineInfo and VersionInfo). Pure."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from msgspec import Struct, field

_ARCHITECTURES: Final = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "armv7l": "arm",
    "armv6l": "arm",
    "i686": "386",
    "i386": "386",
    "loongarch64": "loong64",
}
_ALL_IDS: Final = (0, 0, 4294967295)


class Cpu(Struct, frozen=True, order=True):
    """One logical CPU; cores are numbered within their socket, as the kernel does."""

    number: int
    core: int
    socket: int
    node: int
    cache: int | None = None
    """The last-level cache, if only some of the cores of its NUMA node share it (uncore cache)."""


class NumaNode(Struct, frozen=True, kw_only=True):
    """A NUMA node: memory that is near some CPUs. Sizes are in bytes."""

    number: int
    memory: int = 0
    hugepages: Mapping[int, int] = field(default_factory=dict)
    """How many there are of each size."""
    distances: Mapping[int, int] = field(default_factory=dict)
    """To each node, itself included; none: not known."""


class MemoryModules(Struct, frozen=True):
    """The memory modules (DIMMs) of one type: how many, and their capacity in bytes."""

    count: int
    capacity: int


class MachineInfo(Struct, frozen=True, kw_only=True):
    """What the machine is. Sizes are in bytes."""

    cpus: int
    """Online CPUs."""
    memory: int
    swap: int = 0
    has_swap: bool = False
    """Whether swap is on, by /proc/swaps as upstream: a container may see another size of it, or none."""
    hugepages: Mapping[int, int] = field(default_factory=dict)
    """How many there are of each size."""
    dimms: Mapping[str, MemoryModules] = field(default_factory=dict)
    """By type; none where the kernel does not know the memory controllers (EDAC), as on virtual machines."""
    topology: tuple[Cpu, ...] = ()
    """The online CPUs by number; none: not known."""
    numa_nodes: tuple[NumaNode, ...] = ()
    """By number. On a machine whose kernel does not report them each socket stands for one, without its memory."""
    agent_cpus: int = 1
    """How many of the CPUs the agent itself may run on."""
    max_processes: int | None = None
    """How many processes and threads the kernel allows; None: not known."""
    page_size: int = 4096
    architecture: str = ""
    """In Kubernetes' words."""
    hostname: str = ""
    machine_id: str = ""
    system_uuid: str = ""
    boot_id: str = ""
    booted_at: datetime | None = None
    cgroup_version: int = 2
    has_swap_controller: bool = False
    has_selinux: bool = False
    has_app_armor: bool = False
    thermal_paths: tuple[str, ...] = ()
    """Files on overheated CPUs that containers must not see."""
    in_user_namespace: bool = False
    """The agent itself runs in one, as on a rootless node: much of the machine is not its own."""

    @property
    def online_cpus(self) -> frozenset[int]:
        """By number; none: not known."""
        return frozenset(cpu.number for cpu in self.topology)

    @property
    def hugepage_sizes(self) -> tuple[int, ...]:
        return tuple(sorted(self.hugepages))


class SystemVersions(Struct, frozen=True):
    """The operating system: the release of its kernel, and the name of its image."""

    kernel: str
    image: str


def is_in_user_namespace(uid_map: str) -> bool:
    """Return whether the ids of a process (/proc/<pid>/uid_map) are not simply those of the machine.

    A line that cannot be read counts as the machine's own, as upstream has it (moby's `RunningInUserNS`).
    """
    first, end, _ = uid_map.partition("\n")
    if not first:
        return bool(end)
    try:
        inside, outside, length = (int(word) for word in first.split()[:3])
    except ValueError:
        return False
    return (inside, outside, length) != _ALL_IDS


def go_architecture(machine: str) -> str:
    """Return the name that Kubernetes has for an architecture, which uname(2) calls differently."""
    return _ARCHITECTURES.get(machine, machine)

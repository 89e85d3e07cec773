"""The schema of the agent's own API for the machine: `/klet/v1/topology`, its CPUs and memory and who has them.

The rules are those of `klet_v1`: fields are only added, with a default, and readers ignore what they do not know.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

TOPOLOGY: Final = "/klet/v1/topology"

SHARED: Final = "shared"
RESERVED: Final = "reserved"
EXCLUSIVE: Final = "exclusive"


class ResourceHolder(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """A container that has CPUs or memory alone. The name of a pod that is gone is empty."""

    namespace: str = ""
    pod: str = ""
    uid: str = ""
    container: str = ""
    cpus: tuple[int, ...] = ()
    numa_nodes: tuple[int, ...] = ()
    """Where its memory is from."""
    memory: Mapping[str, int] = {}
    """Bytes of memory and huge pages by resource."""


class LogicalCpu(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """One thread of a core."""

    id: int
    use: str
    """`shared` by all containers without CPUs of their own, `reserved` for the system, or `exclusive`."""
    shared: bool = False
    """Whether containers without CPUs of their own may run on it: on reserved ones, too, unless that is strict."""
    holder: int | None = None
    """The container that has it alone, by its place in `holders`."""


class PhysicalCore(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """A core, as the kernel numbers them in their socket."""

    id: int
    cpus: tuple[LogicalCpu, ...] = ()


class CoreGroup(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """The cores of a socket that are near one NUMA node."""

    numa_node: int
    cores: tuple[PhysicalCore, ...] = ()


class CpuSocket(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """A processor."""

    id: int
    groups: tuple[CoreGroup, ...] = ()


class NodeMemory(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """Memory, or huge pages of one size, of a NUMA node, in bytes."""

    resource: str
    total: int = 0
    system_reserved: int = 0
    given: int = 0
    """To containers alone. Without a memory manager nothing is."""
    free: int = 0
    """What containers could still have alone; without a memory manager all that is not made into huge pages."""


class NumaMemory(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """A NUMA node. One may have memory and no CPUs."""

    id: int
    memory: tuple[NodeMemory, ...] = ()
    group: tuple[int, ...] = ()
    """The nodes that it is used together with, itself included; alone it is the only one."""
    distances: Mapping[str, int] = {}
    """To each node by its number; empty if the kernel does not report them."""


class ManagerPolicies(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """Which policies decide."""

    cpu: str = ""
    memory: str = ""
    topology: str = ""
    topology_scope: str = ""


class MachineTopology(Struct, frozen=True, kw_only=True, rename="camel"):
    """`/klet/v1/topology`: the machine, and whose its CPUs and its memory are."""

    node: str
    policies: ManagerPolicies = ManagerPolicies()
    sockets: tuple[CpuSocket, ...] = ()
    numa_nodes: tuple[NumaMemory, ...] = ()
    holders: tuple[ResourceHolder, ...] = ()

"""Machines for tests: trees of /sys and /proc as the kernel writes them on real servers, for `MachineReader`."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from klet.host.cpulist import format_cpu_list
from klet.host.machine.info import Cpu, MachineInfo
from klet.host.machine.reader import MachineReader

_MIB: Final = 1 << 20
_GIB: Final = 1 << 30
_NEAR: Final = 10
"""How far a NUMA node is from itself."""


class MachineShape(Struct, frozen=True, kw_only=True):
    """What a server is made of. Sizes are in bytes."""

    sockets: int = 1
    nodes_per_socket: int = 1
    """NUMA nodes."""
    cores_per_node: int = 4
    threads: int = 2
    """Of each core."""
    alternates: bool = False
    """CPUs are numbered from socket to socket in turn, as some firmware has it, not one socket after the other."""
    cores_per_cache: int = 0
    """Of the last level, which the cores of a socket share if it is not set."""
    memory: int = 32 * _GIB
    """Of each NUMA node."""
    hugepages: Mapping[int, int] = field(default_factory=lambda: {2 * _MIB: 0, _GIB: 0})
    """How many each NUMA node has of each size."""
    within: int = 12
    """How far it is to another node of the same socket."""
    across: int = 21
    """How far it is to a node of another socket."""

    @property
    def nodes(self) -> int:
        return self.sockets * self.nodes_per_socket

    @property
    def cores(self) -> int:
        return self.nodes * self.cores_per_node


SMALL: Final = MachineShape(cores_per_node=4)
"""One socket with 4 cores and 8 CPUs, whose siblings are 4 apart."""
TWO_SOCKETS: Final = MachineShape(sockets=2, cores_per_node=3, alternates=True)
"""12 CPUs: the even ones on the first socket."""
XEON_2S: Final = MachineShape(sockets=2, cores_per_node=20, memory=192 * _GIB)
"""Two Xeon Gold 6230 with 80 CPUs."""
XEON_2S_CLUSTERED: Final = MachineShape(sockets=2, nodes_per_socket=2, cores_per_node=10, within=11, memory=96 * _GIB)
"""The same with sub-NUMA clustering: 4 nodes."""
EPYC_2S_NPS4: Final = MachineShape(
    sockets=2, nodes_per_socket=4, cores_per_node=16, cores_per_cache=8, across=32, memory=64 * _GIB
)
"""Two EPYC 7713 with four NUMA nodes each and 256 CPUs."""


class _Place(Struct, frozen=True):
    """Where a CPU is."""

    number: int
    core: int
    """In its socket, as the kernel counts."""
    cache: int
    socket: int
    node: int
    siblings: tuple[int, ...]


def write_machine(root: Path, shape: MachineShape) -> MachineReader:
    """Write the files of a machine below a directory, and return its reader."""
    places = list(_places(shape))
    files = {**_system(shape), **_cpus(places), **_nodes(shape, places)}
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return MachineReader(root=root)


def read_machine(root: Path, shape: MachineShape) -> MachineInfo:
    """Write the files of a machine and return what is read of them."""
    return write_machine(root, shape).info()


def list_cpus(shape: MachineShape) -> tuple[Cpu, ...]:
    """Return what is read of the CPUs of a machine, without its files."""
    places = list(_places(shape))
    # A cache that all CPUs of a NUMA node share is none of some cores alone.
    sharing = Counter(place.cache for place in places)
    of_node = Counter(place.node for place in places)
    return tuple(
        Cpu(
            number=place.number,
            core=place.core,
            socket=place.socket,
            node=place.node,
            cache=place.cache if sharing[place.cache] != of_node[place.node] else None,
        )
        for place in places
    )


def _places(shape: MachineShape) -> Iterator[_Place]:
    cores_per_socket = shape.nodes_per_socket * shape.cores_per_node
    cores_per_cache = shape.cores_per_cache or cores_per_socket
    for thread in range(shape.threads):
        for index in range(shape.cores):
            # The kernel numbers the first threads of all cores before the second ones.
            socket, core = (
                (index % shape.sockets, index // shape.sockets) if shape.alternates else divmod(index, cores_per_socket)
            )
            yield _Place(
                number=thread * shape.cores + index,
                core=core,
                cache=(socket * cores_per_socket + core) // cores_per_cache,
                socket=socket,
                node=socket * shape.nodes_per_socket + core // shape.cores_per_node,
                siblings=tuple(each * shape.cores + index for each in range(shape.threads)),
            )


def _system(shape: MachineShape) -> dict[str, str]:
    total = shape.memory * shape.nodes >> 10
    pools = {
        f"sys/kernel/mm/hugepages/hugepages-{size >> 10}kB/nr_hugepages": f"{count * shape.nodes}\n"
        for size, count in shape.hugepages.items()
    }
    return {
        "proc/meminfo": f"MemTotal: {total} kB\nMemFree: {total // 2} kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n",
        "proc/self/mountinfo": "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n",
        "proc/self/cgroup": "0::/system.slice\n",
        "sys/devices/system/cpu/online": f"0-{shape.cores * shape.threads - 1}\n",
        **pools,
    }


def _cpus(places: list[_Place]) -> dict[str, str]:
    files: dict[str, str] = {}
    sharing: dict[int, list[int]] = {}
    for place in places:
        sharing.setdefault(place.cache, []).append(place.number)
    for place in places:
        cpu = f"sys/devices/system/cpu/cpu{place.number}"
        files[f"{cpu}/topology/core_id"] = f"{place.core}\n"
        files[f"{cpu}/topology/physical_package_id"] = f"{place.socket}\n"
        files[f"{cpu}/topology/thread_siblings_list"] = f"{format_cpu_list(place.siblings)}\n"
        last = f"{cpu}/cache/index3"
        files |= {
            f"{last}/id": f"{place.cache}\n",
            f"{last}/level": "3\n",
            f"{last}/type": "Unified\n",
            f"{last}/size": "32768K\n",
            f"{last}/shared_cpu_list": f"{format_cpu_list(sharing[place.cache])}\n",
        }
    return files


def _nodes(shape: MachineShape, places: list[_Place]) -> dict[str, str]:
    files = {"sys/devices/system/node/online": f"0-{shape.nodes - 1}\n"}
    for node in range(shape.nodes):
        directory = f"sys/devices/system/node/node{node}"
        files[f"{directory}/cpulist"] = f"{format_cpu_list(each.number for each in places if each.node == node)}\n"
        files[f"{directory}/meminfo"] = (
            f"Node {node} MemTotal:       {shape.memory >> 10} kB\nNode {node} MemFree:  {shape.memory >> 11} kB\n"
        )
        files[f"{directory}/distance"] = " ".join(str(_distance(shape, node, other)) for other in range(shape.nodes))
        files |= {
            f"{directory}/hugepages/hugepages-{size >> 10}kB/nr_hugepages": f"{count}\n"
            for size, count in shape.hugepages.items()
        }
    return files


def _distance(shape: MachineShape, one: int, other: int) -> int:
    if one == other:
        return _NEAR
    return shape.within if one // shape.nodes_per_socket == other // shape.nodes_per_socket else shape.across

"""Reads the facts of the machine from /proc, /sys and /etc below a root (upstream: cAdvisor's machine package).

Every file has a limit of a few times what the kernel writes there, and every number one of digits.
"""

import contextlib
import os
import platform
import re
import shlex
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from klet.host.cgroups.discover import find_hierarchy, find_hugepage_sizes, has_swap_controller
from klet.host.cpulist import parse_cpu_list
from klet.host.errors import FileError, FileMissing, MalformedFile
from klet.host.files import list_names, read_text
from klet.host.machine.info import (
    Cpu,
    MachineInfo,
    MemoryModules,
    NumaNode,
    SystemVersions,
    go_architecture,
    is_in_user_namespace,
)
from klet.host.machine.usage import UsageReader
from klet.host.procfs import parse_number, quote

_NODE: Final = re.compile(r"node([0-9]{1,5})")
_CPU: Final = re.compile(r"cpu([0-9]{1,5})")
_CACHE: Final = re.compile(r"index[0-9]{1,2}")
_CORE_CACHES: Final = 2
"""Caches up to this level are those of a core."""
_MEMORY_CONTROLLER: Final = re.compile(r"mc[0-9]{1,5}")
_DIMM: Final = re.compile(r"dimm[0-9]{1,5}")
_CPUS: Final = "sys/devices/system/cpu"
_NODES: Final = "sys/devices/system/node"
_MEMORY_CONTROLLERS: Final = "sys/devices/system/edac/mc"
_THERMAL: Final = "thermal_throttle"
_LONGEST_WORD: Final = 4 << 10
_LONGEST_LIST: Final = 64 << 10
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class MachineReader:
    """Reads one machine; klet's own has its root at /."""

    def __init__(self, *, root: Path = Path("/")) -> None:
        self._root = root

    def info(self) -> MachineInfo:
        """Return all facts. Raises HostError without memory or cgroups; other missing facts are left out."""
        memory = UsageReader(root=self._root).memory()
        topology = self._known_topology()
        cgroups = self._root / "sys/fs/cgroup"
        hierarchy = find_hierarchy(mountinfo=self._root / "proc/self/mountinfo", hugepages=self._hugepages)
        version = hierarchy.mode.version
        return MachineInfo(
            cpus=len(topology) or os.cpu_count() or 1,
            memory=memory.total,
            swap=memory.swap_total,
            has_swap=self.has_swap(),
            hugepages=self.hugepages(),
            dimms=self.dimms(),
            topology=topology,
            numa_nodes=self.numa_nodes() or tuple(NumaNode(number=each) for each in sorted({c.node for c in topology})),
            agent_cpus=len(os.sched_getaffinity(0)),
            max_processes=self.max_processes(),
            page_size=os.sysconf("SC_PAGE_SIZE"),
            architecture=host_architecture(),
            hostname=socket.gethostname(),
            machine_id=_or_nothing(self.machine_id),
            system_uuid=_or_nothing(self.system_uuid),
            boot_id=_or_nothing(self.boot_id),
            booted_at=self.booted_at(),
            cgroup_version=version,
            has_swap_controller=has_swap_controller(version, root=cgroups, own=self._root / "proc/self/cgroup"),
            has_selinux=(self._root / "sys/fs/selinux/enforce").exists(),
            has_app_armor=self.has_app_armor(),
            thermal_paths=self.thermal_paths(),
            in_user_namespace=self.in_user_namespace(),
        )

    def versions(self) -> SystemVersions:
        return SystemVersions(self.kernel_version(), self.os_release().get("PRETTY_NAME", "Linux"))

    def has_swap(self) -> bool:
        """Return whether /proc/swaps lists anything below its heading; a kernel without swap has no such file."""
        try:
            return len(self._list("proc/swaps").strip().split("\n")) > 1
        except FileMissing:
            return False

    def has_app_armor(self) -> bool:
        """Return whether the kernel can confine processes with AppArmor profiles, and does."""
        if not (self._root / "sys/kernel/security/apparmor").exists():
            return False
        return _or_nothing(lambda: self._word("sys/module/apparmor/parameters/enabled")).startswith("Y")

    def machine_id(self) -> str:
        return self._first("etc/machine-id", "var/lib/dbus/machine-id")

    def system_uuid(self) -> str:
        return self._first(
            "sys/class/dmi/id/product_uuid",
            "proc/device-tree/system-id",
            "proc/device-tree/vm,uuid",
            "etc/machine-id",
        )

    def boot_id(self) -> str:
        return self._word("proc/sys/kernel/random/boot_id")

    def booted_at(self) -> datetime | None:
        """Return when the kernel began, by its present clock; None if that is not known."""
        try:
            lines = read_text(self._root / "proc/stat").splitlines()
            word = next((line.removeprefix("btime ") for line in lines if line.startswith("btime ")), "")
            return _EPOCH + timedelta(seconds=parse_number(word, "proc/stat btime")) if word else None
        except (FileError, MalformedFile, OverflowError):
            return None

    def kernel_version(self) -> str:
        return self._word("proc/sys/kernel/osrelease")

    def os_release(self) -> dict[str, str]:
        return parse_os_release(self._list(self._existing("etc/os-release", "usr/lib/os-release")))

    def online_cpus(self) -> frozenset[int]:
        return parse_cpu_list(self._list(f"{_CPUS}/online"))

    def max_processes(self) -> int | None:
        """Return the lower of the kernel's two limits, of those that can be read (upstream: pidlimit's MaxPID)."""
        found: list[int] = []
        for name in ("pid_max", "threads-max"):
            with contextlib.suppress(FileError, MalformedFile):
                path = f"proc/sys/kernel/{name}"
                found.append(parse_number(self._word(path), path))
        return min(found, default=None)

    def hugepages(self) -> dict[int, int]:
        """Return how many huge pages there are of each size in bytes."""
        return self._hugepages_below(self._hugepages)

    def _hugepages_below(self, directory: Path) -> dict[int, int]:
        return {
            size: self._number(directory / f"hugepages-{size >> 10}kB" / "nr_hugepages")
            for size in find_hugepage_sizes(directory)
        }

    def dimms(self) -> dict[str, MemoryModules]:
        """Return the memory modules by type; none if one of them cannot be read."""
        found: dict[str, MemoryModules] = {}
        try:
            for directory in self._dimm_directories():
                kind = self._word(f"{directory}/dimm_mem_type")
                mebibytes = self._number(self._root / directory / "size")
                before = found.get(kind, MemoryModules(0, 0))
                found[kind] = MemoryModules(before.count + 1, before.capacity + (mebibytes << 20))
        except (FileError, MalformedFile):
            return {}
        return found

    def topology(self) -> tuple[Cpu, ...]:
        """Return the online CPUs. Missing facts are 0: one socket, one NUMA node; a core is its CPU's own."""
        nodes = self._nodes()
        sockets = {
            number: self._topology_number(number, "physical_package_id", missing=0) for number in self.online_cpus()
        }
        # Without NUMA nodes a socket stands for one, as cAdvisor has it.
        places = {number: nodes.get(number, 0) if nodes else socket for number, socket in sockets.items()}
        caches = self._caches(places)
        return tuple(
            Cpu(
                number=number,
                core=self._topology_number(number, "core_id", missing=number),
                socket=socket,
                node=places[number],
                cache=caches.get(number),
            )
            for number, socket in sorted(sockets.items())
        )

    def numa_nodes(self) -> tuple[NumaNode, ...]:
        """Return the NUMA nodes; none if the kernel does not report them."""
        numbers = self._node_numbers()
        return tuple(
            NumaNode(
                number=number,
                memory=self._node_memory(number),
                hugepages=self._hugepages_below(self._root / _NODES / f"node{number}" / "hugepages"),
                distances=self._distances_of(number, numbers),
            )
            for number in numbers
        )

    def thermal_paths(self) -> tuple[str, ...]:
        """Return `thermal_throttle` of each CPU that has it, in the order of the CPUs, as containers would see it."""
        names = list_names(self._root / _CPUS)
        numbers = sorted(int(match[1]) for name in names if (match := _CPU.fullmatch(name)))
        paths = (f"{_CPUS}/cpu{number}/{_THERMAL}" for number in numbers)
        return tuple(f"/{path}" for path in paths if (self._root / path).exists())

    def in_user_namespace(self) -> bool:
        """Return whether this process runs in a user namespace; False on a kernel without them."""
        try:
            return is_in_user_namespace(self._list("proc/self/uid_map"))
        except FileError:
            return False

    @property
    def _hugepages(self) -> Path:
        return self._root / "sys/kernel/mm/hugepages"

    def _known_topology(self) -> tuple[Cpu, ...]:
        try:
            return self.topology()
        except FileError:
            return ()

    def _dimm_directories(self) -> Iterator[str]:
        for controller in list_names(self._root / _MEMORY_CONTROLLERS):
            if _MEMORY_CONTROLLER.fullmatch(controller):
                directory = f"{_MEMORY_CONTROLLERS}/{controller}"
                names = list_names(self._root / directory)
                yield from (f"{directory}/{name}" for name in names if _DIMM.fullmatch(name))

    def _nodes(self) -> dict[int, int]:
        """Return the NUMA node of each CPU."""
        return {cpu: node for node in self._node_numbers() for cpu in self._cpus_of(node)}

    def _caches(self, nodes: Mapping[int, int]) -> dict[int, int]:
        """Return the cache above level 2 of each CPU, unless all CPUs of its NUMA node share that."""
        found: dict[int, int] = {}
        of_node = {node: frozenset(cpu for cpu, its in nodes.items() if its == node) for node in set(nodes.values())}
        for cpu, node in sorted(nodes.items()):
            if cpu in found:
                continue
            for number, sharing in self._shared_caches(cpu):
                if len(sharing) != len(of_node[node]):
                    # One read serves all that share it: a large machine has hundreds of CPUs.
                    found |= dict.fromkeys(sharing & of_node[node], number)
                    break
        return found

    def _shared_caches(self, cpu: int) -> Iterator[tuple[int, frozenset[int]]]:
        """Return number and CPUs of each cache above level 2; a virtual machine may not report any."""
        directory = f"{_CPUS}/cpu{cpu}/cache"
        for name in sorted(name for name in list_names(self._root / directory) if _CACHE.fullmatch(name)):
            path = f"{directory}/{name}"
            try:
                if parse_number(self._word(f"{path}/level"), path) > _CORE_CACHES:
                    sharing = parse_cpu_list(self._list(f"{path}/shared_cpu_list"))
                    yield parse_number(self._word(f"{path}/id"), path), sharing
            except (FileError, MalformedFile):
                # As cAdvisor has it: a machine may report its CPUs and not its caches.
                return

    def _node_numbers(self) -> list[int]:
        return sorted(int(match[1]) for name in list_names(self._root / _NODES) if (match := _NODE.fullmatch(name)))

    def _node_memory(self, node: int) -> int:
        """Return the memory of a NUMA node; one that has none, or does not say, has 0."""
        path = f"{_NODES}/node{node}/meminfo"
        try:
            lines = self._list(path).splitlines()
        except FileError:
            return 0
        words = next((line.split() for line in lines if "MemTotal:" in line), None)
        if words is None or len(words) < 4:
            return 0
        return parse_number(words[3], f"MemTotal of {path}") << 10

    def _distances_of(self, node: int, numbers: Sequence[int]) -> dict[int, int]:
        """Return how far it is from a NUMA node to each; none if the kernel does not report it for all of them."""
        path = f"{_NODES}/node{node}/distance"
        try:
            found = [parse_number(word, path) for word in self._word(path).split()]
        except FileError:
            return {}
        return dict(zip(numbers, found, strict=True)) if len(found) == len(numbers) else {}

    def _cpus_of(self, node: int) -> frozenset[int]:
        try:
            return parse_cpu_list(self._list(f"{_NODES}/node{node}/cpulist"))
        except FileError:
            return frozenset()

    def _topology_number(self, cpu: int, name: str, *, missing: int) -> int:
        path = f"{_CPUS}/cpu{cpu}/topology/{name}"
        try:
            text = self._word(path)
        except FileError:
            return missing
        # -1 stands for unknown, which some virtual machines report.
        return missing if text == "-1" else parse_number(text, path)

    def _first(self, *paths: str) -> str:
        """Return the content of the first file that can be read; device-tree strings end with a NUL."""
        for path in paths:
            try:
                return self._word(path).strip("\0")
            except FileError:
                continue
        raise FileMissing(f"none of {', '.join(paths)} can be read", path=self._root / paths[0])

    def _existing(self, *paths: str) -> str:
        return next((path for path in paths if (self._root / path).exists()), paths[0])

    def _number(self, path: Path) -> int:
        return parse_number(read_text(path, limit=_LONGEST_WORD), str(path))

    def _word(self, path: str) -> str:
        return read_text(self._root / path, limit=_LONGEST_WORD).strip()

    def _list(self, path: str) -> str:
        return read_text(self._root / path, limit=_LONGEST_LIST)


def host_architecture() -> str:
    """Return the architecture of this machine, in the words of Kubernetes and of image platforms."""
    return go_architecture(platform.machine())


def parse_os_release(text: str) -> dict[str, str]:
    """Parse shell-like assignments, as os-release(5) has them."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and not name.startswith("#"):
            try:
                values[name] = "".join(shlex.split(value))
            except ValueError as error:
                raise MalformedFile(f"os-release line {quote(line)}: {error}") from error
    return values


def _or_nothing(read: Callable[[], str]) -> str:
    """Return the identifier, or nothing: a machine may have none."""
    try:
        return read()
    except FileError:
        return ""

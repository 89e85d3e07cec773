"""What the machine is: its identifiers, operating system and CPU topology, from /etc and /sys below a root."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from klet.host.cgroups.discover import find_hugepage_sizes
from klet.host.cpulist import parse_cpu_list
from klet.host.errors import FileError, FileMissing, MalformedFile
from klet.host.files import read_text

_NODE = re.compile(r"node(\d+)")
_ARCHITECTURES = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "armv7l": "arm",
    "armv6l": "arm",
    "i686": "386",
    "i386": "386",
    "loongarch64": "loong64",
}


@dataclass(frozen=True, slots=True, order=True)
class Cpu:
    """One logical CPU; cores are numbered within their socket, as the kernel does."""

    number: int
    core: int
    socket: int
    node: int


class MachineReader:
    """Reads facts that do not change while the machine runs."""

    def __init__(self, *, root: Path = Path("/")) -> None:
        self._root = root

    def machine_id(self) -> str:
        return self._first("etc/machine-id", "var/lib/dbus/machine-id")

    def system_uuid(self) -> str:
        return self._first(
            "sys/class/dmi/id/product_uuid",
            "proc/device-tree/system-id",
            "proc/device-tree/vm,uuid",
            "etc/machine-id",
        )

    def os_release(self) -> dict[str, str]:
        return parse_os_release(read_text(self._root / self._existing("etc/os-release", "usr/lib/os-release")))

    def online_cpus(self) -> frozenset[int]:
        return parse_cpu_list(read_text(self._root / "sys/devices/system/cpu/online"))

    def hugepages(self) -> dict[int, int]:
        """How many huge pages there are of each size in bytes."""
        directory = self._root / "sys/kernel/mm/hugepages"
        return {
            size: int(read_text(directory / f"hugepages-{size >> 10}kB" / "nr_hugepages"))
            for size in find_hugepage_sizes(directory)
        }

    def topology(self) -> tuple[Cpu, ...]:
        """The online CPUs. What the kernel does not tell is 0: one socket, one NUMA node; a core is its CPU's own."""
        nodes = self._nodes()
        return tuple(
            Cpu(
                number=number,
                core=self._topology_number(number, "core_id", missing=number),
                socket=self._topology_number(number, "physical_package_id", missing=0),
                node=nodes.get(number, 0),
            )
            for number in sorted(self.online_cpus())
        )

    def _nodes(self) -> dict[int, int]:
        """The NUMA node of each CPU."""
        directory = self._root / "sys/devices/system/node"
        entries = directory.iterdir() if directory.is_dir() else ()
        numbered = ((int(match[1]), entry) for entry in entries if (match := _NODE.fullmatch(entry.name)))
        return {cpu: node for node, entry in numbered for cpu in parse_cpu_list(read_text(entry / "cpulist"))}

    def _topology_number(self, cpu: int, name: str, *, missing: int) -> int:
        try:
            # -1 stands for unknown, which some virtual machines report.
            number = int(read_text(self._root / f"sys/devices/system/cpu/cpu{cpu}/topology/{name}"))
        except FileMissing:
            return missing
        return missing if number < 0 else number

    def _first(self, *paths: str) -> str:
        """The content of the first file that can be read; device-tree strings end with a NUL."""
        for path in paths:
            try:
                return read_text(self._root / path).strip().strip("\0")
            except FileError:
                continue
        raise FileMissing(f"none of {', '.join(paths)} can be read", path=self._root / paths[0])

    def _existing(self, *paths: str) -> str:
        return next((path for path in paths if (self._root / path).exists()), paths[0])


def go_architecture(machine: str) -> str:
    """The name that Kubernetes has for an architecture, which uname(2) calls differently."""
    return _ARCHITECTURES.get(machine, machine)


def parse_os_release(text: str) -> dict[str, str]:
    """Shell-like assignments, as os-release(5) has them."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and not name.startswith("#"):
            try:
                values[name] = "".join(shlex.split(value))
            except ValueError as error:
                raise MalformedFile(f"os-release line {line!r}: {error}") from error
    return values

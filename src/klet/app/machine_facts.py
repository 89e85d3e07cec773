"""What the settings depend on besides the configuration: the machine the agent runs on."""

import os
import socket
from dataclasses import dataclass
from pathlib import Path

from klet.host.cgroups.discover import find_hierarchy, find_hugepage_sizes, has_swap_controller
from klet.host.errors import FileMissing
from klet.host.machine import MachineReader
from klet.host.procfs import ProcReader


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """Sizes are in bytes."""

    hostname: str
    cpus: int
    memory: int
    swap: int = 0
    cgroup_version: int = 2
    hugepage_sizes: tuple[int, ...] = ()
    has_swap_controller: bool = False
    page_size: int = 4096
    thermal_paths: tuple[str, ...] = ()
    """Files on overheated CPUs that containers must not see."""
    online_cpus: frozenset[int] = frozenset()
    """By number; none: not known."""
    has_selinux: bool = False


def read_machine_facts() -> MachineFacts:
    memory = ProcReader().memory()
    version = find_hierarchy().mode.version
    return MachineFacts(
        hostname=socket.gethostname(),
        cpus=len(os.sched_getaffinity(0)),
        memory=memory.total,
        swap=memory.swap_total,
        cgroup_version=version,
        hugepage_sizes=find_hugepage_sizes(),
        has_swap_controller=has_swap_controller(version),
        page_size=os.sysconf("SC_PAGE_SIZE"),
        thermal_paths=find_thermal_paths(Path("/sys")),
        online_cpus=_find_online_cpus(),
        has_selinux=Path("/sys/fs/selinux/enforce").exists(),
    )


def _find_online_cpus() -> frozenset[int]:
    try:
        return MachineReader().online_cpus()
    except FileMissing:
        return frozenset()


def find_thermal_paths(sys: Path) -> tuple[str, ...]:
    """`thermal_throttle` of each CPU that has it, in the order of the CPUs."""
    found = sys.glob("devices/system/cpu/cpu[0-9]*/thermal_throttle")
    return tuple(str(path) for path in sorted(found, key=lambda path: int(path.parent.name.removeprefix("cpu"))))

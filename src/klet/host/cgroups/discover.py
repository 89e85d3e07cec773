"""Finds the cgroup hierarchies of the machine."""

import os
import re
from pathlib import Path

from klet.host.cgroups.layout import CGROUP_ROOT, detect_layout
from klet.host.cgroups.samples import V1Files, V2Files
from klet.host.cgroups.v1 import V1Hierarchy
from klet.host.cgroups.v2 import V2Hierarchy
from klet.host.errors import CgroupMissing
from klet.host.files import list_names, read_text
from klet.host.mountinfo import parse_mountinfo

_HUGEPAGES = re.compile(r"hugepages-([0-9]{1,15})kB")


def find_hierarchy(
    *,
    mountinfo: Path = Path("/proc/self/mountinfo"),
    root: Path = CGROUP_ROOT,
    hugepages: Path = Path("/sys/kernel/mm/hugepages"),
) -> V1Hierarchy | V2Hierarchy:
    layout = detect_layout(parse_mountinfo(read_text(mountinfo)), root)
    if layout is None:
        raise CgroupMissing(f"no cgroup filesystem is mounted at {root} or below it")
    sizes = find_hugepage_sizes(hugepages)
    if layout.controllers:
        return V1Hierarchy(
            controllers=layout.controllers, hugepage_sizes=sizes, mode=layout.mode, unified=layout.unified
        )
    return V2Hierarchy(root=root, hugepage_sizes=sizes)


def find_cgroup_files(*, mountinfo: Path = Path("/proc/self/mountinfo"), root: Path = CGROUP_ROOT) -> V1Files | V2Files:
    """Return what reads the counters of cgroups."""
    layout = detect_layout(parse_mountinfo(read_text(mountinfo)), root)
    if layout is None:
        raise CgroupMissing(f"no cgroup filesystem is mounted at {root} or below it")
    if layout.controllers:
        return V1Files(controllers=layout.controllers, ticks_per_second=os.sysconf("SC_CLK_TCK"))
    return V2Files(root=root)


def find_hugepage_sizes(directory: Path = Path("/sys/kernel/mm/hugepages")) -> tuple[int, ...]:
    """Return the huge page sizes of the machine in bytes."""
    return tuple(sorted(int(match[1]) << 10 for name in list_names(directory) if (match := _HUGEPAGES.fullmatch(name))))


def has_swap_controller(version: int, *, root: Path = CGROUP_ROOT, own: Path = Path("/proc/self/cgroup")) -> bool:
    """Return whether the kernel can limit swap. The root of version 2 has no limits, so our own cgroup is looked at."""
    if version == 1:
        return (root / "memory" / "memory.memsw.limit_in_bytes").exists()
    paths = [line.removeprefix("0::/") for line in read_text(own).splitlines() if line.startswith("0::/")]
    return any((root / path / "memory.swap.max").exists() for path in paths)

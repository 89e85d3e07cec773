"""Which cgroup version a machine has and where it is mounted. Pure."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path

from msgspec import Struct, field

from klet.host.mountinfo import MountEntry

CGROUP_ROOT = Path("/sys/fs/cgroup")
NAMED_SYSTEMD = "systemd"
_CONTROLLERS = frozenset({
    "blkio", "cpu", "cpuacct", "cpuset", "devices", "freezer", "hugetlb", "memory", "misc", "net_cls", "net_prio",
    "perf_event", "pids", "rdma",
})  # fmt: skip


class CgroupMode(StrEnum):
    """Version 1, version 2 alone, or version 1 with version 2 mounted beside it."""

    V1 = "v1"
    HYBRID = "hybrid"
    UNIFIED = "unified"

    @property
    def version(self) -> int:
        """What upstream calls the version: a hybrid host is version 1."""
        return 2 if self is CgroupMode.UNIFIED else 1


class CgroupLayout(Struct, frozen=True, kw_only=True):
    """Where the hierarchies are mounted."""

    mode: CgroupMode
    unified: Path | None = None
    """The version 2 mount; None in plain version 1."""
    controllers: Mapping[str, Path] = field(default_factory=dict)
    """The version 1 mount of each controller (co-mounted ones share it), `systemd` for the hierarchy of that name."""


def detect_layout(mounts: Iterable[MountEntry], root: Path = CGROUP_ROOT) -> CgroupLayout | None:
    """Read the mount table; None if no cgroup filesystem is mounted."""
    table = tuple(mounts)
    at_root = [mount.fs_type for mount in table if mount.mount_point == str(root)]
    if at_root and at_root[-1] == "cgroup2":
        return CgroupLayout(mode=CgroupMode.UNIFIED, unified=root)
    unified = _shortest(Path(mount.mount_point) for mount in table if mount.fs_type == "cgroup2")
    places: dict[str, list[Path]] = {}
    for mount in table:
        if mount.fs_type == "cgroup":
            for controller in _controllers(mount.super_options):
                places.setdefault(controller, []).append(Path(mount.mount_point))
    controllers = {name: path for name, paths in places.items() if (path := _shortest(paths))}
    if not controllers:
        return None
    return CgroupLayout(mode=CgroupMode.HYBRID if unified else CgroupMode.V1, unified=unified, controllers=controllers)


def _controllers(options: Iterable[str]) -> Iterable[str]:
    for option in options:
        if option in _CONTROLLERS:
            yield option
        elif option == f"name={NAMED_SYSTEMD}":
            yield NAMED_SYSTEMD


def _shortest(paths: Iterable[Path]) -> Path | None:
    """Return the shortest path of a controller that is mounted several times."""
    return min(paths, key=lambda path: len(str(path)), default=None)

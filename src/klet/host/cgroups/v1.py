"""Version 1: one tree per controller (or group of co-mounted ones), of which any may be missing on a machine."""

import contextlib
import errno
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from klet.host.cgroups import tree
from klet.host.cgroups.layout import NAMED_SYSTEMD, CgroupMode
from klet.host.cgroups.resources import UNLIMITED, CgroupResources, hugepage_limits, hugepage_unit
from klet.host.cgroups.usage import CgroupMemoryUsage, CgroupUsage, CpuUsage, build_cpu_v1, build_memory_v1, parse_flat
from klet.host.errors import CgroupError, FileError, FileMissing
from klet.host.files import read_text, write_text

logger = logging.getLogger(__name__)

_CHECKED = ("cpu", "cpuacct", "cpuset", "memory", NAMED_SYSTEMD, "pids", "hugetlb")


class V1Hierarchy:
    """Reads and writes below the mounts of the controllers."""

    def __init__(
        self,
        *,
        controllers: Mapping[str, Path],
        hugepage_sizes: Sequence[int] = (),
        mode: CgroupMode = CgroupMode.V1,
        unified: Path | None = None,
    ) -> None:
        self._controllers = dict(controllers)
        self._mounts = tuple(sorted(set(controllers.values())))
        self._checked = tuple(sorted({str(controllers[name]) for name in _CHECKED if name in controllers}))
        self._hugepage_sizes = tuple(hugepage_sizes)
        self._mode = mode
        self._unified = unified
        self._reported: set[str] = set()

    @property
    def mode(self) -> CgroupMode:
        return self._mode

    def directory(self, controller: str, path: str) -> Path | None:
        """Return where a controller has a cgroup; None if the controller is not mounted."""
        mount = self._controllers.get(controller)
        return tree.inside(mount, path) if mount else None

    def check(self, path: str) -> str:
        # Asked several times for each step of each pod, so without the cost of Path.
        below = path.strip("/")
        wanted = (f"{mount}/{below}" if below else mount for mount in self._checked)
        missing = [directory for directory in wanted if not os.path.isdir(directory)]  # noqa: PTH112 - as above
        return f"has some missing paths: {', '.join(missing)}" if missing else ""

    def has(self, path: str) -> bool:
        first = self._checked[:1]  # a machine may have none of these
        return all(os.path.isdir(f"{mount}/{path.strip('/')}") for mount in first)  # noqa: PTH112 - as above

    def create(self, path: str, resources: CgroupResources) -> None:  # noqa: ARG002 - version 1 has no threaded cgroups
        created: list[Path] = []
        cpuset = self._controllers.get("cpuset")
        try:
            # First, and filled: one that is in every tree is whole then, whenever the agent was killed.
            if cpuset:
                created.extend(tree.make_directories(cpuset, path))
                _inherit_cpuset(cpuset, path)
            for mount in self._mounts:
                if mount != cpuset:
                    created.extend(tree.make_directories(mount, path))
        except (CgroupError, FileError):
            tree.remove_directories(created)
            raise

    def write(self, path: str, resources: CgroupResources) -> None:
        if resources.cpuset and (directory := self._wanted("cpuset", path)):
            write_text(directory / "cpuset.cpus", resources.cpuset)
        if resources.memory_limit and (directory := self._wanted("memory", path)):
            _write_memory(directory, resources.memory_limit)
        if (resources.cpu_shares or resources.cpu_quota or resources.cpu_period) and (
            directory := self._wanted("cpu", path)
        ):
            _write_cpu(directory, resources)
        if resources.pids_limit and (directory := self._wanted("pids", path)):
            limit = "max" if resources.pids_limit == UNLIMITED else str(resources.pids_limit)
            write_text(directory / "pids.max", limit)
        if directory := self.directory("hugetlb", path):
            _write_hugepages(directory, hugepage_limits(resources.hugepages, self._hugepage_sizes))

    def read(self, path: str) -> CgroupResources:
        shares, quota, period = self._numbers("cpu", path, "cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us")
        (memory,) = self._numbers("memory", path, "memory.limit_in_bytes")
        pids = self._text("pids", path, "pids.max")
        cpuset = self._text("cpuset", path, "cpuset.cpus")
        return CgroupResources(
            cpu_shares=shares,
            cpu_quota=quota,
            cpu_period=period,
            cpuset=cpuset.strip() if cpuset is not None else None,
            memory_limit=memory,
            pids_limit=None if pids is None else UNLIMITED if pids.strip() == "max" else int(pids),
            hugepages=self._hugepages(path),
        )

    def usage(self, path: str) -> CgroupUsage:
        (pids,) = self._numbers("pids", path, "pids.current")
        return CgroupUsage(cpu=self._cpu_usage(path), memory=self._memory_usage(path), pids=pids)

    def pids(self, path: str) -> frozenset[int]:
        return frozenset().union(*(tree.collect_pids(tree.inside(mount, path)) for mount in self._mounts))

    def members(self, path: str) -> frozenset[int]:
        """Return those of the controller `devices`, as upstream does: services have cgroups of their own there."""
        directory = self.directory("devices", path)
        if directory is None:
            raise CgroupError("the cgroup controller devices is not mounted: its processes cannot be listed")
        return tree.own_pids(directory)

    def attach(self, path: str, pid: int, *, source: str | None = None) -> None:
        self.create(path, CgroupResources())
        for mount in self._mounts:
            if source is None or pid in tree.own_pids(tree.inside(mount, source)):
                write_text(tree.inside(mount, path) / "cgroup.procs", str(pid))

    def holds(self, path: str, own: Mapping[str, str]) -> bool:
        trees = (f"name={name}" if name == NAMED_SYSTEMD else name for name in self._controllers)
        return all(own.get(name, path) == path for name in trees)

    def kill(self, path: str) -> bool:  # noqa: ARG002 - version 1 has no way to kill a whole cgroup
        return False

    def children(self, path: str) -> frozenset[str]:
        return frozenset().union(*(tree.child_names(tree.inside(mount, path)) for mount in self._mounts))

    def remove(self, path: str) -> None:
        # On a hybrid machine the runtime makes its cgroups in the version 2 tree too, though no limit is there.
        beside = () if self._unified is None else (self._unified,)
        for mount in (*self._mounts, *beside):
            tree.remove_tree(tree.inside(mount, path))

    def _wanted(self, controller: str, path: str) -> Path | None:
        """Return where to write values of a controller; a missing one is reported once and then left out."""
        directory = self.directory(controller, path)
        if directory is None and controller not in self._reported:
            self._reported.add(controller)
            logger.warning("Cgroup controller is not mounted, its limits are not set", extra={"controller": controller})
        return directory

    def _text(self, controller: str, path: str, name: str) -> str | None:
        directory = self.directory(controller, path)
        return tree.read_if_there(directory / name) if directory else None

    def _numbers(self, controller: str, path: str, *names: str) -> tuple[int | None, ...]:
        texts = (self._text(controller, path, name) for name in names)
        return tuple(int(text) if text is not None else None for text in texts)

    def _hugepages(self, path: str) -> dict[int, int]:
        """Return the limit of every page size of the host; none without the controller."""
        files = {size: f"hugetlb.{hugepage_unit(size)}.limit_in_bytes" for size in self._hugepage_sizes}
        limits = zip(files, self._numbers("hugetlb", path, *files.values()), strict=True)
        return {size: limit for size, limit in limits if limit is not None}

    def _cpu_usage(self, path: str) -> CpuUsage | None:
        (usage,) = self._numbers("cpuacct", path, "cpuacct.usage")
        if usage is None:
            return None
        return build_cpu_v1(
            usage=usage,
            times=parse_flat(self._text("cpuacct", path, "cpuacct.stat") or ""),
            stat=parse_flat(self._text("cpu", path, "cpu.stat") or ""),
            ticks_per_second=os.sysconf("SC_CLK_TCK"),
        )

    def _memory_usage(self, path: str) -> CgroupMemoryUsage | None:
        usage, limit, hierarchical = self._numbers(
            "memory", path, "memory.usage_in_bytes", "memory.limit_in_bytes", "memory.use_hierarchy"
        )
        if usage is None or limit is None:
            return None
        stat = parse_flat(self._text("memory", path, "memory.stat") or "")
        return build_memory_v1(stat, usage=usage, limit=limit, hierarchical=hierarchical != 0)


def _inherit_cpuset(mount: Path, path: str) -> None:
    """Give each level the cpuset of the one above: a new one is empty, and no process can enter it."""
    levels = [mount]
    for part in Path(path.lstrip("/")).parts:
        levels.append(levels[-1] / part)
    for name in ("cpuset.cpus", "cpuset.mems"):
        filled = len(levels) - 1
        while not (value := read_text(levels[filled] / name).strip()) and filled:
            filled -= 1
        for level in levels[filled + 1 :]:
            write_text(level / name, value)


def _write_memory(directory: Path, limit: int) -> None:
    if limit == UNLIMITED:
        # Memory plus swap may not be below memory, so it has to go first; it is absent without swap accounting.
        with contextlib.suppress(FileMissing):
            write_text(directory / "memory.memsw.limit_in_bytes", str(limit))
    try:
        write_text(directory / "memory.limit_in_bytes", str(limit))
    except FileError as error:
        if error.errno != errno.EBUSY:
            raise
        usage, peak = tree.read_numbers(
            directory / name for name in ("memory.usage_in_bytes", "memory.max_usage_in_bytes")
        )
        raise CgroupError(
            f"unable to set memory limit to {limit} (current usage: {usage or 0}, peak usage: {peak or 0})"
        ) from error


def _write_cpu(directory: Path, resources: CgroupResources) -> None:
    if resources.cpu_shares:
        _write_shares(directory / "cpu.shares", resources.cpu_shares)
    period_again = False
    if resources.cpu_period:
        try:
            write_text(directory / "cpu.cfs_period_us", str(resources.cpu_period))
        except FileError as error:
            # The old quota may be too large for the new period: quota first, then the period once more.
            if error.errno != errno.EINVAL or not resources.cpu_quota:
                raise
            period_again = True
    if resources.cpu_quota:
        write_text(directory / "cpu.cfs_quota_us", str(resources.cpu_quota))
    if period_again:
        write_text(directory / "cpu.cfs_period_us", str(resources.cpu_period))


def _write_shares(file: Path, shares: int) -> None:
    write_text(file, str(shares))
    kept = int(read_text(file))
    if shares > kept:
        raise CgroupError(f"the maximum allowed cpu-shares is {kept}")
    if shares < kept:
        raise CgroupError(f"the minimum allowed cpu-shares is {kept}")


def _write_hugepages(directory: Path, limits: Mapping[str, int]) -> None:
    for unit, limit in limits.items():
        write_text(directory / f"hugetlb.{unit}.limit_in_bytes", str(limit))
        with contextlib.suppress(FileMissing):
            write_text(directory / f"hugetlb.{unit}.rsvd.limit_in_bytes", str(limit))

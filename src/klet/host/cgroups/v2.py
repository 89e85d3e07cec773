"""The unified hierarchy: one tree, controllers switched on level by level."""

import contextlib
import errno
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from klet.host.cgroups import tree
from klet.host.cgroups.layout import CgroupMode
from klet.host.cgroups.resources import (
    DEFAULT_PERIOD,
    UNLIMITED,
    CgroupResources,
    hugepage_limits,
    hugepage_unit,
    shares_from_weight,
    weight_from_shares,
)
from klet.host.cgroups.usage import CgroupUsage, build_cpu_v2, build_memory_v2, parse_flat, parse_limit
from klet.host.errors import CgroupError, FileError, FileMissing
from klet.host.files import read_text, write_text

_NEEDED = frozenset({"cpu", "cpuset", "memory", "hugetlb", "pids"})


class V2Hierarchy:
    """Reads and writes below one cgroup2 mount."""

    def __init__(self, *, root: Path, hugepage_sizes: Sequence[int] = ()) -> None:
        self._root = root
        self._hugepage_sizes = tuple(hugepage_sizes)

    @property
    def mode(self) -> CgroupMode:
        return CgroupMode.UNIFIED

    @cached_property
    def controllers(self) -> tuple[str, ...]:
        """Return the controllers of the root, which do not change while the kernel runs."""
        return tuple(read_text(self._root / "cgroup.controllers").split())

    def check(self, path: str) -> str:
        try:
            present = read_text(tree.inside(self._root, path) / "cgroup.controllers").split()
        except FileError as error:
            return str(error)
        missing = sorted(_NEEDED.intersection(self.controllers).difference(present))
        return f"has some missing controllers: {', '.join(missing)}" if missing else ""

    def has(self, path: str) -> bool:
        return tree.inside(self._root, path).is_dir()

    def create(self, path: str, resources: CgroupResources) -> None:
        created: list[Path] = []
        current = self._root
        try:
            for part in Path(path.lstrip("/")).parts:
                self._enable_controllers(current)
                current /= part
                if tree.make_directory(current):
                    created.append(current)
                self._check_type(current, needs_domain=needs_domain(resources))
        except (CgroupError, FileError):
            tree.remove_directories(created)
            raise

    def write(self, path: str, resources: CgroupResources) -> None:
        directory = tree.inside(self._root, path)
        for name, text in self._files(resources):
            write_text(directory / name, text)
        if resources.memory_limit == UNLIMITED:
            with contextlib.suppress(FileMissing):
                write_text(directory / "memory.swap.max", "max")
        if "hugetlb" in self.controllers:
            for unit, limit in hugepage_limits(resources.hugepages, self._hugepage_sizes).items():
                write_text(directory / f"hugetlb.{unit}.max", str(limit))
                with contextlib.suppress(FileMissing):
                    write_text(directory / f"hugetlb.{unit}.rsvd.max", str(limit))
        for name, text in unified_values(resources).items():
            write_text(directory / name, text)

    def read(self, path: str) -> CgroupResources:
        directory = tree.inside(self._root, path)
        weight, pids, memory, protected, cpuset = (
            tree.read_if_there(directory / name)
            for name in ("cpu.weight", "pids.max", "memory.max", "memory.min", "cpuset.cpus")
        )
        quota, _, period = (tree.read_if_there(directory / "cpu.max") or "").strip().partition(" ")
        return CgroupResources(
            cpu_shares=shares_from_weight(int(weight)) if weight else None,
            cpu_quota=_limit(quota),
            cpu_period=int(period) if period else None,
            cpuset=cpuset.strip() if cpuset is not None else None,
            memory_limit=_limit(memory),
            memory_min=_limit(protected),
            pids_limit=_limit(pids),
            hugepages=self._hugepages(directory),
        )

    def usage(self, path: str) -> CgroupUsage:
        directory = tree.inside(self._root, path)
        cpu, memory, limit = (
            tree.read_if_there(directory / name) for name in ("cpu.stat", "memory.stat", "memory.max")
        )
        current, swap, pids = tree.read_numbers(
            directory / name for name in ("memory.current", "memory.swap.current", "pids.current")
        )
        return CgroupUsage(
            cpu=build_cpu_v2(parse_flat(cpu)) if cpu else None,
            memory=build_memory_v2(
                parse_flat(memory), current=current, swap=swap, limit=parse_limit(limit) if limit else None
            )
            if memory
            else None,
            pids=pids,
        )

    def pids(self, path: str) -> frozenset[int]:
        return tree.collect_pids(tree.inside(self._root, path))

    def members(self, path: str) -> frozenset[int]:
        return tree.own_pids(tree.inside(self._root, path))

    def attach(self, path: str, pid: int, *, source: str | None = None) -> None:
        self.create(path, CgroupResources())
        if source is None or pid in self.members(source):
            write_text(tree.inside(self._root, path) / "cgroup.procs", str(pid))

    def holds(self, path: str, own: Mapping[str, str]) -> bool:
        return own.get("") == path

    def kill(self, path: str) -> bool:
        """Kill through `cgroup.kill`, which is there since Linux 5.14 and races with no fork."""
        directory = tree.inside(self._root, path)
        try:
            write_text(directory / "cgroup.kill", "1")
        except FileMissing:
            return not directory.exists()
        except FileError as error:
            # The root and threaded cgroups have no such file or refuse it.
            if error.errno == errno.EOPNOTSUPP:
                return False
            raise
        return True

    def children(self, path: str) -> frozenset[str]:
        return tree.child_names(tree.inside(self._root, path))

    def remove(self, path: str) -> None:
        tree.remove_tree(tree.inside(self._root, path))

    def _hugepages(self, directory: Path) -> dict[int, int]:
        """Return the limit of every page size of the host; none without the controller."""
        texts = {
            size: tree.read_if_there(directory / f"hugetlb.{hugepage_unit(size)}.max") for size in self._hugepage_sizes
        }
        return {size: limit for size, text in texts.items() if (limit := _limit(text)) is not None}

    def _files(self, resources: CgroupResources) -> Iterator[tuple[str, str]]:
        """Yield the plain files, in the order in which upstream writes them."""
        if resources.pids_limit:
            yield "pids.max", _max_or(resources.pids_limit)
        if resources.memory_limit:
            yield "memory.max", _max_or(resources.memory_limit)
        if resources.cpu_shares:
            yield "cpu.weight", str(weight_from_shares(resources.cpu_shares))
        if resources.cpu_quota or resources.cpu_period:
            quota = resources.cpu_quota or 0
            yield "cpu.max", f"{quota if quota > 0 else 'max'} {resources.cpu_period or DEFAULT_PERIOD}"
        if resources.cpuset:
            yield "cpuset.cpus", resources.cpuset

    def _enable_controllers(self, directory: Path) -> None:
        control = directory / "cgroup.subtree_control"
        try:
            write_text(control, " ".join(f"+{name}" for name in self.controllers))
        except FileError:
            # One that cannot be had here must not keep the others off; what is needed is checked by the caller.
            for name in self.controllers:
                with contextlib.suppress(FileError):
                    write_text(control, f"+{name}")

    def _check_type(self, directory: Path, *, needs_domain: bool) -> None:
        kind = (tree.read_if_there(directory / "cgroup.type") or "").strip()
        refused = f'cannot enter cgroupv2 "{directory}" with domain controllers -- it is in'
        if kind == "domain invalid":
            if needs_domain:
                raise CgroupError(f"{refused} an invalid state")
            write_text(directory / "cgroup.type", "threaded")
        elif kind in {"threaded", "domain threaded"} and needs_domain:
            raise CgroupError(f"{refused} {kind} mode")


def needs_domain(resources: CgroupResources) -> bool:
    """Return whether a value is to be set that a threaded cgroup cannot have."""
    return bool(
        resources.memory_limit
        or resources.cpu_shares
        or resources.cpu_quota
        or resources.cpu_period
        or any(resources.hugepages.values())
    )


def unified_values(resources: CgroupResources) -> dict[str, str]:
    """Return the values written under their own file names."""
    values = dict(resources.unified)
    if resources.memory_min is not None:
        values["memory.min"] = str(resources.memory_min)
    if resources.memory_high is not None:
        values["memory.high"] = _max_or(resources.memory_high)
    return values


def _max_or(value: int) -> str:
    return "max" if value == UNLIMITED else str(value)


def _limit(text: str | None) -> int | None:
    if not text:
        return None
    limit = parse_limit(text)
    return UNLIMITED if limit is None else limit

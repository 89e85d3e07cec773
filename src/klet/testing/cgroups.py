"""Cgroups in memory: a Hierarchy that needs no root, to stand below the real CgroupManager."""

from collections.abc import Mapping

from msgspec.structs import fields, replace

from klet.host.cgroups.layout import CgroupMode
from klet.host.cgroups.resources import CgroupResources
from klet.host.cgroups.usage import CgroupUsage
from klet.host.errors import CgroupBusy, CgroupError


class MemoryHierarchy:
    """Keeps the values written to each cgroup, and the processes that a test puts there.

    `refuses` makes writes to a path fail with that text; a path in `exiting` is busy for that many removals more.
    """

    def __init__(self, *, mode: CgroupMode = CgroupMode.UNIFIED, can_kill: bool = True) -> None:
        self._mode = mode
        self._can_kill = can_kill
        self.cgroups: dict[str, CgroupResources] = {"/": CgroupResources()}
        self.processes: dict[str, set[int]] = {}
        self.usages: dict[str, CgroupUsage] = {}
        self.refuses: dict[str, str] = {}
        self.exiting: dict[str, int] = {}

    @property
    def mode(self) -> CgroupMode:
        return self._mode

    def check(self, path: str) -> str:
        return "" if path in self.cgroups else f"has some missing paths: {path}"

    def has(self, path: str) -> bool:
        return path in self.cgroups

    def create(self, path: str, resources: CgroupResources) -> None:  # noqa: ARG002 - values are written by `write`
        parts = path.strip("/").split("/")
        for count in range(len(parts)):
            self.cgroups.setdefault("/" + "/".join(parts[: count + 1]), CgroupResources())

    def write(self, path: str, resources: CgroupResources) -> None:
        if path not in self.cgroups:
            raise CgroupError(f"cannot write to cgroup {path}: No such file or directory")
        if path in self.refuses:
            raise CgroupError(self.refuses[path])
        given = {each.name: value for each in fields(resources) if (value := getattr(resources, each.name))}
        self.cgroups[path] = replace(self.cgroups[path], **given)

    def read(self, path: str) -> CgroupResources:
        return self.cgroups[path]

    def usage(self, path: str) -> CgroupUsage:
        return self.usages.get(path, CgroupUsage())

    def pids(self, path: str) -> frozenset[int]:
        return frozenset().union(*(pids for place, pids in self.processes.items() if _is_inside(place, path)))

    def members(self, path: str) -> frozenset[int]:
        return frozenset(self.processes.get(path, ()))

    def attach(self, path: str, pid: int, *, source: str | None = None) -> None:
        if source is not None and pid not in self.members(source):
            return
        self.create(path, CgroupResources())
        for pids in self.processes.values():
            pids.discard(pid)
        self.processes.setdefault(path, set()).add(pid)

    def holds(self, path: str, own: Mapping[str, str]) -> bool:
        return own.get("") == path

    def kill(self, path: str) -> bool:
        if self._can_kill:
            for place in [place for place in self.processes if _is_inside(place, path)]:
                del self.processes[place]
        return self._can_kill

    def children(self, path: str) -> frozenset[str]:
        prefix = path.rstrip("/") + "/"
        rests = (place.removeprefix(prefix) for place in self.cgroups if place.startswith(prefix) and place != "/")
        return frozenset(rest for rest in rests if rest and "/" not in rest)

    def remove(self, path: str) -> None:
        if self.exiting.get(path, 0) > 0:
            self.exiting[path] -= 1
            raise CgroupBusy(f"cannot remove cgroup {path}: it still holds processes or children")
        if self.pids(path):
            raise CgroupBusy(f"cannot remove cgroup {path}: it still holds processes or children")
        for place in [place for place in self.cgroups if _is_inside(place, path)]:
            del self.cgroups[place]


def _is_inside(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")

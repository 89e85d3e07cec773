"""The kernel's cgroup files, v1 and v2: the base of the cgroup drivers. Its calls block."""

from collections.abc import Mapping
from typing import Protocol

from klet.host.cgroups.layout import CgroupMode
from klet.host.cgroups.resources import CgroupResources
from klet.host.cgroups.usage import CgroupUsage


class Hierarchy(Protocol):
    """Paths are those below the mounts and begin with a slash."""

    @property
    def mode(self) -> CgroupMode: ...

    def check(self, path: str) -> str:
        """Return what is missing of a cgroup, in upstream's words; empty if it is whole."""
        ...

    def has(self, path: str) -> bool:
        """Return whether a cgroup is there, at a glance: not whether it is whole."""
        ...

    def create(self, path: str, resources: CgroupResources) -> None:
        """Make the directories. The resources decide whether a threaded cgroup will do; they are not written."""
        ...

    def write(self, path: str, resources: CgroupResources) -> None: ...

    def read(self, path: str) -> CgroupResources:
        """Return the values as they are now; None, or nothing, for what this machine cannot limit."""
        ...

    def usage(self, path: str) -> CgroupUsage: ...

    def pids(self, path: str) -> frozenset[int]:
        """Return the processes of a cgroup and of all below it."""
        ...

    def members(self, path: str) -> frozenset[int]:
        """Return the processes of a cgroup itself, without those below it."""
        ...

    def attach(self, path: str, pid: int, *, source: str | None = None) -> None:
        """Move a process into a cgroup, which is made if it is not there.

        With a source, only in those trees where the process is in that cgroup: in the others it has one of its own.
        """
        ...

    def holds(self, path: str, own: Mapping[str, str]) -> bool:
        """Return whether a process is in a cgroup, in every tree; `own` are the lines of its /proc/<pid>/cgroup."""
        ...

    def kill(self, path: str) -> bool:
        """Kill all processes at once; False if this kernel cannot, so that each must be killed by itself."""
        ...

    def children(self, path: str) -> frozenset[str]: ...

    def remove(self, path: str) -> None:
        """Try once to remove a cgroup and its children; raises CgroupBusy while there are processes."""
        ...

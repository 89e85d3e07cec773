"""Which processes are in a cgroup, and moving them into another one (upstream: ensureProcessInContainerWithOOMScore,
ensureSystemCgroups).

A process is only touched if it lives in the pid namespace of process 1: what runs in a container is not the machine's.
"""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

from klet.aio.threads import Threads
from klet.host.cgroups.hierarchy import Hierarchy
from klet.host.errors import CgroupError, FileError, MalformedFile
from klet.host.files import read_text, write_text
from klet.host.procfs import parse_process_cgroups

P = ParamSpec("P")
T = TypeVar("T")

_INIT = 1


class CgroupMembers:
    """Lists and moves processes of this machine."""

    def __init__(self, *, hierarchy: Hierarchy, threads: Threads, proc: Path = Path("/proc")) -> None:
        self._hierarchy = hierarchy
        self._threads = threads
        self._proc = proc

    async def place_agent(self, path: str) -> bool:
        """Move this process into a cgroup, which is made if it is not there; False if it is in it already."""
        return await self._run(self._place, os.getpid(), path)

    async def set_agent_oom_score(self, score: int) -> bool:
        """Set how early the kernel kills this process; False if the score is that already."""
        return await self._run(self._set_oom_score, os.getpid(), score)

    async def list_movable(self, path: str) -> frozenset[int]:
        """Return the processes of a cgroup itself, without process 1, kernel threads and those of containers."""
        return await self._run(self._list_movable, path)

    async def move(self, pid: int, *, source: str, target: str) -> bool:
        """Move a process from one cgroup into another; False if it is not to be moved, or gone, by now."""
        return await self._run(self._move, pid, source, target)

    def _place(self, pid: int, path: str) -> bool:
        if not self._is_of_machine(pid):
            return False
        if self._hierarchy.holds(path, parse_process_cgroups(read_text(self._proc / str(pid) / "cgroup"))):
            return False
        self._hierarchy.attach(path, pid)
        return True

    def _set_oom_score(self, pid: int, score: int) -> bool:
        file = self._proc / str(pid) / "oom_score_adj"
        if not self._is_of_machine(pid) or read_text(file).strip() == str(score):
            return False
        write_text(file, str(score))
        return True

    def _list_movable(self, path: str) -> frozenset[int]:
        return frozenset(pid for pid in self._hierarchy.members(path) if self._may_move(pid))

    def _move(self, pid: int, source: str, target: str) -> bool:
        # Looked at again: its number may be that of another process by now.
        if pid not in self._hierarchy.members(source) or not self._may_move(pid):
            return False
        try:
            self._hierarchy.attach(target, pid, source=source)
        except FileError as error:
            if error.errno == errno.ESRCH:
                return False
            raise
        return True

    def _may_move(self, pid: int) -> bool:
        return pid != _INIT and self._has_program(pid) and self._is_of_machine(pid)

    def _has_program(self, pid: int) -> bool:
        """Return whether a process runs a program: the kernel's own threads have none."""
        try:
            (self._proc / str(pid) / "exe").readlink()
        except FileNotFoundError:
            return False
        except OSError:
            return True  # it has one that we may not see
        return True

    def _is_of_machine(self, pid: int) -> bool:
        """Return whether a process lives in the pid namespace of process 1. One that is gone does not."""
        try:
            return self._namespace(pid) == self._namespace(_INIT)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise CgroupError(f"failed to find pid namespace of process {pid}: {error.strerror}") from error

    def _namespace(self, pid: int) -> str:
        return str((self._proc / str(pid) / "ns" / "pid").readlink())

    async def _run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await self._threads.run(call, *args, **kwargs)
        except (FileError, MalformedFile) as error:
            raise CgroupError(str(error)) from error

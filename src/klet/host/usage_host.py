"""What the statistics read from this machine: cgroups, processes, filesystems, limits. Everything goes through threads.

Cgroups are read in batches: between two of them the event loop gets its turn.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeVar

from msgspec import structs

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.host.cgroups.samples import CgroupFiles, DiskNames, read_list
from klet.host.errors import MalformedFile
from klet.host.machine.filesystems import FilesystemReader
from klet.host.machine.usage import UsageReader
from klet.host.process_counts import ProcessCounter, parse_pids
from klet.host.procfs import parse_process_cgroups
from klet.model.stats import (
    CgroupReading,
    CgroupRequest,
    FoundCgroup,
    MachineFilesystem,
    ProcessCounters,
    ProcessLimits,
)

_T = TypeVar("_T")
_R = TypeVar("_R")

MOST_CGROUPS: Final = 4000
BATCH: Final = 8
_IGNORED: Final = ".mount"
"""systemd's cgroups of mounts, which cAdvisor leaves out too."""


class UsageHost:
    """Reads the machine whose /proc is below `root`."""

    def __init__(
        self,
        *,
        files: CgroupFiles,
        filesystems: FilesystemReader,
        threads: Threads,
        clock: Clock,
        root: Path = Path("/"),
    ) -> None:
        self._files = files
        self._filesystems = filesystems
        self._threads = threads
        self._clock = clock
        self._proc = str(root / "proc")
        self._usage = UsageReader(root=root)
        self._processes = ProcessCounter(proc=root / "proc")
        self._disks: DiskNames = {}
        self._first_pids: dict[tuple[str, int], int] = {}

    async def find(self, roots: Sequence[str]) -> tuple[FoundCgroup, ...]:
        """Return the root, and the cgroups at and below these paths; parents come before their children."""
        return await self._threads.run(self._find, roots)

    async def read(self, wanted: Sequence[CgroupRequest]) -> Mapping[str, CgroupReading]:
        """Read cgroups by path; one that is gone is left out."""
        self._disks = await self._threads.run(self._filesystems.disks)
        kept = {(each.found.path, each.found.inode) for each in wanted}
        self._first_pids = {key: pid for key, pid in self._first_pids.items() if key in kept}
        return await self._in_batches(self._read_batch, wanted)

    async def cpu_usage(self, paths: Sequence[str]) -> Mapping[str, tuple[float, int]]:
        """Return the CPU time of cgroups, with the monotonic time at which each was read."""
        return await self._in_batches(self._read_cpu, paths)

    async def filesystems(self) -> tuple[MachineFilesystem, ...]:
        return await self._threads.run(self._filesystems.read)

    async def process_limits(self) -> ProcessLimits:
        """Return how many processes the machine may have and has. Raises HostError."""
        return await self._threads.run(self._read_limits)

    async def own_cgroup(self) -> str:
        """Return the cgroup of the agent; empty if it is not the same for CPU and memory."""
        text = await self._threads.run(read_list, f"{self._proc}/self/cgroup")
        return choose_own_cgroup((text or b"").decode("utf-8", "replace"))

    async def _in_batches(
        self, call: Callable[[Sequence[_T]], Mapping[str, _R]], wanted: Sequence[_T]
    ) -> dict[str, _R]:
        found: dict[str, _R] = {}
        for start in range(0, len(wanted), BATCH):
            found.update(await self._threads.run(call, wanted[start : start + BATCH]))
        return found

    def _find(self, roots: Sequence[str]) -> tuple[FoundCgroup, ...]:
        found: dict[str, FoundCgroup] = {}
        waiting = ["/", *roots]
        for path in waiting:
            if path in found or len(found) >= MOST_CGROUPS:
                continue
            below = "" if path == "/" else path
            try:
                status = os.stat(f"{self._files.tree}{below}")  # noqa: PTH116 - for every cgroup of every scrape
            except OSError:
                continue  # it is gone, or the cgroup of a system container that is not there
            found[path] = FoundCgroup(path, status.st_ino, status.st_mtime)
            # The kernel counts the directories in a directory among its links: two means that there are none.
            if path != "/" and status.st_nlink != 2:
                waiting.extend(self._children(below))
        return tuple(found.values())

    def _children(self, path: str) -> list[str]:
        try:
            with os.scandir(f"{self._files.tree}{path}") as entries:
                return sorted(
                    f"{path}/{entry.name}"
                    for entry in entries
                    if entry.is_dir(follow_symlinks=False) and not entry.name.endswith(_IGNORED)
                )
        except OSError:
            return []  # it was removed meanwhile

    def _read_cpu(self, paths: Sequence[str]) -> dict[str, tuple[float, int]]:
        found = {}
        for path in paths:
            usage = self._files.cpu_usage(path)
            if usage is not None:
                found[path] = self._clock.monotonic(), usage
        return found

    def _read_batch(self, wanted: Sequence[CgroupRequest]) -> dict[str, CgroupReading]:
        return {each.found.path: reading for each in wanted if (reading := self._read_one(each)) is not None}

    def _read_one(self, request: CgroupRequest) -> CgroupReading | None:
        path = request.found.path
        below = "" if path == "/" else path
        text = read_list(f"{self._files.tree}{below}/cgroup.procs")
        if text is None and path != "/":
            return None
        pids = parse_pids(text or b"")
        counters = self._files.read(path, self._disks)
        files, sockets = self._processes.open_files(pids)
        limit, network = None, None
        first = self._first_pid(request, pids) if request.is_container else 1 if path == "/" else None
        if first is not None:
            limit = self._processes.max_open_files(first)
            network = self._processes.interfaces(first) if request.has_network else None
        memory = counters.memory
        if path == "/" and memory is not None:
            machine = self._usage.memory()
            swap = machine.swap_total - machine.swap_free if self._files.birth_file == "cgroup.events" else memory.swap
            memory = structs.replace(memory, limit=machine.total, swap_limit=machine.swap_total, swap=swap)
        return CgroupReading(
            read_at=self._clock.monotonic(),
            sampled_at=self._clock.now(),
            created_at=self._created_at(request.found, below),
            cpu=counters.cpu,
            memory=memory,
            io=counters.io,
            network=network,
            processes=ProcessCounters(len(pids), counters.threads, counters.threads_max, files, sockets, limit),
            pressure=counters.pressure,
            oom_events=counters.oom_events,
        )

    def _first_pid(self, request: CgroupRequest, pids: list[int]) -> int | None:
        """Return the first process of a container, which is looked for once: the container ends with it."""
        key = request.found.path, request.found.inode
        known = self._first_pids.get(key)
        if known in pids:
            return known
        first = self._processes.oldest(pids)
        if first is not None:
            self._first_pids[key] = first
        return first

    def _created_at(self, found: FoundCgroup, below: str) -> datetime:
        """Return the oldest of two times: the directory's changes with what is made in it, the file's does not."""
        try:
            file = os.stat(f"{self._files.tree}{below}/{self._files.birth_file}").st_mtime  # noqa: PTH116 - as above
        except OSError:
            file = found.changed
        return datetime.fromtimestamp(min(found.changed, file), UTC)

    def _read_limits(self) -> ProcessLimits:
        numbers = [self._read_number(f"sys/kernel/{name}") for name in ("pid_max", "threads-max")]
        words = (read_list(f"{self._proc}/loadavg") or b"").split()
        _, _, current = words[3].partition(b"/") if len(words) > 3 else (b"", b"", b"")
        if not current.isdigit():
            raise MalformedFile("/proc/loadavg has no fourth field `running/total`")
        return ProcessLimits(maximum=min(numbers), current=int(current))

    def _read_number(self, name: str) -> int:
        text = (read_list(f"{self._proc}/{name}") or b"").strip()
        if not text.isdigit():
            raise MalformedFile(f"/proc/{name} is not a whole number")
        return int(text)


def choose_own_cgroup(text: str) -> str:
    """Return the path of a process from its /proc/<pid>/cgroup: systemd's on version 1, if it has one."""
    cgroups = parse_process_cgroups(text)
    if "cpu" not in cgroups and "memory" not in cgroups:
        return cgroups.get("", "")
    if "name=systemd" in cgroups and cgroups["name=systemd"] != "/":
        return cgroups["name=systemd"]
    cpu, memory = cgroups.get("cpu", ""), cgroups.get("memory", "")
    return cpu if cpu == memory else ""

"""All that the kernel counts for one cgroup, read from its files by cAdvisor's formulas, for both versions. It blocks.

Hundreds of cgroups are read for each scrape, so paths are plain strings, files are read by system calls, and numbers
are parsed without patterns. A cgroup that goes away while it is read gives None.
"""

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct

from klet.api.stats import PSIData, PSIStats
from klet.host.cgroups.resources import shares_from_weight
from klet.model.stats import NO_LIMIT, CgroupPressure, CpuCounters, DeviceIo, MemoryCounters

_LONGEST_FILE: Final = 16 << 10
_LONGEST_LIST: Final = 1 << 20
_PIECE: Final = 64 << 10
_MOST_DIGITS: Final = 20
_NO_PRESSURE: Final = PSIStats()
_MICRO: Final = 1000
_ABSENT: Final = frozenset({errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP, errno.ENOTDIR, errno.EINVAL, errno.EIO})
"""A file, or a cgroup, that is not there or not supported by this kernel."""

DiskNames = Mapping[tuple[int, int], str]
"""Devices by number: `/dev/sda`."""


class CgroupCounters(Struct, frozen=True, gc=False):
    """What the files of one cgroup say; a part is None where its controller is missing."""

    cpu: CpuCounters | None
    memory: MemoryCounters | None
    io: tuple[DeviceIo, ...]
    pressure: CgroupPressure
    threads: int
    threads_max: int
    oom_events: int


class CgroupFiles(Protocol):
    """Reads the counters of cgroups; paths are those below the mounts."""

    @property
    def tree(self) -> str:
        """The directory of the hierarchy in which cgroups are looked for, with their processes."""
        ...

    @property
    def birth_file(self) -> str:
        """A file of each cgroup that is as old as the cgroup."""
        ...

    def read(self, path: str, disks: DiskNames) -> CgroupCounters: ...

    def cpu_usage(self, path: str) -> int | None:
        """Return the CPU time alone, in nanoseconds."""
        ...


class V1Files:
    """Reads below the mounts of the controllers."""

    def __init__(self, *, controllers: Mapping[str, Path], ticks_per_second: int) -> None:
        self._cpu, self._cpuacct, self._memory, self._blkio, self._pids = (
            str(controllers[name]) if name in controllers else None
            for name in ("cpu", "cpuacct", "memory", "blkio", "pids")
        )
        self._tree = next((mount for mount in (self._cpu, self._memory, self._pids) if mount is not None), "")
        self._tick = 1_000_000_000 // ticks_per_second
        self._suffix = "_recursive" if _has(self._blkio, "blkio.throttle.io_service_bytes_recursive") else ""
        # The kernel lets no cgroup below a hierarchical one be otherwise, and since Linux 5.11 all are.
        text = None if self._memory is None else _read(f"{self._memory}/memory.use_hierarchy")
        self._prefix = b"" if text is not None and text.strip() == b"0" else b"total_"
        self._has_memsw = _has(self._memory, "memory.memsw.limit_in_bytes")

    @property
    def tree(self) -> str:
        return self._tree

    @property
    def birth_file(self) -> str:
        return "cgroup.clone_children"

    def read(self, path: str, disks: DiskNames) -> CgroupCounters:
        below = "" if path == "/" else path
        threads, limit = 0, 0
        if self._pids is not None:
            threads = _number(f"{self._pids}{below}/pids.current") or 0
            limit = _limit(f"{self._pids}{below}/pids.max")
        return CgroupCounters(
            cpu=self._read_cpu(below),
            memory=self._read_memory(below),
            io=self._read_io(below, disks),
            pressure=CgroupPressure(),
            threads=threads,
            threads_max=0 if limit == NO_LIMIT else limit,
            oom_events=self._read_kills(below),
        )

    def cpu_usage(self, path: str) -> int | None:
        return _number(f"{self._cpuacct}{'' if path == '/' else path}/cpuacct.usage") if self._cpuacct else None

    def _read_cpu(self, below: str) -> CpuCounters | None:
        usage = _number(f"{self._cpuacct}{below}/cpuacct.usage") if self._cpuacct is not None else None
        if usage is None:
            return None
        times = _flat(_read(f"{self._cpuacct}{below}/cpuacct.stat"))
        stat: Mapping[bytes, int] = {}
        quota, shares, period = None, 0, 0
        if self._cpu is not None:
            directory = f"{self._cpu}{below}/"
            stat = _flat(_read(f"{directory}cpu.stat"))
            shares = _number(f"{directory}cpu.shares") or 0
            # -1, which is no number here, stands for no quota.
            quota = _number(f"{directory}cpu.cfs_quota_us")
            period = _number(f"{directory}cpu.cfs_period_us") or 0
        return CpuCounters(
            usage=usage,
            user=times.get(b"user", 0) * self._tick,
            system=times.get(b"system", 0) * self._tick,
            periods=stat.get(b"nr_periods", 0),
            throttled_periods=stat.get(b"nr_throttled", 0),
            throttled=stat.get(b"throttled_time", 0),
            shares=shares,
            quota=quota,
            period=period,
        )

    def _read_memory(self, below: str) -> MemoryCounters | None:
        if self._memory is None:
            return None
        directory = f"{self._memory}{below}/memory."
        usage = _number(f"{directory}usage_in_bytes")
        if usage is None:
            return None
        stat = _flat(_read(f"{directory}stat"))
        prefix = self._prefix
        inactive = stat.get(prefix + b"inactive_file", 0)
        # Both scopes are the cgroup's own, as cAdvisor has it.
        faults, major = stat.get(b"pgfault", 0), stat.get(b"pgmajfault", 0)
        return MemoryCounters(
            usage=usage,
            working_set=max(0, usage - inactive),
            rss=stat.get(prefix + b"rss", 0),
            cache=stat.get(prefix + b"cache", 0),
            mapped_file=stat.get(prefix + b"mapped_file", 0),
            swap=stat.get(prefix + b"swap", 0),
            kernel=_number(f"{directory}kmem.usage_in_bytes") or 0,
            max_usage=_number(f"{directory}max_usage_in_bytes") or 0,
            failures=_number(f"{directory}failcnt") or 0,
            active_file=stat.get(prefix + b"active_file", 0),
            inactive_file=inactive,
            page_faults=faults,
            major_page_faults=major,
            hierarchy_page_faults=faults,
            hierarchy_major_page_faults=major,
            limit=_limit(f"{directory}limit_in_bytes"),
            swap_limit=_limit(f"{directory}memsw.limit_in_bytes") if self._has_memsw else 0,
            reservation=_limit(f"{directory}soft_limit_in_bytes"),
        )

    def _read_io(self, below: str, disks: DiskNames) -> tuple[DeviceIo, ...]:
        if self._blkio is None:
            return ()
        directory = f"{self._blkio}{below}/blkio.throttle."
        amounts = parse_blkio(_read(f"{directory}io_service_bytes{self._suffix}") or b"")
        if not amounts:
            return ()
        counts = parse_blkio(_read(f"{directory}io_serviced{self._suffix}") or b"")
        return tuple(
            DeviceIo(device[0], device[1], disks.get(device, ""), amount, counts.get(device, {}))
            for device, amount in amounts.items()
        )

    def _read_kills(self, below: str) -> int:
        if self._memory is None:
            return 0
        return _flat(_read(f"{self._memory}{below}/memory.oom_control")).get(b"oom_kill", 0)


class V2Files:
    """Reads below one cgroup2 mount. The root has fewer files; `/proc/meminfo` is added to it elsewhere."""

    def __init__(self, *, root: Path) -> None:
        self._root = str(root)

    @property
    def tree(self) -> str:
        return self._root

    @property
    def birth_file(self) -> str:
        return "cgroup.events"

    def read(self, path: str, disks: DiskNames) -> CgroupCounters:
        directory = f"{self._root}/" if path == "/" else f"{self._root}{path}/"
        limit = _limit(f"{directory}pids.max")
        kills = _read(f"{directory}memory.events.local") or _read(f"{directory}memory.events")
        return CgroupCounters(
            cpu=_read_cpu_v2(directory),
            memory=_read_memory_v2(directory),
            io=parse_io_stat(_read(f"{directory}io.stat") or b"", disks),
            pressure=CgroupPressure(
                parse_pressure(_read(f"{directory}cpu.pressure")),
                parse_pressure(_read(f"{directory}memory.pressure")),
                parse_pressure(_read(f"{directory}io.pressure")),
            ),
            threads=_number(f"{directory}pids.current") or 0,
            threads_max=0 if limit == NO_LIMIT else limit,
            oom_events=_flat(kills).get(b"oom_kill", 0),
        )

    def cpu_usage(self, path: str) -> int | None:
        text = _read(f"{self._root}{'' if path == '/' else path}/cpu.stat")
        return None if text is None else _flat(text).get(b"usage_usec", 0) * _MICRO


def _read_cpu_v2(directory: str) -> CpuCounters | None:
    text = _read(f"{directory}cpu.stat")
    if text is None:
        return None
    stat = _flat(text)
    quota, _, period = (_read(f"{directory}cpu.max") or b"").strip().partition(b" ")
    weight = _number(f"{directory}cpu.weight")
    return CpuCounters(
        usage=stat.get(b"usage_usec", 0) * _MICRO,
        user=stat.get(b"user_usec", 0) * _MICRO,
        system=stat.get(b"system_usec", 0) * _MICRO,
        periods=stat.get(b"nr_periods", 0),
        throttled_periods=stat.get(b"nr_throttled", 0),
        throttled=stat.get(b"throttled_usec", 0) * _MICRO,
        shares=0 if weight is None else shares_from_weight(weight),
        quota=_parse(quota),
        period=_parse(period) or 0,
    )


def _read_memory_v2(directory: str) -> MemoryCounters | None:
    text = _read(f"{directory}memory.stat")
    if text is None:
        return None
    stat = _flat(text)
    current = _number(f"{directory}memory.current")
    usage = stat.get(b"anon", 0) + stat.get(b"file", 0) if current is None else current
    inactive = stat.get(b"inactive_file", 0)
    faults, major = stat.get(b"pgfault", 0), stat.get(b"pgmajfault", 0)
    return MemoryCounters(
        usage=usage,
        working_set=max(0, usage - inactive),
        rss=stat.get(b"anon", 0),
        cache=stat.get(b"file", 0),
        mapped_file=stat.get(b"file_mapped", 0),
        swap=_number(f"{directory}memory.swap.current") or 0,
        max_usage=_number(f"{directory}memory.peak") or 0,
        active_file=stat.get(b"active_file", 0),
        inactive_file=inactive,
        page_faults=faults,
        major_page_faults=major,
        hierarchy_page_faults=faults,
        hierarchy_major_page_faults=major,
        limit=_limit(f"{directory}memory.max"),
        swap_limit=_limit(f"{directory}memory.swap.max"),
        reservation=_limit(f"{directory}memory.min"),
    )


def parse_blkio(text: bytes) -> dict[tuple[int, int], dict[str, int]]:
    """Parse a version 1 file: `major:minor operation number` a line, and a total of all devices."""
    found: dict[tuple[int, int], dict[str, int]] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) != 3 or (device := _parse_device(words[0])) is None or (number := _parse(words[2])) is None:
            continue
        found.setdefault(device, {})[words[1].decode("ascii", "replace")] = number
    return found


def parse_io_stat(text: bytes, disks: DiskNames) -> tuple[DeviceIo, ...]:
    """Parse the version 2 file: `major:minor rbytes=… wbytes=… rios=… wios=… dbytes=… dios=…` a line."""
    found = []
    for line in text.splitlines():
        first, *pairs = line.split() or [b""]
        device = _parse_device(first)
        numbers = {
            name: number
            for name, _, value in (pair.partition(b"=") for pair in pairs)
            if (number := _parse(value)) is not None
        }
        if device is None or not numbers:
            continue
        found.append(
            DeviceIo(
                device[0],
                device[1],
                disks.get(device, ""),
                {"Read": numbers.get(b"rbytes", 0), "Write": numbers.get(b"wbytes", 0)},
                {"Read": numbers.get(b"rios", 0), "Write": numbers.get(b"wios", 0)},
            )
        )
    return tuple(found)


def parse_pressure(text: bytes | None) -> PSIStats:
    """Parse a pressure file; zeros where the kernel has none. The full line of `cpu.pressure` may be missing."""
    if not text:
        return _NO_PRESSURE
    lines = {line[:4]: line for line in text.splitlines()}
    return PSIStats(full=_parse_pressure_line(lines.get(b"full")), some=_parse_pressure_line(lines.get(b"some")))


def _parse_pressure_line(line: bytes | None) -> PSIData:
    if line is None:
        return _NO_PRESSURE.full
    fields = dict(word.split(b"=", 1) for word in line.split()[1:] if b"=" in word)
    total = _parse(fields.get(b"total", b""))
    return PSIData(
        total=total or 0,
        avg10=_parse_share(fields.get(b"avg10")),
        avg60=_parse_share(fields.get(b"avg60")),
        avg300=_parse_share(fields.get(b"avg300")),
    )


def _parse_share(text: bytes | None) -> float:
    if text is None or len(text) > _MOST_DIGITS or not text.replace(b".", b"", 1).isdigit():
        return 0.0
    return float(text)


def _parse_device(text: bytes) -> tuple[int, int] | None:
    major, _, minor = text.partition(b":")
    first, second = _parse(major), _parse(minor)
    return None if first is None or second is None else (first, second)


def read_list(path: str) -> bytes | None:
    """Read a file of many records, which the kernel hands out in pieces; None if it is not there."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _ABSENT or error.errno in {errno.ESRCH, errno.EACCES, errno.EPERM}:
            return None
        raise
    try:
        pieces, size = [], 0
        while size < _LONGEST_LIST and (piece := os.read(descriptor, _PIECE)):
            pieces.append(piece)
            size += len(piece)
        return b"".join(pieces)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _read(path: str) -> bytes | None:
    """Read a file that the kernel hands out in one piece; None if it is not there or gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise
    try:
        return os.read(descriptor, _LONGEST_FILE)
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise
    finally:
        os.close(descriptor)


def _has(directory: str | None, name: str) -> bool:
    return directory is not None and Path(directory, name).exists()


def _number(path: str) -> int | None:
    text = _read(path)
    return None if text is None else _parse(text.strip())


def _limit(path: str) -> int:
    """Return a limit; `NO_LIMIT` for `max`, 0 where the file is missing, as cAdvisor has it."""
    text = _read(path)
    if text is None:
        return 0
    number = _parse(text.strip())
    return NO_LIMIT if number is None else number


def _parse(text: bytes) -> int | None:
    return int(text) if text.isdigit() and len(text) <= _MOST_DIGITS else None


def _flat(text: bytes | None) -> dict[bytes, int]:
    """Parse one `name number` a line."""
    if not text:
        return {}
    words = text.split()
    try:
        return dict(zip(words[::2], map(int, words[1::2]), strict=False))
    except ValueError:
        return {}

"""/proc, read into values: parsers over text, and a reader whose root tests put elsewhere."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from klet.host.errors import MalformedFile
from klet.host.files import read_bytes, read_text

CAP_SYS_ADMIN = 21
CAP_SYS_RESOURCE = 24
KIB = 1 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Memory of the machine in bytes."""

    total: int
    free: int
    available: int
    swap_total: int
    swap_free: int


@dataclass(frozen=True, slots=True)
class Swap:
    """A swap device or file, in bytes."""

    path: str
    kind: str
    size: int
    used: int


@dataclass(frozen=True, slots=True)
class LoadAverage:
    """The load over 1, 5 and 15 minutes, and how many threads run of how many."""

    one: float
    five: float
    fifteen: float
    running: int
    threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStat:
    """One process; the start is counted in clock ticks since the machine started, which identifies a reused pid."""

    pid: int
    name: str
    state: str
    parent: int
    group: int
    session: int
    threads: int
    start_ticks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStatus:
    """The part of a process's status that klet looks at."""

    name: str
    uid: int
    gid: int
    resident: int
    effective_capabilities: int

    def has_capability(self, number: int) -> bool:
        return bool(self.effective_capabilities >> number & 1)


def parse_meminfo(text: str) -> Memory:
    """MemAvailable is missing before Linux 3.14; then free memory is what is known to be available."""
    fields = parse_colons(text)
    total, free = _kib(fields, "MemTotal", "meminfo"), _kib(fields, "MemFree", "meminfo")
    return Memory(
        total=total,
        free=free,
        available=_kib(fields, "MemAvailable", "meminfo") if "MemAvailable" in fields else free,
        swap_total=_kib(fields, "SwapTotal", "meminfo") if "SwapTotal" in fields else 0,
        swap_free=_kib(fields, "SwapFree", "meminfo") if "SwapFree" in fields else 0,
    )


def parse_boot_time(stat: str) -> datetime:
    """When the machine started, from /proc/stat."""
    for line in stat.splitlines():
        name, _, value = line.partition(" ")
        if name == "btime" and value.strip().isdigit():
            return datetime.fromtimestamp(int(value), UTC)
    raise MalformedFile("/proc/stat has no line `btime <seconds>`")


def parse_uptime(text: str) -> timedelta:
    try:
        return timedelta(seconds=float(text.partition(" ")[0]))
    except ValueError:
        raise MalformedFile(f"uptime {text!r} does not begin with a number of seconds") from None


def parse_load_average(text: str) -> LoadAverage:
    try:
        one, five, fifteen, tasks, _ = text.split()
        running, _, threads = tasks.partition("/")
        return LoadAverage(float(one), float(five), float(fifteen), int(running), int(threads))
    except ValueError:
        raise MalformedFile(f"loadavg {text!r} is not `1m 5m 15m running/threads pid`") from None


def parse_swaps(text: str) -> tuple[Swap, ...]:
    lines = text.splitlines()[1:]
    return tuple(_parse_swap(line) for line in lines if line.strip())


def parse_cpu_models(cpuinfo: str) -> tuple[str, ...]:
    """The model name of each processor; empty names where the architecture gives none."""
    blocks = (parse_colons(block) for block in cpuinfo.split("\n\n"))
    return tuple(block.get("model name", "") for block in blocks if "processor" in block)


def parse_process_stat(text: str) -> ProcessStat:
    """The name stands in brackets and may itself hold brackets, spaces and newlines: the last bracket ends it."""
    pid, _, rest = text.partition(" (")
    name, _, tail = rest.rpartition(") ")
    fields = tail.split()
    try:
        return ProcessStat(
            pid=int(pid),
            name=name,
            state=fields[0],
            parent=int(fields[1]),
            group=int(fields[2]),
            session=int(fields[3]),
            threads=int(fields[17]),
            start_ticks=int(fields[19]),
        )
    except (IndexError, ValueError):
        raise MalformedFile(f"process stat {text!r} is not `pid (name) state …` with 22 fields or more") from None


def parse_process_status(text: str) -> ProcessStatus:
    fields = parse_colons(text)
    try:
        return ProcessStatus(
            name=fields["Name"],
            uid=int(fields["Uid"].split()[0]),
            gid=int(fields["Gid"].split()[0]),
            resident=_kib(fields, "VmRSS", "process status") if "VmRSS" in fields else 0,
            effective_capabilities=int(fields["CapEff"], 16),
        )
    except (KeyError, IndexError, ValueError) as error:
        raise MalformedFile(f"process status: field {error} is missing or malformed") from None


def parse_process_cgroups(text: str) -> dict[str, str]:
    """The cgroup path by controller (`name=systemd` for a named hierarchy, empty for version 2)."""
    cgroups: dict[str, str] = {}
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) != 3:
            raise MalformedFile(f"process cgroup line {line!r} is not `id:controllers:path`")
        cgroups.update(dict.fromkeys(parts[1].split(","), parts[2]))
    return cgroups


def parse_command_line(data: bytes) -> tuple[str, ...]:
    text = data.decode("utf-8", errors="replace")
    return tuple(text.removesuffix("\0").split("\0")) if text else ()


def parse_colons(text: str) -> dict[str, str]:
    """One `name: value` a line, as in meminfo, cpuinfo and a process's status."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, colon, value in pairs if colon}


class ProcReader:
    """Reads /proc below `root`. Its files are small and in memory, so it blocks for microseconds only."""

    def __init__(self, *, root: Path = Path("/")) -> None:
        self._proc = root / "proc"

    def memory(self) -> Memory:
        return parse_meminfo(read_text(self._proc / "meminfo"))

    def swaps(self) -> tuple[Swap, ...]:
        """The active swap areas; none where the kernel was built without swap."""
        path = self._proc / "swaps"
        return parse_swaps(read_text(path)) if path.exists() else ()

    def boot_time(self) -> datetime:
        return parse_boot_time(read_text(self._proc / "stat"))

    def boot_id(self) -> str:
        return read_text(self._proc / "sys/kernel/random/boot_id").strip()

    def uptime(self) -> timedelta:
        return parse_uptime(read_text(self._proc / "uptime"))

    def load_average(self) -> LoadAverage:
        return parse_load_average(read_text(self._proc / "loadavg"))

    def kernel_version(self) -> str:
        return read_text(self._proc / "sys/kernel/osrelease").strip()

    def max_pid(self) -> int:
        return int(read_text(self._proc / "sys/kernel/pid_max"))

    def cpu_models(self) -> tuple[str, ...]:
        return parse_cpu_models(read_text(self._proc / "cpuinfo"))

    def process_stat(self, pid: int) -> ProcessStat:
        return parse_process_stat(read_text(self._process(pid) / "stat"))

    def process_status(self, pid: int | None = None) -> ProcessStatus:
        """The status of a process; our own without a pid."""
        return parse_process_status(read_text(self._process(pid) / "status"))

    def process_cgroups(self, pid: int | None = None) -> Mapping[str, str]:
        return parse_process_cgroups(read_text(self._process(pid) / "cgroup"))

    def command_line(self, pid: int) -> tuple[str, ...]:
        """The arguments; empty for a kernel thread and a zombie."""
        return parse_command_line(read_bytes(self._process(pid) / "cmdline"))

    def _process(self, pid: int | None) -> Path:
        return self._proc / ("self" if pid is None else str(pid))


def start_time(process: ProcessStat, *, boot_time: datetime, ticks_per_second: int) -> datetime:
    return boot_time + timedelta(seconds=process.start_ticks / ticks_per_second)


def _parse_swap(line: str) -> Swap:
    # The file name is escaped as in the mount table, so it holds no space.
    fields = line.split()
    try:
        return Swap(fields[0], fields[1], int(fields[2]) * KIB, int(fields[3]) * KIB)
    except (IndexError, ValueError):
        raise MalformedFile(f"swaps line {line!r} is not `name type size used priority`") from None


def _kib(fields: Mapping[str, str], name: str, source: str) -> int:
    number, _, unit = fields.get(name, "").partition(" ")
    if not number.isdigit() or unit not in {"kB", ""}:
        raise MalformedFile(f"{source}: field {name} is {fields.get(name, 'missing')!r}, expected a number of kB")
    return int(number) * KIB

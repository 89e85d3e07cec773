"""Measurements of the machine, which change from one second to the next: never cached, and apart from its facts."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from msgspec import Struct

from klet.host.errors import MalformedFile
from klet.host.files import read_text
from klet.host.procfs import parse_colons, parse_kib, parse_number, quote

_LONGEST_FILE: Final = 1 << 20
_LATEST: Final = datetime(9999, 1, 1, tzinfo=UTC).timestamp()


class MemoryUsage(Struct, frozen=True, kw_only=True):
    """Memory of the machine in bytes."""

    total: int
    free: int
    available: int
    swap_total: int
    swap_free: int


class SwapUsage(Struct, frozen=True):
    """A swap device or file, in bytes."""

    path: str
    kind: str
    size: int
    used: int


class UsageReader:
    """Measures the machine whose /proc is below `root`. Its files are in memory: it blocks for microseconds only."""

    def __init__(self, *, root: Path = Path("/")) -> None:
        self._proc = root / "proc"

    def memory(self) -> MemoryUsage:
        return parse_meminfo(self._read("meminfo"))

    def swaps(self) -> tuple[SwapUsage, ...]:
        """Return the active swap areas; none where the kernel was built without swap."""
        return parse_swaps(self._read("swaps")) if (self._proc / "swaps").exists() else ()

    def boot_time(self) -> datetime:
        """Return when the machine started, by the clock of today: it moves when the clock is set."""
        return parse_boot_time(self._read("stat"))

    def _read(self, name: str) -> str:
        return read_text(self._proc / name, limit=_LONGEST_FILE)


def parse_meminfo(text: str) -> MemoryUsage:
    """Parse the file. Before Linux 3.14 MemAvailable is missing; then free memory is what is known to be available."""
    fields = parse_colons(text)
    total, free = parse_kib(fields, "MemTotal", "meminfo"), parse_kib(fields, "MemFree", "meminfo")
    return MemoryUsage(
        total=total,
        free=free,
        available=parse_kib(fields, "MemAvailable", "meminfo") if "MemAvailable" in fields else free,
        swap_total=parse_kib(fields, "SwapTotal", "meminfo") if "SwapTotal" in fields else 0,
        swap_free=parse_kib(fields, "SwapFree", "meminfo") if "SwapFree" in fields else 0,
    )


def parse_boot_time(stat: str) -> datetime:
    """Return when the machine started, from /proc/stat."""
    for line in stat.splitlines():
        name, _, value = line.partition(" ")
        if name == "btime":
            seconds = parse_number(value, "btime of /proc/stat")
            if seconds > _LATEST:
                raise MalformedFile("btime of /proc/stat is after the year 9999")
            return datetime.fromtimestamp(seconds, UTC)
    raise MalformedFile("/proc/stat has no line `btime <seconds>`")


def parse_swaps(text: str) -> tuple[SwapUsage, ...]:
    lines = text.splitlines()[1:]
    return tuple(_parse_swap(line) for line in lines if line.strip())


def _parse_swap(line: str) -> SwapUsage:
    # The file name is escaped as in the mount table, so it holds no space.
    fields = line.split()
    try:
        return SwapUsage(fields[0], fields[1], int(fields[2]) << 10, int(fields[3]) << 10)
    except (IndexError, ValueError):
        raise MalformedFile(f"swaps line {quote(line)} is not `name type size used priority`") from None

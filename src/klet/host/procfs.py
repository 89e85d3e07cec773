"""Processes in /proc, read into values: parsers over text, and a reader whose root tests put elsewhere.

What /proc says of the machine is in `klet.host.machine`.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from msgspec import Struct

from klet.host.errors import MalformedFile
from klet.host.files import read_bytes, read_text
from klet.model.foreign_text import shorten

CAP_SYS_ADMIN = 21
CAP_SYS_RESOURCE = 24
KIB = 1 << 10
_MOST_DIGITS: Final = 20
_SHOWN: Final = 256


class ProcessStat(Struct, frozen=True, kw_only=True):
    """One process; the start is counted in clock ticks since the machine started, which identifies a reused pid."""

    pid: int
    name: str
    state: str
    parent: int
    group: int
    session: int
    threads: int
    start_ticks: int


class ProcessStatus(Struct, frozen=True, kw_only=True):
    """The part of a process's status that klet looks at."""

    name: str
    uid: int
    gid: int
    resident: int
    effective_capabilities: int

    def has_capability(self, number: int) -> bool:
        return bool(self.effective_capabilities >> number & 1)


def parse_process_stat(text: str) -> ProcessStat:
    """Parse it. The name stands in brackets and may hold brackets itself: the last bracket ends it."""
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
        raise MalformedFile(f"process stat {quote(text)} is not `pid (name) state …` with 22 fields or more") from None


def parse_process_status(text: str) -> ProcessStatus:
    fields = parse_colons(text)
    try:
        return ProcessStatus(
            name=fields["Name"],
            uid=int(fields["Uid"].split()[0]),
            gid=int(fields["Gid"].split()[0]),
            resident=parse_kib(fields, "VmRSS", "process status") if "VmRSS" in fields else 0,
            effective_capabilities=int(fields["CapEff"], 16),
        )
    except (KeyError, IndexError, ValueError) as error:
        raise MalformedFile(f"process status: field {error} is missing or malformed") from None


def parse_process_cgroups(text: str) -> dict[str, str]:
    """Return the cgroup path by controller (`name=systemd` for a named hierarchy, empty for version 2)."""
    cgroups: dict[str, str] = {}
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) != 3:
            raise MalformedFile(f"process cgroup line {quote(line)} is not `id:controllers:path`")
        cgroups.update(dict.fromkeys(parts[1].split(","), parts[2]))
    return cgroups


def parse_command_line(data: bytes) -> tuple[str, ...]:
    text = data.decode("utf-8", errors="replace")
    return tuple(text.removesuffix("\0").split("\0")) if text else ()


def parse_colons(text: str) -> dict[str, str]:
    """Return one `name: value` a line, as in meminfo, cpuinfo and a process's status."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, colon, value in pairs if colon}


class ProcReader:
    """Reads /proc below `root`. Its files are small and in memory, so it blocks for microseconds only."""

    def __init__(self, *, root: Path = Path("/")) -> None:
        self._proc = root / "proc"

    def process_stat(self, pid: int) -> ProcessStat:
        return parse_process_stat(read_text(self._process(pid) / "stat"))

    def process_status(self, pid: int | None = None) -> ProcessStatus:
        """Return the status of a process; our own without a pid."""
        return parse_process_status(read_text(self._process(pid) / "status"))

    def process_cgroups(self, pid: int | None = None) -> Mapping[str, str]:
        return parse_process_cgroups(read_text(self._process(pid) / "cgroup"))

    def command_line(self, pid: int) -> tuple[str, ...]:
        """Return the arguments; empty for a kernel thread and a zombie."""
        return parse_command_line(read_bytes(self._process(pid) / "cmdline"))

    def _process(self, pid: int | None) -> Path:
        return self._proc / ("self" if pid is None else str(pid))


def start_time(process: ProcessStat, *, boot_time: datetime, ticks_per_second: int) -> datetime:
    return boot_time + timedelta(seconds=process.start_ticks / ticks_per_second)


def parse_kib(fields: Mapping[str, str], name: str, source: str) -> int:
    """Return a field in kB, as bytes."""
    number, _, unit = fields.get(name, "").partition(" ")
    if not is_number(number) or unit not in {"kB", ""}:
        found = quote(fields.get(name, "missing"))
        raise MalformedFile(f"{source}: field {name} is {found}, expected a number of kB")
    return int(number) * KIB


def parse_number(text: str, name: str) -> int:
    """Return a file that holds one whole number."""
    if not is_number(text.strip()):
        raise MalformedFile(f"{name} is {quote(text)}, expected a whole number")
    return int(text)


def is_number(text: str) -> bool:
    """Return whether these are digits, and not more than the kernel's largest number has."""
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS


def quote(text: str) -> str:
    """Return a foreign text for an error: never the whole of a long one."""
    return repr(shorten(text, _SHOWN))

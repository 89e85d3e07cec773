"""What the agent's own process uses, from `/proc/self` (the collector of processes in Prometheus' libraries)."""

import os
import resource
from pathlib import Path
from typing import Final

from msgspec import Struct

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_UNLIMITED: Final = float(1 << 64)
"""Go shows no limit as the largest number of 64 bits."""


class ProcessUsage(Struct, frozen=True, kw_only=True):
    """What the process uses, and may use."""

    cpu_seconds: float = 0.0
    resident_bytes: float = 0.0
    virtual_bytes: float = 0.0
    started: float = 0.0
    """In seconds since the epoch."""
    open_files: int = 0
    max_open_files: float = 0.0
    max_virtual_bytes: float = 0.0
    received_bytes: float = 0.0
    """By all processes of the network namespace."""
    sent_bytes: float = 0.0


class ProcessReader:
    """Reads what this process uses."""

    def __init__(self, *, proc: Path = Path("/proc")) -> None:
        self._stat = proc / "self/stat"
        self._files = proc / "self/fd"
        self._netstat = proc / "self/net/netstat"
        self._booted = read_boot_time((proc / "stat").read_text())

    def read(self) -> ProcessUsage:
        # The name of the process is in brackets, and may hold anything.
        fields = self._stat.read_text().rpartition(")")[2].split()
        received, sent = read_octets(self._netstat.read_text())
        return ProcessUsage(
            cpu_seconds=(int(fields[11]) + int(fields[12])) / _TICKS,
            started=self._booted + int(fields[19]) / _TICKS,
            virtual_bytes=int(fields[20]),
            resident_bytes=int(fields[21]) * _PAGE,
            open_files=sum(1 for _ in self._files.iterdir()),
            max_open_files=_limit(resource.RLIMIT_NOFILE),
            max_virtual_bytes=_limit(resource.RLIMIT_AS),
            received_bytes=received,
            sent_bytes=sent,
        )


def read_boot_time(text: str) -> float:
    """Return when the machine booted, from `/proc/stat`."""
    return next((float(line.split()[1]) for line in text.splitlines() if line.startswith("btime ")), 0.0)


def read_octets(text: str) -> tuple[float, float]:
    """Return what was received and sent over IP, from `/proc/net/netstat`: a line of names, then one of numbers."""
    lines = [line.split() for line in text.splitlines() if line.startswith("IpExt:")]
    if len(lines) < 2:
        return 0.0, 0.0
    found = dict(zip(lines[0], lines[1], strict=False))
    return float(found.get("InOctets", 0)), float(found.get("OutOctets", 0))


def _limit(which: int) -> float:
    soft = resource.getrlimit(which)[0]
    return _UNLIMITED if soft == resource.RLIM_INFINITY else float(soft)

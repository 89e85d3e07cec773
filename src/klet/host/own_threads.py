"""The threads of this process and the CPU time of each, as the kernel counts it."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

_TASKS: Final = Path("/proc/self/task")
_NANOSECONDS: Final = 1_000_000_000


class OwnThread(Struct, frozen=True):
    """A thread by the name that the kernel has for it, and its CPU time so far."""

    name: str
    nanoseconds: int


def read_own_threads(tasks: Path = _TASKS) -> Mapping[int, OwnThread]:
    """Return the threads by their numbers. One that ends meanwhile is left out; blocks for less than a millisecond."""
    found = {}
    for task in tasks.iterdir():
        try:
            name = (task / "comm").read_text(errors="replace").strip()
            found[int(task.name)] = OwnThread(name, _read_time(task))
        except (OSError, ValueError, IndexError):
            continue
    return found


def _read_time(task: Path) -> int:
    try:
        return int((task / "schedstat").read_text().split()[0])
    except FileNotFoundError:
        # A kernel without scheduler statistics: in ticks of a hundredth of a second.
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * _NANOSECONDS // os.sysconf("SC_CLK_TCK")

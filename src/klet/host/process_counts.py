"""Processes of a cgroup, with their open files, and the network of a process (cAdvisor's ProcessStats). It blocks."""

import os
from pathlib import Path
from typing import Final

from klet.host.cgroups.samples import read_list
from klet.host.errors import HostError
from klet.host.procfs import parse_process_stat
from klet.model.stats import InterfaceCounters

MOST_PROCESSES: Final = 1000
"""Of each cgroup, whose open files are counted."""
MOST_FILES: Final = 4096
"""Of each process, which are asked whether they are sockets."""
_SKIPPED: Final = ("lo", "veth", "docker", "nerdctl")


class ProcessCounter:
    """Counts processes and what they have open."""

    def __init__(self, *, proc: Path = Path("/proc")) -> None:
        self._proc = str(proc)

    def open_files(self, pids: list[int]) -> tuple[int, int]:
        """Return how many file descriptors processes have, and how many of those are sockets."""
        files = sockets = 0
        for pid in pids[:MOST_PROCESSES]:
            directory = f"{self._proc}/{pid}/fd"
            try:
                names = os.listdir(directory)  # noqa: PTH208 - for every process of every scrape, and Path is slower
            except OSError:
                continue  # it has ended
            files += len(names)
            for name in names[:MOST_FILES]:
                try:
                    if os.readlink(f"{directory}/{name}").startswith("socket"):  # noqa: PTH115 - as above
                        sockets += 1
                except OSError:
                    continue  # it was closed
        return files, sockets

    def oldest(self, pids: list[int]) -> int | None:
        """Return the process that was there first: that of a container is its own, while it lives."""
        if len(pids) < 2:
            return pids[0] if pids else None
        started: dict[int, int] = {}
        for pid in pids[:MOST_PROCESSES]:
            text = read_list(f"{self._proc}/{pid}/stat")
            try:
                if text:
                    started[pid] = parse_process_stat(text.decode("utf-8", "replace")).start_ticks
            except HostError:
                continue
        return min(started, key=lambda pid: (started[pid], pid), default=None)

    def max_open_files(self, pid: int) -> int | None:
        """Return the soft limit of open files; None if there is none, or the process has ended."""
        return parse_max_open_files(read_list(f"{self._proc}/{pid}/limits") or b"")

    def interfaces(self, pid: int) -> tuple[InterfaceCounters, ...] | None:
        """Return the network interfaces that a process sees; None if it has ended."""
        text = read_list(f"{self._proc}/{pid}/net/dev")
        return parse_net_dev(text) if text is not None else None


def parse_pids(text: bytes) -> list[int]:
    # 0 stands for a process outside our pid namespace.
    return [int(word) for word in text.split() if word.isdigit() and word != b"0"]


def parse_max_open_files(text: bytes) -> int | None:
    for line in text.splitlines():
        if line.startswith(b"Max open files"):
            words = line.split()
            return int(words[3]) if len(words) > 3 and words[3].isdigit() else None
    return None


def parse_net_dev(text: bytes) -> tuple[InterfaceCounters, ...]:
    """Parse the table, without the interfaces that cAdvisor skips: the loopback and the nodes' ends of pods."""
    found = []
    for line in text.splitlines()[2:]:
        name, _, rest = line.decode("utf-8", "replace").partition(":")
        name = name.strip()
        numbers = rest.split()
        if name.lower().startswith(_SKIPPED) or len(numbers) < 12 or not all(word.isdigit() for word in numbers[:12]):
            continue
        values = [int(word) for word in numbers]
        # Received: bytes, packets, errors, dropped, four others; transmitted: the same again.
        found.append(InterfaceCounters(name, *values[:4], *values[8:12]))
    return tuple(found)

"""How many processes the kernel has killed for memory in the cgroup of each container: the cgroups' own counters.

Looked up by the container's id, which runtimes put into the name of its cgroup whatever the driver is. Nothing is read
unless somebody asks: that is, after a kill.
"""

import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

from klet.aio.threads import Threads
from klet.host.cgroups.layout import CGROUP_ROOT
from klet.host.errors import FileError, MalformedFile
from klet.host.files import read_text

MOST_CGROUPS: Final = 50_000
DEEPEST: Final = 8
CONTAINER_ID: Final = re.compile(r"[0-9a-f]{64}")


class CgroupOomCounts:
    """Reads the counters below one cgroup directory of the memory controller."""

    def __init__(self, *, root: Path, file: str, threads: Threads) -> None:
        self._root = root
        self._file = file
        self._threads = threads

    async def read(self, containers: Collection[str]) -> Mapping[str, int]:
        """Return the counters of those containers that have a cgroup."""
        return await self._threads.run(self._read, frozenset(containers))

    def _read(self, containers: frozenset[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        for directory, name in _walk(self._root):
            owners = containers.intersection(CONTAINER_ID.findall(name))
            for owner in owners - found.keys():
                try:
                    found[owner] = parse_kills(read_text(Path(directory) / self._file))
                except (FileError, MalformedFile):
                    continue  # it ended at this moment, or the kernel does not count
        return found


def parse_kills(text: str) -> int:
    """Read the number of kills in `memory.events` or in `memory.oom_control`."""
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill" and value.isdigit():
            return int(value)
    raise MalformedFile("there is no line oom_kill")


def counter_place(version: int, *, root: Path = CGROUP_ROOT) -> tuple[Path, str]:
    """Return the directory of the memory controller, and the file of each cgroup with the counter."""
    return (root, "memory.events") if version == 2 else (root / "memory", "memory.oom_control")


def _walk(root: Path) -> Iterator[tuple[str, str]]:
    """Yield the directories below one, breadth first; a container's own cgroup comes before those in it."""
    level, seen = [str(root)], 0
    for _ in range(DEEPEST):
        below: list[str] = []
        for directory in level:
            for name, path in _children(directory):
                seen += 1
                if seen > MOST_CGROUPS:
                    return
                yield path, name
                # What a container makes of its cgroup is not looked at.
                if CONTAINER_ID.search(name) is None:
                    below.append(path)
        level = below


def _children(directory: str) -> list[tuple[str, str]]:
    try:
        with os.scandir(directory) as entries:
            return [(entry.name, entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []  # it was removed meanwhile

"""The mounted filesystems of the machine with the counters of their disks, as cAdvisor shows them for `/`. It blocks.

Those of containers are left out: the overlays of their root filesystems and what is mounted below the agent's own
directory. So are network filesystems, since one whose server is gone would block the reader.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from klet.host.cgroups.samples import read_list
from klet.host.mountinfo import MountEntry, parse_mountinfo
from klet.model.stats import DiskCounters, MachineFilesystem

_KINDS: Final = frozenset({"btrfs", "xfs", "zfs", "tmpfs", "overlay"})


class FilesystemReader:
    """Reads the mount table below `root`, and asks each filesystem for its size."""

    def __init__(self, *, root: Path = Path("/"), own: Path) -> None:
        self._root = root
        self._own = str(own)

    def read(self) -> tuple[MachineFilesystem, ...]:
        text = read_list(f"{self._root}/proc/1/mountinfo") or read_list(f"{self._root}/proc/self/mountinfo") or b""
        mounts = choose_mounts(parse_mountinfo(text.decode("utf-8", "replace")), own=self._own)
        disks = parse_diskstats(read_list(f"{self._root}/proc/diskstats") or b"")
        return tuple(found for device, mount in mounts.items() if (found := _measure(device, mount, disks)) is not None)

    def disks(self) -> dict[tuple[int, int], str]:
        """Return the block devices by number."""
        found: dict[tuple[int, int], str] = {}
        for line in (read_list(f"{self._root}/proc/diskstats") or b"").splitlines():
            words = line.split(None, 3)
            if len(words) >= 3 and words[0].isdigit() and words[1].isdigit():
                found[int(words[0]), int(words[1])] = f"/dev/{words[2].decode('utf-8', 'replace')}"
        return found


def choose_mounts(mounts: Iterable[MountEntry], *, own: str) -> dict[str, MountEntry]:
    """Return the first mount of each filesystem by cAdvisor's name of its device; a tmpfs has that of its directory."""
    chosen: dict[str, MountEntry] = {}
    for mount in mounts:
        kind, place = mount.fs_type, mount.mount_point
        if kind not in _KINDS and not kind.startswith("ext"):
            continue
        if (kind == "overlay" and place != "/") or place.startswith(f"{own}/"):
            continue
        if kind == "tmpfs" and place.endswith("/shm") and place != "/dev/shm":  # noqa: S108 - of a sandbox
            continue
        device = place if kind == "tmpfs" else mount.source
        if kind == "overlay":
            device = f"{mount.source}_{mount.device.replace(':', '-')}"
        chosen.setdefault(device, mount)
    return chosen


def parse_diskstats(text: bytes) -> dict[str, DiskCounters]:
    """Parse /proc/diskstats, by `major:minor`."""
    found: dict[str, DiskCounters] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) < 14 or not all(word.isdigit() for word in (*words[:2], *words[3:14])):
            continue
        found[f"{int(words[0])}:{int(words[1])}"] = DiskCounters(*(int(word) for word in words[3:14]))
    return found


def _measure(device: str, mount: MountEntry, disks: Mapping[str, DiskCounters]) -> MachineFilesystem | None:
    try:
        found = os.statvfs(mount.mount_point)
    except OSError:
        return None  # unmounted meanwhile, or not for us to see
    return MachineFilesystem(
        device=device,
        mount_point=mount.mount_point,
        capacity=found.f_blocks * found.f_frsize,
        free=found.f_bfree * found.f_frsize,
        available=found.f_bavail * found.f_frsize,
        inodes=found.f_files,
        inodes_free=found.f_ffree,
        disk=disks.get(mount.device),
    )

"""What pods have left of volumes on disk. It blocks."""

from pathlib import Path
from typing import Final, NamedTuple

from klet.host.errors import HostError
from klet.host.filesystems import is_mount_root
from klet.volumes.errors import doing
from klet.volumes.names import escape, unescape

_CSI: Final = escape("kubernetes.io/csi")


class FoundVolume(NamedTuple):
    """A directory of a volume."""

    plugin: str
    name: str
    path: Path
    is_block: bool = False
    """It is the link to a device."""


def find_volumes(volumes: Path) -> list[FoundVolume]:
    """Return the volumes below a pod's `volumes`; none if that is not there."""
    found = []
    with doing("look for volumes in", volumes):
        for plugin in _entries(volumes):
            for entry in _entries(plugin):
                path = entry / "mount" if plugin.name == _CSI else entry
                if path == entry or path.exists():
                    found.append(FoundVolume(unescape(plugin.name), entry.name, path))
    return found


def find_left(pod: Path) -> list[FoundVolume]:
    """Return everything in a pod's directory that may be a volume, block volumes included.

    The entries themselves are not looked at: one may be the mount of a server that does not answer.
    """
    found = []
    with doing("look for volumes in", pod):
        for directory, is_block in ((pod / "volumes", False), (pod / "volumeDevices", True)):
            for plugin in _entries(directory):
                found += [FoundVolume(unescape(plugin.name), each.name, each, is_block) for each in _entries(plugin)]
    return found


def find_pods(pods: Path) -> list[str]:
    """Return the pods that have a directory, by their UIDs."""
    with doing("look for pods in", pods):
        return [entry.name for entry in _entries(pods) if entry.is_dir() and not entry.is_symlink()]


def has_mounts(volumes: Path) -> bool:
    """Return whether something is mounted below a pod's `volumes`, or that cannot be known."""
    try:
        return any(is_mount_root(volume.path) for volume in find_volumes(volumes))
    except HostError:
        return True


def _entries(directory: Path) -> list[Path]:
    """Return the directories in order. A plain file among them is no volume."""
    if not directory.is_dir() or directory.is_symlink():
        return []
    return sorted(directory.iterdir())

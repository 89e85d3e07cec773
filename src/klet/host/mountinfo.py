"""The mount table as the kernel shows it in /proc/<pid>/mountinfo. Pure."""

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from msgspec import Struct

from klet.host.errors import MalformedFile

_OCTAL = re.compile(r"\\([0-7]{3})")


class MountEntry(Struct, frozen=True):
    """One mount."""

    mount_id: int
    parent_id: int
    device: str
    """major:minor"""
    root: str
    """The directory of the filesystem that is mounted here."""
    mount_point: str
    options: tuple[str, ...]
    propagation: tuple[str, ...]
    """`shared:N`, `master:N`, `propagate_from:N`, `unbindable`; none of them means private."""
    fs_type: str
    source: str
    super_options: tuple[str, ...]

    @property
    def is_shared(self) -> bool:
        return any(tag.startswith("shared:") for tag in self.propagation)


def parse_mountinfo(text: str) -> tuple[MountEntry, ...]:
    return tuple(_parse_line(line) for line in text.splitlines() if line)


def find_mount(mounts: Iterable[MountEntry], path: str) -> MountEntry | None:
    """Return the mount that is visible at exactly this path: the last one listed."""
    return next((mount for mount in reversed(tuple(mounts)) if mount.mount_point == path), None)


def containing_mount(mounts: Iterable[MountEntry], path: str) -> MountEntry | None:
    """Return the last listed mount whose mount point is the path or holds it."""
    return next((mount for mount in reversed(tuple(mounts)) if is_below(path, mount.mount_point)), None)


def find_references(mounts: Iterable[MountEntry], path: str) -> tuple[str, ...]:
    """Return where else the directory at a path is mounted (upstream: mount refs)."""
    table = tuple(mounts)
    held = containing_mount(table, path)
    if held is None:
        return ()
    root = str(PurePosixPath(held.root) / PurePosixPath(path).relative_to(held.mount_point))
    same = (mount for mount in table if (mount.device, mount.root) == (held.device, root))
    return tuple(mount.mount_point for mount in same if mount.mount_id != held.mount_id)


def is_bound_on_itself(mounts: Iterable[MountEntry], path: str) -> bool:
    """Return whether a directory is a mount of its own that shows what would be there without it."""
    table = {mount.mount_id: mount for mount in mounts}
    top = find_mount(table.values(), path)
    below = table.get(top.parent_id) if top is not None else None
    if top is None or below is None or not is_below(path, below.mount_point):
        return False
    place = str(PurePosixPath(below.root) / PurePosixPath(path).relative_to(below.mount_point))
    return (top.device, top.root) == (below.device, place)


def mounts_under(mounts: Iterable[MountEntry], path: str) -> tuple[MountEntry, ...]:
    """Return the mounts at a path and below it, deepest and newest first: the order in which they can be unmounted."""
    inside = [mount for mount in mounts if is_below(mount.mount_point, path)]
    newest_first = reversed(inside)
    return tuple(sorted(newest_first, key=lambda mount: mount.mount_point.count("/"), reverse=True))


def is_below(path: str, directory: str) -> bool:
    """Return whether a path is a directory or lies in it."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def _parse_line(line: str) -> MountEntry:
    fields = line.split(" ")
    try:
        dash = fields.index("-", 6)
        fs_type, source, super_options = (*fields[dash + 1 :], "")[:3]
        return MountEntry(
            mount_id=int(fields[0]),
            parent_id=int(fields[1]),
            device=fields[2],
            root=_unescape(fields[3]),
            mount_point=_unescape(fields[4]),
            options=tuple(fields[5].split(",")),
            propagation=tuple(fields[6:dash]),
            fs_type=_unescape(fs_type),
            source=_unescape(source),
            super_options=tuple(_unescape(super_options).split(",")),
        )
    except ValueError as error:
        raise MalformedFile(f"mountinfo line {line!r}: {error}") from error


def _unescape(text: str) -> str:
    r"""Decode space, tab, newline and backslash, which are written as `\040`, `\011`, `\012`, `\134`."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)

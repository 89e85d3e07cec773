"""Volumes where they lie below the directory of all pods, reached without following any link. It blocks.

Containers with a hostPath may write there. So the way to a volume is taken name by name, by descriptor.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from klet.host.beneath import (
    list_directory,
    make_directories,
    open_directory,
    open_regular_in,
    remove_below,
    remove_empty_below,
    split_end,
    unlink_below,
)
from klet.host.errors import FileMissing

DEPTH: Final = 4
"""`<uid>/volumes/<plugin>/<name>`, and `<uid>/plugins/<plugin>/<name>` for its marker's directory."""


@contextmanager
def open_volume(path: Path, *, action: str = "open", depth: int = DEPTH, one_mount: bool = False) -> Iterator[int]:
    """Yield a descriptor of a volume's directory. An error names what it was needed for. `one_mount`: see beneath."""
    root, names = split_end(str(path), depth)
    with open_directory(root, *names, action=action, one_mount=one_mount) as found:
        readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=found)
        try:
            yield readable
        finally:
            os.close(readable)


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """Yield the volume's path by way of a descriptor of the directory that it lies in."""
    root, names = split_end(str(path), DEPTH)
    with open_directory(root, *names[:-1]) as parent:
        yield Path(f"/proc/self/fd/{parent}/{names[-1]}")


def resolved_volume(path: Path) -> str | None:
    """Return a volume's path as the mount table has it, without looking at the volume itself; None if it is not there.

    Links in the administrator's part of the path are resolved, below that there are none.
    """
    try:
        with beside(path) as found:
            return str(found.parent.readlink() / path.name)
    except FileMissing:
        return None


def has_volume(path: Path) -> bool:
    """Return whether a volume's directory is there, without looking at the volume itself."""
    root, names = split_end(str(path), DEPTH)
    return any(entry.name == names[-1] for entry in list_directory(root, *names[:-1]))


def make_volume(path: Path, *, mode: int) -> None:
    """Make a volume's directory with at least this mode; directories above are made as upstream makes them."""
    root, names = split_end(str(path), DEPTH)
    make_directories(root, *names[:-1], mode=0o755)
    make_directories(root, *names, mode=mode)
    with open_volume(path) as found:
        if os.fstat(found).st_mode & mode != mode:
            os.fchmod(found, mode)


def remove_volume(path: Path) -> None:
    """Remove a volume's directory, or that of its marker, with all in it."""
    root, names = split_end(str(path), DEPTH)
    remove_below(root, *names)


def remove_empty_volume(path: Path) -> None:
    """Remove a volume's directory, which must be empty; one that is gone is fine."""
    root, names = split_end(str(path), DEPTH)
    remove_empty_below(root, *names)


def make_marker(marker: Path) -> None:
    root, names = split_end(str(marker), DEPTH + 1)
    make_directories(root, *names[:-1], mode=0o750)
    with open_directory(root, *names[:-1]) as directory:
        os.close(open_regular_in(directory, names[-1], marker, flags=os.O_WRONLY | os.O_CREAT))


def remove_marker(marker: Path) -> None:
    root, names = split_end(str(marker), DEPTH + 1)
    unlink_below(root, *names)

"""Walks over the directories of one cgroup hierarchy, the same in both versions. They block."""

import errno
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from klet.host.errors import CgroupBusy, CgroupError, FileError, FileMissing
from klet.host.files import read_text
from klet.host.filesystems import is_mount_root
from klet.host.mount_ids import is_in_directory

# A cgroup that goes away while it is read answers with one of these.
_GONE = frozenset({errno.ENOENT, errno.ENODEV})


def inside(mount: Path, path: str) -> Path:
    return mount / path.lstrip("/")


def make_directories(mount: Path, path: str) -> tuple[Path, ...]:
    """Make a directory and its parents below a mount; returns those that are new, outermost first."""
    whole = inside(mount, path)
    try:
        os.mkdir(whole, 0o755)  # noqa: PTH102 - made for every pod and controller, and Path's is slower
    except FileExistsError:
        return ()
    except OSError:
        pass  # most often only the last one is missing, and here it is not so
    else:
        return (whole,)
    created: list[Path] = []
    current = mount
    try:
        for part in Path(path.lstrip("/")).parts:
            current /= part
            if make_directory(current):
                created.append(current)
    except CgroupError:
        remove_directories(created)
        raise
    return tuple(created)


def make_directory(directory: Path) -> bool:
    """Make one directory; False if it was there."""
    try:
        directory.mkdir(mode=0o755)
    except FileExistsError:
        return False
    except OSError as error:
        raise CgroupError(f"cannot make cgroup {directory}: {error.strerror}") from error
    return True


def remove_directories(created: Sequence[Path]) -> None:
    """Take back new directories after a failure, as far as they are still empty."""
    for directory in reversed(created):
        try:
            directory.rmdir()
        except OSError:
            return


def child_names(directory: Path) -> frozenset[str]:
    try:
        with os.scandir(directory) as entries:
            return frozenset(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError as error:
        if error.errno in _GONE:
            return frozenset()
        raise CgroupError(f"cannot list cgroup {directory}: {error.strerror}") from error


def collect_pids(directory: Path) -> frozenset[int]:
    """Return the processes of a cgroup and of all below it."""
    pids: set[int] = set()
    for current in _walk(directory):
        pids.update(own_pids(current))
    return frozenset(pids)


def own_pids(directory: Path) -> frozenset[int]:
    """Return the processes of a cgroup itself."""
    # A threaded cgroup answers EOPNOTSUPP: its processes are listed by its domain.
    text = read_if_there(directory / "cgroup.procs")
    # 0 stands for a process outside our pid namespace, which cannot be signalled from here.
    return frozenset(() if text is None else (int(line) for line in text.split())) - {0}


def remove_tree(directory: Path) -> None:
    """Remove a cgroup and its children, one attempt; one that is gone is fine, one with processes is CgroupBusy."""
    if _rmdir(directory):
        return
    if _is_mounted(directory):
        raise CgroupBusy(f"cannot remove cgroup {directory}: it is a mount point")
    for current in reversed(_walk(directory)):
        if not _rmdir_beside(directory, current):
            raise CgroupBusy(f"cannot remove cgroup {current}: it still holds processes or children")


def read_numbers(paths: Iterable[Path]) -> tuple[int | None, ...]:
    """Return one number per file; None for a file that is not there."""
    return tuple(int(text) if (text := read_if_there(path)) is not None else None for path in paths)


def read_if_there(path: Path) -> str | None:
    try:
        return read_text(path)
    except FileMissing:
        return None
    except FileError as error:
        if error.errno in {errno.ENODEV, errno.EOPNOTSUPP}:
            return None
        raise


def _walk(directory: Path) -> list[Path]:
    """Return a cgroup and all below it, parents first. Without recursion: its processes choose the depth.

    What somebody has mounted below is not entered: it may show the cgroups of others.
    """
    found = [directory]
    for current in found:
        children = (current / name for name in child_names(current))
        found.extend(child for child in children if not _is_mounted(child))
    return found


def _is_mounted(directory: Path) -> bool:
    try:
        return is_mount_root(directory)
    except FileMissing:
        return False


def _rmdir_beside(top: Path, directory: Path) -> bool:
    """Remove a cgroup on the mount that holds the top one: something may have been mounted in between by now."""
    try:
        above = os.open(directory.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _GONE:
            return True
        raise CgroupError(f"cannot remove cgroup {directory}: {error.strerror}") from error
    try:
        if not is_in_directory(above, top.parent):
            raise CgroupBusy(f"cannot remove cgroup {directory}: something is mounted above it")
        return _rmdir(directory, above=above)
    finally:
        os.close(above)


def _rmdir(directory: Path, *, above: int | None = None) -> bool:
    """Remove an empty cgroup, by its name in an open directory if there is one; False if it is in use."""
    try:
        os.rmdir(directory if above is None else directory.name, dir_fd=above)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno in {errno.EBUSY, errno.ENOTEMPTY}:
            return False
        raise CgroupError(f"cannot remove cgroup {directory}: {error.strerror}") from error
    return True

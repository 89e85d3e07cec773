"""Files and directories below a root, reached name by name and without following any link.

Others may write below the root: a log collector with a hostPath, a pod in its volume. Every step is taken by
descriptor, so swapping a directory for a link meanwhile has no effect. A name is one plain name, never a path. The
root itself is the administrator's choice; its last name must not be a link either. All functions block.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from klet.host.errors import FileError, FileMissing, file_error
from klet.host.files import LONGEST_NAME, is_plain_name, mount_in_tree, removal_error, remove_entry
from klet.host.mount_ids import mount_id

LONGEST_PATH: Final = 4096
# O_PATH opens a directory without the right to read it, and O_NOFOLLOW makes a link fail instead of leading away.
_STEP: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a named pipe must not wait for its other end. O_NOCTTY: a terminal must not become ours.
_FILE: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@contextmanager
def open_directory(root: Path, *names: str, action: str = "open", one_mount: bool = False) -> Iterator[int]:
    """Yield a descriptor (O_PATH) of a directory below the root. An error names the action that needed it.

    With `one_mount` nothing may be mounted between the root and the directory, as for a removal: MountInTree.
    """
    shown = _shown(root, names)
    with ExitStack() as opened:
        try:
            here = _entered(opened, str(root), None)
            mount = mount_id(here) if one_mount else None
            for depth, name in enumerate(names, start=1):
                here = _entered(opened, name, here)
                if mount is not None and mount_id(here) != mount:
                    raise mount_in_tree(action, root.joinpath(*names[:depth]))
        except OSError as error:
            raise _error(action, shown, error) from error
        yield here


def make_directories(root: Path, *names: str, mode: int) -> None:
    """Make the directories that are missing, with exactly that mode. What was there keeps its own mode."""
    shown = _shown(root, names)
    try:
        root.mkdir(parents=True, exist_ok=True)
        with ExitStack() as opened:
            here = _entered(opened, str(root), None)
            for name in names:
                here = _made(opened, name, here, mode)
    except OSError as error:
        raise _error("make", shown, error) from error


def split_end(path: str, count: int) -> tuple[Path, tuple[str, ...]]:
    """Return the directory above the last names of an absolute path, with its links resolved, and these names.

    For paths of which only the beginning is the administrator's: `/var/log/pods` may be a link, nothing below it.
    """
    # `..` is refused: behind a link it leads elsewhere than the text says.
    parts = Path(path).parts
    if not path.startswith("/") or "\0" in path or ".." in parts or len(parts) <= count:
        raise FileError(f"cannot use {path[:LONGEST_PATH]!r}: it is no plain absolute path", path=Path(path))
    return Path(os.path.realpath(Path(*parts[:-count]))), parts[-count:]


class Entry(NamedTuple):
    """A name in a directory."""

    name: str
    is_directory: bool


def list_directory(root: Path, *names: str, one_mount: bool = False) -> list[Entry]:
    """Return the entries of a directory, sorted by name; none if it does not exist. `one_mount`: see open_directory."""
    shown = _shown(root, names)
    try:
        with (
            open_directory(root, *names, action="list", one_mount=one_mount) as found,
            _reading(found) as fd,
            os.scandir(fd) as entries,
        ):
            return sorted(Entry(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
    except FileMissing:
        return []
    except OSError as error:
        raise _error("list", shown, error) from error


def read_end(root: Path, *names: str, limit: int) -> bytes:
    """Read the last bytes of a regular file. Anything else is refused: a named pipe would never answer."""
    shown = _shown(root, names)
    with open_directory(root, *names[:-1], action="read") as directory:
        found = open_regular_in(directory, names[-1], shown)
    try:
        return os.pread(found, limit, max(0, os.fstat(found).st_size - limit))
    except OSError as error:
        raise _error("read", shown, error) from error
    finally:
        os.close(found)


def open_regular_in(directory: int, name: str, shown: Path, *, flags: int = os.O_RDONLY) -> int:
    """Return a descriptor of a regular file in an open directory; the caller closes it. `flags` may write or make it.

    Never waits for the other end of a pipe, and never opens a device: that alone can have effects, as with a watchdog.
    """
    _check(name, shown)
    if flags & os.O_EXCL:
        return _open_new(directory, name, shown, flags)
    try:
        # A descriptor of the entry itself, whatever it is. The checks below and the open use it, not the name,
        # which may be swapped meanwhile.
        entry = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    except FileNotFoundError as error:
        if not flags & os.O_CREAT:
            raise _error("open", shown, error) from error
        return _open_new(directory, name, shown, flags)
    except OSError as error:
        raise _error("open", shown, error) from error
    try:
        mode = os.fstat(entry).st_mode
        if stat.S_ISLNK(mode):
            raise _error("open", shown, OSError(errno.ELOOP, os.strerror(errno.ELOOP)))
        if not stat.S_ISREG(mode):
            raise FileError(f"cannot open {shown}: it is not a regular file", path=shown)
        # Without O_NOFOLLOW: the path in /proc is itself a link, to exactly this entry.
        return os.open(f"/proc/self/fd/{entry}", (flags & ~os.O_CREAT) | (_FILE & ~os.O_NOFOLLOW))
    except OSError as error:
        raise _error("open", shown, error) from error
    finally:
        os.close(entry)


def _open_new(directory: int, name: str, shown: Path, flags: int) -> int:
    """Make a file that did not exist a moment ago; an entry that appeared meanwhile is an error."""
    try:
        return os.open(name, flags | os.O_EXCL | _FILE, 0o600, dir_fd=directory)
    except OSError as error:
        raise _error("open", shown, error) from error


def make_file(root: Path, *names: str, mode: int) -> None:
    """Make an empty file with exactly that mode; one that is there is an error."""
    with open_directory(root, *names[:-1]) as directory:
        os.close(_make_in(directory, names[-1], _shown(root, names), mode))


def write_in_place(root: Path, *names: str, data: bytes, mode: int) -> None:
    """Write a file without replacing it: containers that mount it see the new content. The mode is for a new file.

    The old content is lost, so that of a file which somebody has mounted there is left alone: MountInTree.
    """
    shown = _shown(root, names)
    with open_directory(root, *names[:-1], action="write", one_mount=True) as directory:
        try:
            found = open_regular_in(directory, names[-1], shown, flags=os.O_WRONLY)
        except FileMissing:
            found = _make_in(directory, names[-1], shown, mode)
        is_ours = mount_id(found) == mount_id(directory)
    try:
        with open(found, "wb") as file:
            if not is_ours:
                raise mount_in_tree("write", shown)
            os.ftruncate(found, 0)
            file.write(data)
    except OSError as error:
        raise _error("write", shown, error) from error


def remove_below(root: Path, *names: str) -> None:
    """Remove a file or a directory with all in it; one that is gone is fine.

    Never crosses a mount, neither on the way to it nor in it: MountInTree.
    """
    shown = _shown(root, names)
    if not names:
        raise FileError(f"cannot remove {shown}: it is not below a root", path=shown)
    try:
        with open_directory(root, *names[:-1], action="remove from", one_mount=True) as directory:
            remove_entry(directory, names[-1], shown)
    except FileMissing:
        return


def unlink_below(root: Path, *names: str) -> None:
    """Remove one file or link; one that is gone is fine, a directory is an error. Never crosses a mount."""
    shown = _shown(root, names)
    if not names:
        raise FileError(f"cannot remove {shown}: it is not below a root", path=shown)
    try:
        with open_directory(root, *names[:-1], action="remove from", one_mount=True) as directory:
            os.unlink(names[-1], dir_fd=directory)
    except (FileMissing, FileNotFoundError):
        return
    except OSError as error:
        raise removal_error(shown, error) from error


def remove_empty_below(root: Path, *names: str) -> None:
    """Remove a directory, which must be empty; one that is gone is fine. Never crosses a mount: MountInTree."""
    shown = _shown(root, names)
    if not names:
        raise FileError(f"cannot remove {shown}: it is not below a root", path=shown)
    try:
        with open_directory(root, *names[:-1], action="remove from", one_mount=True) as directory:
            os.rmdir(names[-1], dir_fd=directory)
    except (FileMissing, FileNotFoundError):
        return
    except OSError as error:
        raise removal_error(shown, error) from error


def _shown(root: Path, names: tuple[str, ...]) -> Path:
    for name in names:
        _check(name, root)
    return root.joinpath(*names)


def _check(name: str, where: Path) -> None:
    if not is_plain_name(name):
        raise FileError(f"{name[:LONGEST_NAME]!r} is no plain name of a file (in {where})", path=where)


def _entered(opened: ExitStack, name: str, here: int | None) -> int:
    found = os.open(name, _STEP, dir_fd=here)
    opened.callback(os.close, found)
    return found


def _made(opened: ExitStack, name: str, here: int, mode: int) -> int:
    # Looked for first: most are there, and mkdir(2) locks the directory above even if it makes nothing.
    with suppress(FileNotFoundError):
        return _entered(opened, name, here)
    try:
        os.mkdir(name, 0o700, dir_fd=here)
    except FileExistsError:
        return _entered(opened, name, here)  # not ours: its mode stays
    made = _entered(opened, name, here)
    # By descriptor, after mkdir: the umask does not apply, and a link put there meanwhile is not followed.
    # Through /proc, because fchmod(2) refuses O_PATH descriptors.
    Path(f"/proc/self/fd/{made}").chmod(mode)
    return made


def _make_in(directory: int, name: str, shown: Path, mode: int) -> int:
    made = open_regular_in(directory, name, shown, flags=os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        os.fchmod(made, mode)
    except OSError as error:
        os.close(made)
        raise _error("make", shown, error) from error
    return made


@contextmanager
def _reading(directory: int) -> Iterator[int]:
    """Open the same directory for listing, which an O_PATH descriptor does not allow."""
    readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    try:
        yield readable
    finally:
        os.close(readable)


def _error(action: str, shown: Path, error: OSError) -> FileError:
    if error.errno == errno.ELOOP:
        return FileError(f"cannot {action} {shown}: links are not followed here", path=shown, errno=error.errno)
    return file_error(action, shown, error)

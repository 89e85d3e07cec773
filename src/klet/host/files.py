"""Files as klet trusts them: bounded reads, atomic writes, and removal that stays inside one mount.

Everything here blocks; call the walks through `klet.aio.threads`.
"""

import contextlib
import errno
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from klet.host.errors import FileError, MountInTree, file_error
from klet.host.mount_ids import look_at, mount_id

READ_LIMIT = 4 << 20
LONGEST_NAME = 255
_PIECE = 64 << 10
_RANDOM = 6
_TEMPORARY = re.compile(rf"\..+\.[0-9a-f]{{{2 * _RANDOM}}}", re.DOTALL)


def read_bytes(path: Path, *, limit: int = READ_LIMIT) -> bytes:
    """Read a regular or kernel file, refusing one that is longer than `limit`."""
    try:
        with open(path, "rb", buffering=0) as file:
            data = bytearray()
            # In pieces: for /proc/sys the kernel allocates as much as is asked for, and refuses too much.
            while len(data) <= limit and (piece := file.read(min(_PIECE, limit + 1 - len(data)))):
                data += piece
    except OSError as error:
        raise file_error("read", path, error) from error
    if len(data) > limit:
        raise FileError(f"cannot read {path}: it is longer than {limit} bytes", path=path)
    return bytes(data)


def read_text(path: Path, *, limit: int = READ_LIMIT) -> str:
    """Read UTF-8 text; bytes that are not UTF-8 are replaced, so that a strange process name never stops a reader."""
    return read_bytes(path, limit=limit).decode("utf-8", errors="replace")


def list_names(directory: Path) -> tuple[str, ...]:
    """Return the names in a directory of the kernel, in no order; none where there is no such directory."""
    try:
        return tuple(entry.name for entry in directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise file_error("list", directory, error) from error


def write_text(path: Path, text: str) -> None:
    """Write a kernel file in one system call, as cgroupfs and procfs need it."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        raise file_error(f"write {text!r} to", path, error) from error


def write_atomic(path: Path, data: bytes, *, mode: int = 0o600, sync: bool = True) -> None:
    """Replace a file so that a reader, or a crash, sees the old content or the new, never a part.

    When it returns, the new content survives the loss of power. Without `sync` all this is true of a crash of the
    process only; a loss of power may leave the old content, the new, a part of it, or an empty file.
    The temporary file begins with a dot, which upstream's checkpoint store skips when it lists.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(_RANDOM)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fchmod(file.fileno(), mode)
                if sync:
                    os.fsync(file.fileno())
            temporary.replace(path)
            if sync:
                sync_directory(path.parent)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
            raise
    except OSError as error:
        raise file_error("write", path, error) from error


def is_unfinished(name: str) -> bool:
    """Return whether `write_atomic` may have left a file of this name: its writer was killed."""
    return _TEMPORARY.fullmatch(name) is not None


def sync_directory(path: Path) -> None:
    """Return when the names in a directory are on the disk: a file that was synced may have lost its name else."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directories(path: Path, *, mode: int) -> None:
    """Make a directory and those above it that are missing, so that they survive the loss of power."""
    missing = [each for each in (path, *path.parents) if not each.is_dir()]
    path.mkdir(mode=mode, parents=True, exist_ok=True)
    for each in reversed(missing):
        sync_directory(each.parent)


def remove_file(path: Path) -> None:
    """Remove one file or symlink; one that is gone already is fine."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise removal_error(path, error) from error


def remove_content(directory: Path) -> None:
    """Remove everything in a directory, which stays; one that is gone is fine. A mount there stays, as in a tree.

    A directory that is a mount itself is somebody's, and is left alone: MountInTree.
    """
    try:
        above = os.open(directory.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            found = os.open(directory.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
            try:
                if mount_id(found) != mount_id(above):
                    raise mount_in_tree("remove the content of", directory)
                _remove_entries(found, directory)
            finally:
                os.close(found)
        finally:
            os.close(above)
    except FileNotFoundError:
        return
    except OSError as error:
        raise file_error("remove the content of", directory, error) from error


@contextlib.contextmanager
def scratch_directory(parent: Path, *, prefix: str) -> Iterator[Path]:
    """Yield a new directory that is removed afterwards. What is mounted there by then stays: MountInTree."""
    try:
        made = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    except OSError as error:
        raise file_error("make a directory in", parent, error) from error
    try:
        yield made
    finally:
        remove_tree(made)


def remove_tree(path: Path) -> None:
    """Remove a directory and all in it, a file or a symlink; one that is gone already is fine.

    Never follows a symlink and never crosses a mount: the first mount met raises MountInTree and is left alone with
    everything in it. Directories are entered by descriptor, so swapping one for a symlink meanwhile has no effect.

    The path is the caller's own: a name from outside goes through `klet.host.beneath.remove_below`, because a `.` in a
    Path is gone before it can be refused.
    """
    if ".." in path.parts:
        raise FileError(f"cannot remove {path}: a path with '..' is not removed", path=path)
    try:
        parent = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError as error:
        raise file_error("remove", path, error) from error
    try:
        remove_entry(parent, path.name, path)
    finally:
        os.close(parent)


def remove_entry(directory: int, name: str, shown: Path) -> None:
    """Remove what has this name in an open directory, as `remove_tree` does. Only a plain name is taken."""
    if not is_plain_name(name):
        raise FileError(f"cannot remove {shown}: {name[:LONGEST_NAME]!r} is no plain name", path=shown)
    try:
        _TreeRemoval(directory).remove(name, shown)
    except FileNotFoundError:
        return
    except OSError as error:
        raise removal_error(shown, error) from error


def _remove_entries(directory: int, shown: Path) -> None:
    for name in os.listdir(directory):
        remove_entry(directory, name, shown / name)


def removal_error(shown: Path, error: OSError) -> FileError:
    """Translate the OSError of an unlink(2) or rmdir(2): the kernel removes no file that something is mounted on."""
    return mount_in_tree("remove", shown) if error.errno == errno.EBUSY else file_error("remove", shown, error)


def mount_in_tree(action: str, shown: Path) -> MountInTree:
    """Return the error for what is left alone, because somebody's files may be there."""
    return MountInTree(f"cannot {action} {shown}: it is a mount point", path=shown, errno=errno.EXDEV)


def is_plain_name(name: str) -> bool:
    """Return whether a name stays in the directory that it is used in."""
    is_one = name not in {"", ".", ".."} and "/" not in name and "\0" not in name
    return is_one and len(os.fsencode(name)) <= LONGEST_NAME


class _TreeRemoval:
    """One removal. What lies deeper than DEEPEST is folded up: a hostile tree costs neither stack nor descriptors."""

    DEEPEST = 64

    def __init__(self, parent: int) -> None:
        self._parent = parent
        self._mount = mount_id(parent)
        self._folded: list[str] = []

    def remove(self, name: str, shown: Path) -> None:
        self._remove(self._parent, name, shown, depth=0, top=-1)

    def _remove(self, parent: int, name: str, shown: Path, *, depth: int, top: int) -> None:
        found = look_at(parent, name)
        # The mount id, not st_dev: a bind mount of the same filesystem has the same st_dev.
        if found.mount != self._mount:
            raise mount_in_tree("remove", shown)
        if not stat.S_ISDIR(found.mode):
            os.unlink(name, dir_fd=parent)
            return
        directory = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        try:
            # Again, by descriptor: something may have been mounted since.
            if mount_id(directory) != self._mount:
                raise mount_in_tree("remove", shown)
            if depth == self.DEEPEST:
                self._fold(parent, name, top)
                return
            self._remove_content(directory, shown, depth=depth, top=top)
        finally:
            os.close(directory)
        os.rmdir(name, dir_fd=parent)

    def _remove_content(self, directory: int, shown: Path, *, depth: int, top: int) -> None:
        entries = os.listdir(directory)
        top = directory if depth == 0 else top
        while entries:
            name = entries.pop()
            with contextlib.suppress(FileNotFoundError):
                self._remove(directory, name, shown / name, depth=depth + 1, top=top)
            if depth == 0:
                entries += self._folded
                self._folded.clear()

    def _fold(self, parent: int, name: str, top: int) -> None:
        """Move a directory to the top of the tree, where the next attempt finds it too if this one is cut short."""
        folded = f".removing-{secrets.token_hex(8)}"
        os.rename(name, folded, src_dir_fd=parent, dst_dir_fd=top)
        self._folded.append(folded)

"""Files as klet trusts them: bounded reads, atomic writes, and removal that stays inside one mount.

Everything here blocks; call the walks through `klet.aio.threads`.
"""

import contextlib
import os
import secrets
import stat
from pathlib import Path

from klet.host.errors import FileError, MountInTree, file_error

READ_LIMIT = 4 << 20
LONGEST_NAME = 255
_PIECE = 64 << 10


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
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
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
        raise file_error("remove", path, error) from error


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
        raise file_error("remove", shown, error) from error


def is_plain_name(name: str) -> bool:
    """Return whether a name stays in the directory that it is used in."""
    is_one = name not in {"", ".", ".."} and "/" not in name and "\0" not in name
    return is_one and len(os.fsencode(name)) <= LONGEST_NAME


class _TreeRemoval:
    """One removal. What lies deeper than DEEPEST is folded up: a hostile tree costs neither stack nor descriptors."""

    DEEPEST = 64

    def __init__(self, parent: int) -> None:
        self._parent = parent
        self._mount = _mount_id(parent)
        self._folded: list[str] = []

    def remove(self, name: str, shown: Path) -> None:
        self._remove(self._parent, name, shown, depth=0, top=-1)

    def _remove(self, parent: int, name: str, shown: Path, *, depth: int, top: int) -> None:
        if not stat.S_ISDIR(os.lstat(name, dir_fd=parent).st_mode):
            os.unlink(name, dir_fd=parent)
            return
        directory = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        try:
            # The mount id, not st_dev: a bind mount of the same filesystem has the same st_dev.
            if _mount_id(directory) != self._mount:
                raise MountInTree(f"cannot remove {shown}: it is a mount point", path=shown)
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


def _mount_id(descriptor: int) -> str:
    text = read_text(Path(f"/proc/self/fdinfo/{descriptor}"))
    return next(line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("mnt_id:"))

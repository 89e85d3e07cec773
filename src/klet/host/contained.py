"""Paths below a directory that others may write to: links in it lead nowhere outside of it.

Every step is taken by descriptor, so swapping a directory for a link meanwhile has no effect.
"""

import os
import stat
from pathlib import Path

from msgspec import Struct

from klet.host.errors import FileError, file_error

MOST_LINKS = 40


def read_contained(root: Path, relative: str, *, limit: int) -> bytes:
    """Read a regular file below the root, refusing one longer than `limit`. Links work as if the root were `/`."""
    walk = _Walk(root, relative, is_strict=False)
    found = walk.go()
    try:
        if not stat.S_ISREG(os.fstat(found).st_mode):
            raise FileError(f"cannot read {walk.shown}: it is not a regular file", path=walk.shown)
        # Not to wait: a container that holds a lease on its file could keep this thread for 45 seconds.
        readable = os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(readable, "rb", buffering=0) as file:
            data = b""
            while len(data) <= limit and (piece := file.read(limit + 1 - len(data))):
                data += piece
    except OSError as error:
        raise file_error("read", walk.shown, error) from error
    finally:
        os.close(found)
    if len(data) > limit:
        raise FileError(f"cannot read {walk.shown}: it is longer than {limit} bytes", path=walk.shown)
    return data


def open_beneath(root: Path, relative: str) -> int:
    """Return a descriptor (O_PATH) below the root; the caller closes it. A link that leaves the root is refused.

    A link may name a place below the root by its whole path.
    """
    return _Walk(root, relative).go()


def open_readable(root: Path, relative: str) -> int:
    """Return a descriptor to read a regular file, or to list a directory, below the root; the caller closes it.

    A link that leaves the root is refused, and so is any other kind of file: a named pipe would never answer, and
    opening a device alone can have effects.
    """
    found, shown = open_beneath(root, relative), root / relative.lstrip("/")
    try:
        mode = os.fstat(found).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise FileError(f"cannot open {shown}: it is neither a regular file nor a directory", path=shown)
        # Not to wait for the end of a lease that another process has on the file.
        return os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise file_error("open", shown, error) from error
    finally:
        os.close(found)


def make_beneath(root: Path, relative: str, *, mode: int, opened: int | None = None) -> None:
    """Make the directories of a path that are missing, with exactly that mode. A link to nothing stays one.

    The root may have been opened already: then its path counts for links and messages alone.
    """
    os.close(_Walk(root, relative, mode=mode, opened=opened).go())


class _Walk(Struct):
    """One way down. With a mode, directories that are missing are made on the way."""

    root: Path
    relative: str
    is_strict: bool = True
    mode: int | None = None
    opened: int | None = None
    _steps: list[int] = []

    @property
    def shown(self) -> Path:
        return self.root / self.relative.lstrip("/")

    def go(self) -> int:
        try:
            root = self.root if self.opened is None else "."
            self._steps.append(os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.opened))
            self._descend()
            return self._steps.pop()
        except OSError as error:
            raise file_error("open", self.shown, error) from error
        finally:
            for descriptor in self._steps:
                os.close(descriptor)

    def _descend(self) -> None:
        names, links = _names(self.relative, self.shown), 0
        linked = 0
        """How many of the names to come are of a link: what a link names has to be there."""
        while names:
            name = names.pop(0)
            is_linked, linked = linked > 0, max(0, linked - 1)
            if name == "..":
                self._go_up()
                continue
            below = self._open(name) if is_linked else self._open_or_make(name)
            if not stat.S_ISLNK(os.fstat(below).st_mode):
                self._steps.append(below)
                continue
            links += 1
            target = _read_link(below)
            if links > MOST_LINKS:
                raise FileError(f"cannot open {self.shown}: too many links", path=self.shown)
            more = self._names_of(target)
            names, linked = [*more, *names], linked + len(more)

    def _open_or_make(self, name: str) -> int:
        try:
            return self._open(name)
        except FileNotFoundError:
            if self.mode is None:
                raise
        try:
            os.mkdir(name, dir_fd=self._steps[-1])
        except FileExistsError:
            return self._open(name)  # another process was faster; its mode is not ours
        made = self._open(name, os.O_DIRECTORY)
        # By descriptor, after mkdir: the umask does not apply, and a link put there meanwhile is not followed.
        Path(f"/proc/self/fd/{made}").chmod(self.mode)
        return made

    def _open(self, name: str, more: int = 0) -> int:
        return os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC | more, dir_fd=self._steps[-1])

    def _names_of(self, target: str) -> list[str]:
        """Return the names to go on with for the target of a link."""
        if not target.startswith("/"):
            return _names(target, self.shown)
        if not self.is_strict:
            self._go_to_root()
            return _names(target, self.shown)
        # By its text alone: a look at its target could hang, or reveal files of the host to a pod.
        path = Path(target)
        base = next((base for base in (self.root, self.root.resolve()) if path.is_relative_to(base)), None)
        if base is None:
            raise self._leaves()
        self._go_to_root()
        return _names(str(path.relative_to(base)), self.shown)

    def _go_up(self) -> None:
        if len(self._steps) > 1:
            os.close(self._steps.pop())
        elif self.is_strict:
            raise self._leaves()

    def _go_to_root(self) -> None:
        while len(self._steps) > 1:
            os.close(self._steps.pop())

    def _leaves(self) -> FileError:
        return FileError(f"cannot open {self.shown}: it leads out of {self.root}", path=self.shown)


def _read_link(descriptor: int) -> str:
    try:
        return os.readlink("", dir_fd=descriptor)
    finally:
        os.close(descriptor)


def _names(path: str, shown: Path) -> list[str]:
    if "\0" in path:
        raise FileError(f"cannot open {str(shown)!r}: a path has no zero bytes", path=shown)
    return [name for name in path.split("/") if name not in {"", "."}]

"""Paths below a directory that somebody else may write to: links in it lead nowhere outside of it.

Every step is taken by descriptor, so swapping a directory for a link meanwhile has no effect.
"""

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from klet.host.errors import FileError, file_error

MOST_LINKS = 40


def read_contained(root: Path, relative: str, *, limit: int) -> bytes:
    """Read a regular file below the root, refusing one longer than `limit`. Links work as if the root were `/`."""
    walk = _Walk(root, relative, is_strict=False)
    found = walk.go()
    try:
        if not stat.S_ISREG(os.fstat(found).st_mode):
            raise FileError(f"cannot read {walk.shown}: it is not a regular file", path=walk.shown)
        with open(f"/proc/self/fd/{found}", "rb", buffering=0) as file:
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
    """A descriptor (O_PATH) of what is below the root; the caller closes it. A link that leaves the root is refused."""
    return _Walk(root, relative).go()


def make_beneath(root: Path, relative: str, *, mode: int) -> None:
    """Make the directories of a path that are missing, with exactly that mode."""
    os.close(_Walk(root, relative, mode=mode).go())


@dataclass(slots=True)
class _Walk:
    """One way down. With a mode, directories that are missing are made on the way."""

    root: Path
    relative: str
    is_strict: bool = True
    mode: int | None = None
    _steps: list[int] = field(default_factory=list, init=False)

    @property
    def shown(self) -> Path:
        return self.root / self.relative.lstrip("/")

    def go(self) -> int:
        try:
            self._steps.append(os.open(self.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
            self._descend()
            return self._steps.pop()
        except OSError as error:
            raise file_error("open", self.shown, error) from error
        finally:
            for descriptor in self._steps:
                os.close(descriptor)

    def _descend(self) -> None:
        names, links = _names(self.relative), 0
        while names:
            name = names.pop(0)
            if name == "..":
                self._go_up()
                continue
            below = self._open(name)
            if not stat.S_ISLNK(os.fstat(below).st_mode):
                self._steps.append(below)
                continue
            target = _read_link(below)
            links += 1
            if links > MOST_LINKS:
                raise FileError(f"cannot open {self.shown}: too many links", path=self.shown)
            if target.startswith("/"):
                self._go_to_root()
            names = [*_names(target), *names]

    def _open(self, name: str) -> int:
        flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.open(name, flags, dir_fd=self._steps[-1])
        except FileNotFoundError:
            if self.mode is None:
                raise
            os.mkdir(name, dir_fd=self._steps[-1])
            made = os.open(name, flags | os.O_DIRECTORY, dir_fd=self._steps[-1])
            # By descriptor and after the making: the umask has no say, and nobody can put a link in between.
            Path(f"/proc/self/fd/{made}").chmod(self.mode)
            return made

    def _go_up(self) -> None:
        if len(self._steps) > 1:
            os.close(self._steps.pop())
        elif self.is_strict:
            raise self._leaves()

    def _go_to_root(self) -> None:
        if self.is_strict:
            raise self._leaves()
        while len(self._steps) > 1:
            os.close(self._steps.pop())

    def _leaves(self) -> FileError:
        return FileError(f"cannot open {self.shown}: it leads out of {self.root}", path=self.shown)


def _read_link(descriptor: int) -> str:
    try:
        return os.readlink("", dir_fd=descriptor)
    finally:
        os.close(descriptor)


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in {"", "."}]

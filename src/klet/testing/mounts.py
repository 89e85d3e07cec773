"""Mounts that exist only in a dictionary: plain directories stand for memory and huge pages."""

from collections.abc import Iterable
from pathlib import Path

from klet.api.quantity import Quantity
from klet.host.errors import FileMissing, MountError
from klet.host.filesystems import Magic
from klet.volumes.scratch import MountedMedium

BOUND = "bind"
"""The type of what is no filesystem of its own."""
_PAGE = "4Ki"


class NotedMounts:
    """What would be mounted where. With an `error`, nothing can be mounted or unmounted."""

    def __init__(self) -> None:
        self.mounts: dict[Path, tuple[str, str, tuple[str, ...]]] = {}
        """Source, type and options by path."""
        self.error: MountError | None = None

    def mount(self, source: str, target: Path, *, fs_type: str, options: Iterable[str]) -> None:
        if self.error is not None:
            raise self.error
        self.mounts[target] = (source, fs_type, tuple(options))

    def unmount(self, target: Path, *, force: bool = False) -> bool:  # noqa: ARG002 - nothing here hangs
        if self.error is not None:
            raise self.error
        return self.mounts.pop(target, None) is not None

    def bind(self, source: int, target: Path) -> None:
        if self.error is not None:
            raise self.error
        self.mounts[target] = (str(Path(f"/proc/self/fd/{source}").readlink()), BOUND, ())

    def restrict(self, target: Path, options: Iterable[str]) -> None:
        source, kind, _ = self.mounts[target]
        self.mounts[target] = (source, kind, tuple(options))

    def is_bound(self, path: Path) -> bool:
        if not path.exists():
            raise FileMissing(f"cannot look at {path}: it is missing", path=path)
        return path in self.mounts

    def shown_at(self, source: int) -> list[str]:
        path = str(Path(f"/proc/self/fd/{source}").readlink())
        return [str(target) for target, (bound, kind, _) in self.mounts.items() if (bound, kind) == (path, BOUND)]

    def mounted_at(self, path: Path) -> MountedMedium | None:
        if not path.exists():
            raise FileMissing(f"cannot look at {path}: it is missing", path=path)
        if path not in self.mounts:
            return None
        _, kind, options = self.mounts[path]
        sizes = [option.partition("=")[2] for option in options if option.startswith("pagesize=")]
        magic = Magic.HUGETLBFS if kind == "hugetlbfs" else Magic.TMPFS
        return MountedMedium(magic, Quantity.parse(sizes[0] if sizes else _PAGE).value())

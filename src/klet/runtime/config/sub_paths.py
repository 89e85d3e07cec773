"""Parts of volumes that containers mount (`subPath`), each bound to a place that no container can tamper with.

A container could swap a directory of its volume for a link between our look at it and the runtime's mount. So what is
found is bound by descriptor below the pod's directory, and the runtime is given that.
"""

import os
import stat
from pathlib import Path
from typing import Protocol

from klet.aio.threads import Threads
from klet.host.beneath import remove_below
from klet.host.contained import make_beneath, open_beneath
from klet.host.errors import FileMissing, HostError, file_error
from klet.host.mounts import bind, cleanup_mount_point, is_mountpoint, unmount_tree
from klet.model.pods import PodUID

DIRECTORY = "volume-subpaths"


class SubPathError(HostError):
    """A part of a volume that cannot be mounted; `step` is `create … directory` or `prepare` in the user's words."""

    def __init__(self, step: str, message: str) -> None:
        super().__init__(message)
        self.step = step


class SubPaths(Protocol):
    """Makes parts of volumes ready to be mounted."""

    async def prepare(self, uid: PodUID, container: str, index: int, *, volume: str, root: str, path: str) -> str:
        """Where the part lies that the container's mount of that index wants; raises SubPathError."""
        ...

    async def clean(self, uid: PodUID) -> None:
        """Unbind everything of a pod that is over."""
        ...


class BoundSubPaths:
    """Parts of volumes, bound below the pods' directories."""

    def __init__(self, *, root: Path, threads: Threads) -> None:
        self._pods = root / "pods"
        self._threads = threads

    async def prepare(self, uid: PodUID, container: str, index: int, *, volume: str, root: str, path: str) -> str:
        target = self._pods / uid / DIRECTORY / volume / container / str(index)
        return await self._threads.run(_prepare, Path(root), path, target)

    async def clean(self, uid: PodUID) -> None:
        await self._threads.run(_clean, self._pods, uid)


def _prepare(root: Path, path: str, target: Path) -> str:
    try:
        found = _open_or_make(root, path)
        try:
            _bind(found, target)
        finally:
            os.close(found)
    except SubPathError:
        raise
    except HostError as error:
        raise SubPathError("prepare subPath", str(error)) from error
    return str(target)


def _open_or_make(root: Path, path: str) -> int:
    try:
        return open_beneath(root, path)
    except FileMissing:
        pass
    try:
        make_beneath(root, path, mode=stat.S_IMODE(root.stat().st_mode))
    except HostError as error:
        raise SubPathError("create subPath directory", str(error)) from error
    except OSError as error:
        raise SubPathError("create subPath directory", str(file_error("read the mode of", root, error))) from error
    return open_beneath(root, path)


def _bind(found: int, target: Path) -> None:
    """Bind a descriptor; what an earlier start of the container bound there stays if it is the same."""
    wanted = os.fstat(found)
    if is_mountpoint(target) and _is_same(wanted, target):
        return
    unmount_tree(target)
    is_directory = stat.S_ISDIR(wanted.st_mode)
    if target.exists() and target.is_dir() is not is_directory:
        cleanup_mount_point(target)  # a file is not bound to a directory, nor a directory to a file
    try:
        target.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        if is_directory:
            target.mkdir(mode=0o750, exist_ok=True)
        else:
            target.touch(mode=0o640)
    except OSError as error:
        raise file_error("make", target, error) from error
    bind(Path(f"/proc/self/fd/{found}"), target)


def _is_same(wanted: os.stat_result, target: Path) -> bool:
    try:
        return os.path.samestat(wanted, target.lstat())
    except OSError:
        return False  # a mount that does not answer any more is replaced


def _clean(pods: Path, uid: PodUID) -> None:
    directory = pods / uid / DIRECTORY
    if directory.exists():
        unmount_tree(directory)
        remove_below(pods, uid, DIRECTORY)

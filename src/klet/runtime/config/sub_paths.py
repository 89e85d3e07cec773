"""Parts of volumes that containers mount (`subPath`), each bound to a path that no container can tamper with.

A container could swap a directory of its volume for a link between our look at it and the runtime's mount. So what is
found is bound by descriptor below the pod's directory, and the runtime is given that.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol

from klet.aio.threads import Threads
from klet.host.beneath import make_directories, open_directory, remove_below
from klet.host.contained import make_beneath, open_beneath
from klet.host.errors import FileMissing, HostError, MountError, file_error
from klet.host.mounts import bind, cleanup_mount_point, is_mountpoint, unmount_tree
from klet.model.pods import PodUID
from klet.model.volumes import SUB_PATHS

_NO_LINK: Final = os.O_NOFOLLOW | os.O_CLOEXEC
_PLACE: Final = os.O_PATH | _NO_LINK


class SubPathError(HostError):
    """A part of a volume that cannot be mounted; `step` is `create … directory` or `prepare` in the user's words."""

    def __init__(self, step: str, message: str) -> None:
        super().__init__(message)
        self.step = step


class SubPaths(Protocol):
    """Makes parts of volumes ready to be mounted."""

    async def prepare(self, uid: PodUID, container: str, index: int, *, volume: str, root: str, path: str) -> str:
        """Return the path of the part that the container's mount of that index needs; raises SubPathError."""
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
        names = (uid, SUB_PATHS, volume, container, str(index))
        return await self._threads.run(_prepare, Path(root), path, self._pods, names)

    async def clean(self, uid: PodUID) -> None:
        await self._threads.run(_clean, self._pods, uid)


def _prepare(root: Path, path: str, pods: Path, names: tuple[str, ...]) -> str:
    try:
        found = _open_or_make(root, path)
        try:
            _bind(found, pods, names)
        finally:
            os.close(found)
    except SubPathError:
        raise
    except HostError as error:
        raise SubPathError("prepare subPath", str(error)) from error
    return str(pods.joinpath(*names))


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


def _bind(found: int, pods: Path, names: tuple[str, ...]) -> None:
    """Bind a descriptor; what an earlier start of the container bound there stays if it is the same.

    The place is reached by descriptor, too: a link on the way to it could have us mount over anything.
    """
    wanted = os.fstat(found)
    make_directories(pods, *names[:-1], mode=0o750)
    with open_directory(pods, *names[:-1]) as parent:
        target = Path(f"/proc/self/fd/{parent}/{names[-1]}")
        if is_mountpoint(target) and _is_same(wanted, target):
            return
        unmount_tree(target)
        shown = pods.joinpath(*names)
        with _made(parent, target, shown, is_directory=stat.S_ISDIR(wanted.st_mode)) as made:
            try:
                bind(Path(f"/proc/self/fd/{found}"), Path(f"/proc/self/fd/{made}"))
            except MountError as error:
                raise MountError(f"cannot bind {shown}: {os.strerror(error.errno)}", errno=error.errno) from error


@contextmanager
def _made(parent: int, target: Path, shown: Path, *, is_directory: bool) -> Iterator[int]:
    """Yield what the bind is mounted on: a directory for a directory, a file for anything else."""
    name = target.name
    if os.path.lexists(target) and stat.S_ISDIR(target.lstat().st_mode) is not is_directory:
        cleanup_mount_point(target)
    try:
        if is_directory:
            with suppress(FileExistsError):
                os.mkdir(name, 0o750, dir_fd=parent)
            made = os.open(name, _PLACE | os.O_DIRECTORY, dir_fd=parent)
        else:
            made = os.open(name, os.O_RDONLY | os.O_CREAT | os.O_NONBLOCK | _NO_LINK, 0o640, dir_fd=parent)
    except OSError as error:
        raise file_error("make", shown, error) from error
    try:
        yield made
    finally:
        os.close(made)


def _is_same(wanted: os.stat_result, target: Path) -> bool:
    try:
        return os.path.samestat(wanted, target.lstat())
    except OSError:
        return False  # a mount that does not answer any more is replaced


def _clean(pods: Path, uid: PodUID) -> None:
    try:
        with open_directory(pods, uid) as pod:
            unmount_tree(Path(f"/proc/self/fd/{pod}/{SUB_PATHS}"))
    except FileMissing:
        return
    remove_below(pods, uid, SUB_PATHS)

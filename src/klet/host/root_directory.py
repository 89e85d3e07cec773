"""The agent's root directory, made as upstream does (`setupDataDirs`): closed to others, and on a shared mount.

Only from a shared mount do mounts that containers make in a volume reach the node and other containers
(`mountPropagation`). One agent at a time holds it, by a file that the kernel releases with the process.
"""

import fcntl
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from enum import Enum, auto
from pathlib import Path
from typing import Final, Protocol

from klet.host.errors import HostError, MountError, file_error
from klet.host.mountinfo import MountEntry, containing_mount, mounts_under
from klet.host.mounts import Propagation
from klet.host.procfs import ProcReader

logger = logging.getLogger(__name__)

LOCK_FILE: Final = "klet.lock"
PLUGIN_REGISTRY: Final = "plugins_registry"
"""Where plugins put their registration sockets."""
DIRECTORIES: Final[Mapping[str, int]] = {
    "pods": 0o750,
    "plugins": 0o750,
    PLUGIN_REGISTRY: 0o750,
    "pod-resources": 0o750,
    "checkpoints": 0o700,
}
"""What is made in the root directory, with its mode; one that is there keeps its mode."""
DEVICE_PLUGINS: Final = Path("/var/lib/kubelet/device-plugins")
"""Where device plugins look for the node, whatever its root directory is; only the agent with that root makes it."""
PLUGIN_LABEL: Final = b"system_u:object_r:container_file_t:s0\0"
_LONGEST_PID = 20


class MountCalls(Protocol):
    """The mounts of the machine, as `klet.host.mounts` has them."""

    def list_mounts(self) -> tuple[MountEntry, ...]: ...

    def bind(self, source: Path, target: Path) -> None: ...

    def set_propagation(self, target: Path, propagation: Propagation, *, recursive: bool) -> None: ...

    def unmount(self, target: Path) -> bool: ...


class Sharing(Enum):
    """What there is to do for a directory that has to be on a shared mount."""

    NOTHING = auto()
    BIND = auto()
    """Bind it on itself, and share that."""
    LATER = auto()
    """Something is mounted below it already, which a mount upon it would hide from its owners."""


def make_root(root: Path, mounts: MountCalls) -> None:
    """Make the directory and what every part of the agent expects in it; raises HostError."""
    _make(root, root)
    share(root, mounts)
    for name, mode in DIRECTORIES.items():
        _make(root, root / name, mode=mode)
    if root == DEVICE_PLUGINS.parent:
        _make(root, DEVICE_PLUGINS)


def label_plugin_directories(root: Path) -> None:
    """Let containers reach the directories of plugins on a machine with SELinux. What fails is logged."""
    for name in ("plugins", PLUGIN_REGISTRY):
        try:
            os.setxattr(root / name, "security.selinux", PLUGIN_LABEL)
        except OSError as error:
            extra = {"path": str(root / name), "error": error.strerror}
            logger.warning("Plugins in containers might not work: a directory has no SELinux label", extra=extra)


def make_log_directories(logs: Path, links: Path) -> None:
    """Make where the logs of pods are, and the links to them; raises FileError. One that is there keeps its mode."""
    for directory, mode in ((logs, 0o750), (links, 0o755)):
        try:
            directory.mkdir(mode=mode, parents=True, exist_ok=True)
        except OSError as error:
            raise file_error("make", directory, error) from error


@contextmanager
def hold_root(root: Path) -> Iterator[None]:
    """Have the directory for this agent alone; two would each undo what the other does. Raises HostError."""
    with ExitStack() as held:
        try:
            held.enter_context(hold_file(root / LOCK_FILE))
        except LockHeld as error:
            used = f"the root directory {root} (--root-dir) is in use by {error.holder or 'another process'}"
            raise HostError(f"{used}; stop that, or give this agent a directory of its own") from error
        yield


def share(root: Path, mounts: MountCalls) -> None:
    """Have the root directory on a shared mount; raises HostError."""
    place = root.resolve()
    table = mounts.list_mounts()
    match decide_sharing(table, str(place)):
        case Sharing.NOTHING:
            return
        case Sharing.LATER:
            logger.warning(
                "The root directory is not on a shared mount: mountPropagation works after a start without pods",
                extra={"path": str(place)},
            )
        case Sharing.BIND:
            try:
                _bind(place, mounts)
            except MountError as error:
                holder = containing_mount(table, str(place))
                raise HostError(
                    f"cannot make the root directory {root} (--root-dir) a shared mount: {error}: give klet "
                    "CAP_SYS_ADMIN, or share the mount that holds it with "
                    f"`mount --make-rshared {holder.mount_point if holder is not None else '/'}`"
                ) from error
            logger.info("The root directory is bound on itself as a shared mount", extra={"path": str(place)})


def decide_sharing(table: Iterable[MountEntry], place: str) -> Sharing:
    """Return what to do for a directory, by the mounts that there are."""
    table = tuple(table)
    holder = containing_mount(table, place)
    if holder is not None and holder.is_shared:
        return Sharing.NOTHING
    below = [mount for mount in mounts_under(table, place) if mount.mount_point != place]
    return Sharing.LATER if below else Sharing.BIND


def _bind(place: Path, mounts: MountCalls) -> None:
    mounts.bind(place, place)
    try:
        mounts.set_propagation(place, Propagation.SHARED, recursive=True)
    except MountError:
        mounts.unmount(place)
        raise


def _make(root: Path, directory: Path, *, mode: int = 0o750) -> None:
    try:
        directory.mkdir(mode=mode, parents=True, exist_ok=True)
    except OSError as error:
        raise HostError(f"cannot make the root directory {root} (--root-dir): {error.strerror}") from error


class LockHeld(HostError):
    """Another process has it."""

    def __init__(self, message: str, *, holder: str) -> None:
        super().__init__(message)
        self.holder = holder
        """As `name (pid 7)`; empty if it cannot be seen."""


@contextmanager
def hold_file(path: Path, *, proc: ProcReader | None = None) -> Iterator[None]:
    """Hold a file, made if need be, until the block is left. Raises LockHeld, or FileError where there can be none."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise file_error("lock", path, error) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = _holder(descriptor, proc or ProcReader())
            raise LockHeld(f"{path} is held by {holder or 'another process'}", holder=holder) from error
        except OSError as error:
            raise file_error("lock", path, error) from error
        # Only a hint for the next process that finds it held: on a full disk the lock holds without it.
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        # The file stays: removing it would take it from another process that has just opened it.
        os.close(descriptor)


def _holder(descriptor: int, proc: ProcReader) -> str:
    text = os.pread(descriptor, _LONGEST_PID, 0).decode("ascii", errors="replace").strip()
    if not text.isdecimal():
        return ""
    try:
        return f"{proc.process_stat(int(text)).name} (pid {text})"
    except HostError:
        return f"pid {text}"

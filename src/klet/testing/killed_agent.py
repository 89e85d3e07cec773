"""An agent that is killed by SIGKILL right before one of its changes below some directories.

  python -m klet.testing.killed_agent NUMBER DIRECTORY[:DIRECTORY] run --config=...

Everything after the directories is what `klet` is given. What counts is what changes files, mounts or loop devices: the
auditing events that Python and `klet.host.mounts` raise for them, and programs run with such a path. A file that
is opened does not count by itself: what changes next is the file's new name, or something beside it. Only those of
cgroups count, as they are opened for one write.
"""

import os
import runpy
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from klet.host.cgroups.layout import CGROUP_ROOT
from klet.host.mounts import MOUNT_EVENT, UNMOUNT_EVENT

_PATHS: Final[Mapping[str, tuple[tuple[int, int | None], ...]]] = {
    "os.mkdir": ((0, 2),),
    "os.rmdir": ((0, 1),),
    "os.remove": ((0, 1),),
    "os.rename": ((0, 2), (1, 3)),
    "os.symlink": ((1, 2),),
    "os.link": ((1, 3),),
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.truncate": ((0, None),),
    MOUNT_EVENT: ((0, None),),
    UNMOUNT_EVENT: ((0, None),),
}
"""Events that change something, with where their arguments have a path and the descriptor that it begins at."""
_LOOP_REQUESTS: Final = range(0x4C00, 0x4C90)


class Killer:
    """Counts changes, and kills the process before the one of a number."""

    def __init__(self, *, number: int, below: Sequence[str]) -> None:
        self._left = number
        self._below = tuple(f"{os.path.realpath(path)}/" for path in below)
        self._lock = threading.Lock()

    def hear(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self._is_change(event, arguments):
            return
        with self._lock:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def _is_change(self, event: str, arguments: tuple[object, ...]) -> bool:
        if event == "open":
            return self._is_cgroup_write(arguments)
        if event == "fcntl.ioctl":
            return arguments[1] in _LOOP_REQUESTS
        if event == "subprocess.Popen":
            return any(place in str(arguments[1]) for place in self._below)
        return any(
            self._is_below(arguments[path], None if at is None else arguments[at]) for path, at in _PATHS.get(event, ())
        )

    def _is_cgroup_write(self, arguments: tuple[object, ...]) -> bool:
        path, _, flags = arguments
        is_written = isinstance(flags, int) and bool(flags & os.O_WRONLY)
        return is_written and str(path).startswith(f"{CGROUP_ROOT}/") and self._is_below(path, None)

    def _is_below(self, path: object, directory: object) -> bool:
        return full_path(path, directory).startswith(self._below)


def full_path(path: object, directory: object) -> str:
    """Return where a path that begins at a descriptor is; empty if that cannot be known."""
    if isinstance(path, int):
        return _target(path)
    given = os.fsdecode(path) if isinstance(path, bytes | str | os.PathLike) else ""
    if given.startswith("/proc/self/fd/"):
        number, _, rest = given.removeprefix("/proc/self/fd/").partition("/")
        return f"{_target(int(number))}/{rest}" if number.isdecimal() else given
    if given.startswith("/") or not isinstance(directory, int) or directory < 0:
        return given
    return f"{_target(directory)}/{given}"


def _target(descriptor: int) -> str:
    try:
        return str(Path(f"/proc/self/fd/{descriptor}").readlink())
    except OSError:
        return ""


def run(arguments: Sequence[str]) -> None:
    number, directories, *rest = arguments
    sys.addaudithook(Killer(number=int(number), below=directories.split(os.pathsep)).hear)
    sys.argv = ["klet", *rest]
    runpy.run_module("klet", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    run(sys.argv[1:])

"""Finds and removes what a private containerd left on the machine: processes, mounts, cgroups, its bridge.

Only things that name the containerd's own directory, or that its own files name, are touched. Everything here blocks.
"""

import fcntl
import json
import os
import select
import signal
import subprocess
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict

from klet.host.files import remove_tree
from klet.host.mountinfo import mounts_under, parse_mountinfo

MARKER = "klet-containerd.json"
_PATIENCE_MILLISECONDS = 5000


class Marker(Struct, frozen=True):
    """What a directory's containerd may leave outside of it, and whose it is."""

    owner: int
    owner_started: int
    bridge: str
    cgroup: str


def write_marker(directory: Path, *, bridge: str, cgroup: str) -> None:
    marker = Marker(owner=os.getpid(), owner_started=_start_time(os.getpid()), bridge=bridge, cgroup=cgroup)
    (directory / MARKER).write_text(json.dumps(asdict(marker)))


def remove_abandoned(base: Path) -> None:
    """Clean every directory under `base` whose owner is gone; those of living test runs stay."""
    base.mkdir(parents=True, exist_ok=True)
    with (base / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs may start at once
        for path in sorted(base.glob(f"*/{MARKER}")):
            marker = Marker(**json.loads(path.read_text()))
            if _start_time(marker.owner) != marker.owner_started:
                remove_everything(path.parent)


def remove_everything(directory: Path) -> None:
    """End the processes of a directory's containerd, undo its mounts, cgroups and bridge, and remove the directory."""
    marker = Marker(**json.loads((directory / MARKER).read_text()))
    for pid in _daemons(directory):
        _kill(pid)
    _end_tasks(directory / "state" / "io.containerd.runtime.v2.task" / "k8s.io")
    undo_mounts(directory)
    _remove_cgroups(marker.cgroup)
    if Path("/sys/class/net", marker.bridge).exists():
        subprocess.run(["ip", "link", "delete", marker.bridge], check=True, capture_output=True)
    remove_tree(directory)


def undo_mounts(directory: Path) -> None:
    """Unmount whatever is mounted on a directory or below it."""
    for mount in sorted(_mounts(directory), key=len, reverse=True):
        subprocess.run(["umount", "--lazy", mount], check=False, capture_output=True)


def find_cgroups(name: str, *, below: str = "/") -> list[str]:
    """Return the directories of all cgroups of such a name, of all hierarchies. Any may go while they are looked for:
    `Path.glob` would fail then.
    """
    mounts = [Path("/sys/fs/cgroup"), *Path("/sys/fs/cgroup").iterdir()]
    tops = {(mount / below.strip("/")).resolve() for mount in mounts}
    found = ((folder, names) for top in tops for folder, names, _ in os.walk(top))
    return sorted({f"{folder}/{each}" for folder, names in found for each in names if fnmatchcase(each, name)})


def list_files(directory: Path) -> list[Path]:
    """Return the files below a directory in which others may be removing things, as `rglob` cannot."""
    return [Path(folder, name) for folder, _, names in os.walk(directory) for name in names]


def list_loop_backings() -> list[str]:
    """Return what the loop devices of this machine are made of."""
    found = []
    for file in Path("/sys/block").glob("loop*/loop/backing_file"):
        with suppress(OSError):  # it was released meanwhile
            found.append(file.read_text(errors="replace").strip())
    return found


def _daemons(directory: Path) -> list[int]:
    """Return the daemon and its shims: their command lines name a file in the directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended while we looked
            arguments = (process / "cmdline").read_bytes().split(b"\0")
            is_ours = any(argument.startswith(f"{directory}/".encode()) for argument in arguments[1:])
            if is_ours and Path(os.fsdecode(arguments[0])).name.startswith("containerd"):
                found.append(int(process.name))
    return found


def _end_tasks(bundles: Path) -> None:
    for bundle in bundles.glob("*"):
        with suppress(OSError, ValueError):  # a task that never started, or ended by itself
            pid = int((bundle / "init.pid").read_text())
            if bundle.name in Path(f"/proc/{pid}/cgroup").read_text():
                _kill(pid)
        with suppress(OSError):
            address = (bundle / "address").read_text().removeprefix("unix://")
            Path(address).unlink()


def _mounts(directory: Path) -> list[str]:
    mounts = parse_mountinfo(Path("/proc/self/mountinfo").read_text())
    return [mount.mount_point for mount in mounts_under(mounts, str(directory))]


def _remove_cgroups(name: str) -> None:
    roots = [Path("/sys/fs/cgroup"), *Path("/sys/fs/cgroup").iterdir()]
    for top in {root / name for root in roots if (root / name / "cgroup.procs").exists()}:
        for folder, _, _ in os.walk(top, topdown=False):
            # A task whose bundle is gone already is known by its cgroup only.
            with suppress(FileNotFoundError):  # a shim that ended meanwhile has removed it
                for pid in Path(folder, "cgroup.procs").read_text().split():
                    _kill(int(pid))
                Path(folder).rmdir()


def _kill(pid: int) -> None:
    """Kill a process and wait for its end."""
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            ended = select.poll()
            ended.register(descriptor, select.POLLIN)
            ended.poll(_PATIENCE_MILLISECONDS)
        finally:
            os.close(descriptor)


def _start_time(pid: int) -> int:
    """Return when a process started, in ticks since boot: with the pid it identifies a process. 0 if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[19])

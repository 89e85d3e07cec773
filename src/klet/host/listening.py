"""Who listens on a TCP port of this machine, for the message that it is taken."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from klet.host.errors import FileError, MalformedFile
from klet.host.files import read_text
from klet.host.procfs import ProcReader

_LISTENING: Final = "0A"


def parse_listening(text: str, port: int) -> frozenset[int]:
    """The inodes of the sockets that listen on a port, from /proc/net/tcp or tcp6."""
    return frozenset(_inodes(text, port))


def find_listener(port: int, *, root: Path = Path("/")) -> str:
    """The process that listens on a port, as `name (pid 7)`; empty if it cannot be seen.

    It is not seen where it belongs to another user or to another network namespace's view of /proc.
    """
    proc = root / "proc"
    wanted = {f"socket:[{inode}]" for inode in _all_inodes(proc, port)}
    if not wanted:
        return ""
    for process in sorted(_pids(proc)):
        if _holds(proc / str(process) / "fd", wanted):
            try:
                return f"{ProcReader(root=root).process_stat(process).name} (pid {process})"
            except (FileError, MalformedFile):
                return f"pid {process}"
    return ""


def _inodes(text: str, port: int) -> Iterator[int]:
    ending = f":{port:04X}"
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 9 and fields[1].endswith(ending) and fields[3] == _LISTENING and fields[9].isdigit():
            yield int(fields[9])


def _all_inodes(proc: Path, port: int) -> Iterator[int]:
    for name in ("tcp", "tcp6"):
        try:
            yield from parse_listening(read_text(proc / "self" / "net" / name), port)
        except FileError:
            continue  # a kernel without this family


def _pids(proc: Path) -> Iterator[int]:
    return (int(entry.name) for entry in proc.iterdir() if entry.name.isdigit())


def _holds(descriptors: Path, wanted: set[str]) -> bool:
    try:
        return any(str(entry.readlink()) in wanted for entry in descriptors.iterdir())
    except OSError:
        return False  # it has ended, or is not ours to look at

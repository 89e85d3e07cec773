"""One node of this machine: its files and names, and the lock that keeps two commands from working on it at once."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from klet.cli.node.paths import NodeNames, NodePaths, foreign_entries, node_names, node_paths, state_directory_problem
from klet.errors import KletError


class NodeError(KletError):
    """The node cannot be made, used or taken down; the message says why and what to do."""


class LocalNode(Struct, frozen=True):
    """Where one node lives."""

    paths: NodePaths
    names: NodeNames

    @property
    def is_default(self) -> bool:
        return not self.names.tag


def find_node(state: Path) -> LocalNode:
    """Return the node of a state directory, which need not exist yet."""
    # strict=False follows links as far as there is something; one directory must be one node.
    try:
        absolute = state.absolute().resolve()
    except (OSError, RuntimeError) as error:
        raise NodeError(f"--state-dir {state}: {error}") from error
    if problem := state_directory_problem(absolute):
        raise NodeError(problem)
    if absolute.exists() and not absolute.is_dir():
        raise NodeError(f"--state-dir {absolute} is not a directory")
    return LocalNode(paths=node_paths(absolute), names=node_names(absolute))


def make_state_directory(node: LocalNode) -> None:
    """Make the state directory; one that holds anything but a node is refused, for a node's end is its removal."""
    paths = node.paths
    try:
        paths.state.mkdir(parents=True, exist_ok=True, mode=0o755)
        entries = [entry.name for entry in paths.state.iterdir()]
    except OSError as error:
        raise NodeError(f"--state-dir {paths.state}: {error.strerror}") from error
    foreign = foreign_entries(paths, entries)
    if foreign and paths.record.name not in entries:
        shown = ", ".join(foreign[:3]) + (", …" if len(foreign) > 3 else "")
        raise NodeError(
            f"--state-dir {paths.state} holds things that are not klet's ({shown}); give a new or an empty directory"
        )


def locked(node: LocalNode) -> contextlib.AbstractContextManager[None]:
    """Hold the node for one command."""
    return locked_directory(node.paths.state, shown=node.paths.state)


@contextlib.contextmanager
def locked_directory(directory: Path, *, shown: Path) -> Iterator[None]:
    """Hold a directory for one command; the directory itself is the lock, so a killed command holds nothing."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NodeError(f"another klet command is at work on {shown}; wait for it to end") from None
        yield
    finally:
        os.close(descriptor)


def require_root(command: str) -> None:
    if os.geteuid() != 0:
        raise NodeError(f"`klet {command}` needs root: it makes network namespaces, mounts and cgroups; use sudo")


def last_lines(log: Path, *, count: int = 8) -> str:
    """Return the end of a log, for a message about the daemon that wrote it."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, log.stat().st_size - 8192))
            lines = file.read().decode(errors="replace").splitlines()[-count:]
    except FileNotFoundError:
        return ""
    return "\n".join(f"    {line}" for line in lines)

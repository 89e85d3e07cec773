"""What the nodes of this machine changed on the host together, and how it was before the first of them.

Forwarding switches and the firewall chains that CNI networks share belong to no single node: the first node to come
writes down how they were, the last one to leave gets the note back and restores them.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from klet.host.files import remove_file, remove_tree, write_atomic

LEDGER = Path("/run/klet-host")


class HostBefore(msgspec.Struct, frozen=True, kw_only=True):
    """The host before any node came."""

    switches: Mapping[str, str] = {}
    """Kernel switches by path under /proc/sys, and their values."""
    chains: Mapping[str, tuple[str, ...]] = {}
    """The shared chains that were there, by the program that lists them."""


class HostLedger:
    """The note and the list of nodes, in a directory that a reboot clears, as it clears what the note is about."""

    def __init__(self, *, directory: Path = LEDGER) -> None:
        self._directory = directory
        self._before = directory / "before.json"
        self._nodes = directory / "nodes"

    def join(self, network: str, *, state: Path, observe: Callable[[], HostBefore]) -> None:
        """Enter a node; the first one brings the observation of the host."""
        self._nodes.mkdir(parents=True, exist_ok=True)
        with self._locked():
            if not self._before.exists() or not self._members():
                write_atomic(self._before, msgspec.json.encode(observe()), mode=0o600)
            write_atomic(self._nodes / network, str(state).encode(), mode=0o600)

    def leave(self, network: str) -> HostBefore | None:
        """Take a node off the list; the last one gets the note."""
        if not self._directory.exists():
            return None
        with self._locked():
            remove_file(self._nodes / network)
            if self._members() or not self._before.exists():
                return None
            return msgspec.json.decode(self._before.read_bytes(), type=HostBefore)

    def close(self) -> None:
        """Forget the note once everything is restored, unless another node has come meanwhile."""
        if not self._directory.exists():
            return
        with self._locked():
            if not self._members():
                remove_tree(self._directory)

    def _members(self) -> list[Path]:
        """Return the nodes that still exist: one whose state directory was deleted cannot leave any more."""
        if not self._nodes.exists():
            return []
        return [entry for entry in self._nodes.iterdir() if Path(entry.read_text()).is_dir()]

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

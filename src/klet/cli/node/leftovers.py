"""What a runtime that was killed leaves behind, and how to find it."""

import asyncio
import hashlib
import re
import signal
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from klet.cli.node import links
from klet.cli.node.processes import processes_with_argument, send_signal, wait_for_exit

SHIM = "containerd-shim-runc-v2"
TASKS = "io.containerd.runtime.v2.task"
SANDBOXES = "io.containerd.grpc.v1.cri/sandboxes"
SHIM_DEADLINE = 5
CNI_RESULTS = Path("/var/lib/cni/results")
_LEASE = re.compile(r"[0-9a-f]*[.:][0-9a-f.:]*")


async def kill_shims(address: str) -> None:
    """End the shims of the containerd at this address; their containers are dead already."""
    shims = processes_with_argument("-address", address, program=SHIM)
    for shim in shims:
        send_signal(shim, signal.SIGKILL)
    async with asyncio.timeout(SHIM_DEADLINE):
        for shim in shims:
            await wait_for_exit(shim)


def shim_sockets(containerd_state: Path) -> list[Path]:
    """Return the sockets of shims, which containerd keeps outside of its own directories; each task notes its own."""
    sockets = []
    for note in (containerd_state / TASKS).glob("*/*/address"):
        address = note.read_text().removeprefix("unix://")
        if address.startswith("/run/containerd/s/"):
            sockets.append(Path(address))
    return sockets


def known_sandboxes(containerd_state: Path, leases: Path) -> list[str]:
    """Return the sandboxes that left something on the disk."""
    directory = containerd_state / SANDBOXES
    kept = [entry.name for entry in directory.iterdir()] if directory.is_dir() else []
    return sorted({*kept, *leased_containers(leases)})


def leased_containers(leases: Path) -> list[str]:
    """Return the sandboxes that hold an address of the network."""
    files = leases.iterdir() if leases.is_dir() else ()
    # Beside one file for each address there are a lock and the last address that was given out.
    return [lease.read_text().split()[0] for lease in files if _LEASE.fullmatch(lease.name)]


def cni_results(network: str, containers: Collection[str]) -> list[Path]:
    """Return what libcni noted about sandboxes of the network, in a directory that all networks share."""
    notes = [CNI_RESULTS / f"cni-loopback-{container}-lo" for container in containers]
    return notes + [CNI_RESULTS / f"{network}-{container}-eth0" for container in containers]


def bandwidth_links(network: str, containers: Iterable[str]) -> list[str]:
    """Return the interfaces that the bandwidth plugin made for sandboxes of the network; their names are a hash."""
    ours = {f"bwp{hashlib.sha512((network + container).encode()).hexdigest()[:12]}" for container in containers}
    return [name for name in links.names("bwp") if name in ours]


def remove_empty(directories: Iterable[Path]) -> None:
    """Remove directories that hold nothing any more; others use the rest."""
    for directory in directories:
        with suppress(OSError):
            directory.rmdir()

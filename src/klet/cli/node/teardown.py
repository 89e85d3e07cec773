"""Takes a node off the machine and leaves nothing: no pod, daemon, mount, cgroup, interface or firewall rule.

It works from what it finds, not from what should be there: daemons may have been killed, a start may have been cut
short, and a second `klet down` finds nothing to do.
"""

import asyncio
import contextlib
import hashlib
import re
import signal
from collections.abc import Collection, Iterable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.cli.node import links
from klet.cli.node.daemons import NodeDaemons
from klet.cli.node.host_ledger import HostBefore, HostLedger
from klet.cli.node.iptables import SHARED_CHAINS, container_chains, parse_save, plan_cleanup
from klet.cli.node.machine import COMMAND_DEADLINE, IPTABLES_SAVE, SYSCTL, which
from klet.cli.node.node import LocalNode
from klet.cli.node.pod_removal import remove_pods
from klet.cli.node.preparation import is_of_this_boot
from klet.cli.node.processes import processes_with_argument, send_signal, wait_for_exit
from klet.cli.progress import CommandProgress
from klet.cri.client import connect
from klet.cri.errors import CriError
from klet.host.cgroups.discover import find_hierarchy
from klet.host.cgroups.hierarchy import Hierarchy
from klet.host.cgroups.layout import CgroupMode, detect_layout
from klet.host.cgroups.manager import CgroupManager, NoUnits
from klet.host.cgroups.metrics import register_cgroups
from klet.host.cgroups.names import parse_cgroupfs
from klet.host.cgroups.v2 import V2Hierarchy
from klet.host.files import remove_content, remove_file, remove_tree, write_text
from klet.host.filesystems import is_mount_root
from klet.host.mountinfo import is_bound_on_itself
from klet.host.mounts import list_mounts, unmount, unmount_tree
from klet.host.processes import run_process
from klet.metrics import MetricRegistry

SHIM = "containerd-shim-runc-v2"
TASKS = "io.containerd.runtime.v2.task"
SANDBOXES = "io.containerd.grpc.v1.cri/sandboxes"
SHIM_DEADLINE = 5
CNI_RESULTS = Path("/var/lib/cni/results")
_LEASE = re.compile(r"[0-9a-f]*[.:][0-9a-f.:]*")
CALL_DEADLINE = timedelta(seconds=30)
RUNTIME_DEADLINE = timedelta(seconds=15)
POLL = timedelta(milliseconds=50)
SHARED_DIRECTORIES = (Path("/run/containerd/s"), Path("/run/containerd"), CNI_RESULTS, CNI_RESULTS.parent)
"""Made by containerd and by CNI whatever their configuration says; they stay if anyone else uses them."""


class Teardown:
    """The steps of one `klet down`."""

    def __init__(
        self,
        *,
        node: LocalNode,
        daemons: NodeDaemons,
        ledger: HostLedger,
        progress: CommandProgress,
        clock: Clock,
    ) -> None:
        self._node = node
        self._daemons = daemons
        self._ledger = ledger
        self._progress = progress
        self._clock = clock
        self._sandboxes: set[str] = set()

    async def run(self) -> None:
        paths = self._node.paths
        self._sandboxes.update(known_sandboxes(paths.containerd_state, paths.cni_data / self._node.names.network))
        self._sandboxes.update(recorded_containers(CNI_RESULTS, self._node.names.network))
        if not is_of_this_boot(self._node):
            # By now others may have the pids, and even the start times.
            remove_tree(paths.pids)
        with self._progress.step("Pods") as step:
            stopped = await self._pods()
            step.note(f"{stopped} stopped" if stopped else "none")
        with self._progress.step("Daemons"):
            await self._daemons.stop_all()
        with self._progress.step("Leftovers"):
            await self._processes_and_cgroups()
            self._mounts()
            await self._network()
            self._files()

    async def _pods(self) -> int:
        """Stop the pods with their grace periods: the agent does when their manifests go, the runtime does the rest."""
        paths = self._node.paths
        if paths.manifests.is_dir():
            remove_content(paths.manifests)
        remove_file(paths.applied)
        if not await self._runtime_answers():
            return 0
        async with connect(runtime_endpoint=str(paths.containerd_socket), timeout=CALL_DEADLINE) as cri:
            sandboxes = await remove_pods(
                cri,
                agent_lives=self._daemons.agent_lives,
                stop_agent=self._daemons.stop_agent,
                progress=self._progress,
                clock=self._clock,
            )
        self._sandboxes.update(sandbox.id for sandbox in sandboxes)
        return len({sandbox.metadata.uid for sandbox in sandboxes})

    async def _runtime_answers(self) -> bool:
        """Return whether containerd is there to stop pods; one that was killed is started once more for it."""
        if not await self._daemons.ensure_runtime():
            return False
        began = self._clock.monotonic()
        while self._clock.monotonic() - began < RUNTIME_DEADLINE.total_seconds():
            with contextlib.suppress(CriError):
                async with connect(runtime_endpoint=str(self._node.paths.containerd_socket), timeout=CALL_DEADLINE):
                    return True
            await self._clock.sleep(POLL)
        return False

    async def _processes_and_cgroups(self) -> None:
        """End what survived containerd: processes in the node's cgroups, and the shims that would look after them."""
        name = parse_cgroupfs(self._node.names.cgroup)
        threads = Threads(limit=2)
        try:
            managers = [
                CgroupManager(
                    hierarchy=hierarchy,
                    units=NoUnits(),
                    threads=threads,
                    clock=self._clock,
                    durations=register_cgroups(MetricRegistry()),
                )
                for hierarchy in _hierarchies()
            ]
            for cgroups in managers:
                await cgroups.kill_all(name)
            await kill_shims(str(self._node.paths.containerd_socket))
            for cgroups in managers:
                await cgroups.destroy(name)
        finally:
            threads.close()

    def _mounts(self) -> None:
        """Unmount what the daemons mounted. A disk that the user mounted for the node's files is not theirs."""
        paths = self._node.paths
        for directory in (paths.run, paths.kubelet_root, paths.containerd_root):
            for entry in directory.iterdir() if directory.is_dir() else ():
                unmount_tree(entry, lazy=True)
        root = paths.kubelet_root.resolve()
        while is_bound_on_itself(list_mounts(), str(root)):  # by the agent, so that mounts below it are shared
            unmount(root, lazy=True)

    async def _network(self) -> None:
        names = self._node.names
        for link in (*links.members(names.bridge), *bandwidth_links(names.network, self._sandboxes), names.bridge):
            links.delete(link)
        before = self._ledger.leave(names.network)
        for save in IPTABLES_SAVE:
            await self._firewall(save, before)
        if before is not None:
            for switch, value in before.switches.items():
                if value == "0":
                    write_text(SYSCTL / switch, "0")
        self._ledger.close()

    async def _firewall(self, save: str, before: HostBefore | None) -> None:
        save_program, restore_program = which(save), which(save.replace("-save", "-restore"))
        if save_program is None or restore_program is None:
            return
        saved = await run_process([str(save_program)], timeout=COMMAND_DEADLINE)
        keep = frozenset(SHARED_CHAINS if before is None else before.chains.get(save, ()))
        network = self._node.names.network
        plan = plan_cleanup(
            parse_save(saved.stdout.decode(errors="replace")),
            network=network,
            keep=keep,
            own=container_chains(network, self._sandboxes),
        )
        if plan:
            restored = await run_process(
                [str(restore_program), "--noflush"], timeout=COMMAND_DEADLINE, stdin=plan.encode()
            )
            restored.check()

    def _files(self) -> None:
        paths = self._node.paths
        results = cni_results(self._node.names.network, self._sandboxes)
        for leftover in (*shim_sockets(paths.containerd_state), *results):
            remove_file(leftover)
        remove_file(paths.agent_socket)
        remove_tree(paths.run)
        remove_empty(SHARED_DIRECTORIES)


def purge(node: LocalNode) -> None:
    """Remove the state directory; nothing of the node runs or is mounted any more. A mount point is only emptied."""
    state = node.paths.state
    if not state.exists() or not is_mount_root(state):
        remove_tree(state)
        return
    for entry in state.iterdir():
        remove_tree(entry)


def _hierarchies() -> list[Hierarchy]:
    """Return all that hold cgroups of pods. On a hybrid host runc also makes some in version 2."""
    layout = detect_layout(list_mounts())
    if layout is None:
        return []
    hierarchies: list[Hierarchy] = [find_hierarchy()]
    if layout.mode is CgroupMode.HYBRID and layout.unified is not None:
        hierarchies.append(V2Hierarchy(root=layout.unified, hugepage_sizes=()))
    return hierarchies


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


def recorded_containers(results: Path, network: str) -> list[str]:
    """Return the sandboxes of the network that libcni has notes about, also those of an earlier boot."""
    pattern = re.compile(rf"{re.escape(network)}-([0-9a-f]{{64}})-eth0")
    files = results.iterdir() if results.is_dir() else ()
    return [found[1] for file in files if (found := pattern.fullmatch(file.name))]


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

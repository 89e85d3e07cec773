"""`klet down`: takes the node off the machine."""

import asyncio
from pathlib import Path

from klet.aio.clock import Clock
from klet.cli.install.installed import find_daemons
from klet.cli.install.machine_files import MachineFiles
from klet.cli.install.systemd import Systemd
from klet.cli.install.units import node_units
from klet.cli.keepers import is_installed
from klet.cli.node.host_ledger import HostLedger
from klet.cli.node.node import find_node, locked, make_state_directory, require_root
from klet.cli.node.teardown import Teardown, purge
from klet.cli.progress import CommandProgress


def run_down(state: Path, *, should_purge: bool, files: MachineFiles, progress: CommandProgress, clock: Clock) -> int:
    require_root("down")
    node = find_node(state)
    if not node.paths.state.exists() and not node.paths.run.exists():
        progress.show(f"There is no node at {node.paths.state}.")
        return 0
    # The lock is the directory, and after a --purge that was cut short it may be the only thing that is missing.
    make_state_directory(node)
    with locked(node):
        daemons = find_daemons(node, files=files, systemd=Systemd(root=files.root), clock=clock)
        teardown = Teardown(node=node, daemons=daemons, ledger=HostLedger(), progress=progress, clock=clock)
        asyncio.run(teardown.run())
        if should_purge:
            with progress.step("State"):
                purge(node)
    if is_installed(node, files):
        units = node_units(node.names)
        place = "" if node.is_default else f" --state-dir {node.paths.state}"
        progress.show(
            f"The node is installed: it starts again, without pods, at the next boot or with `systemctl start "
            f"{units.agent}`. `klet uninstall{place}` removes it; `systemctl disable {' '.join(units.all)}` only keeps "
            "it from starting at boot."
        )
    return 0

"""`klet down`: takes the node off the machine."""

import asyncio
from pathlib import Path

from klet.aio.clock import Clock
from klet.cli.node.host_ledger import HostLedger
from klet.cli.node.node import find_node, locked, make_state_directory, require_root
from klet.cli.node.teardown import Teardown, purge
from klet.cli.progress import CommandProgress


def run_down(state: Path, *, should_purge: bool, progress: CommandProgress, clock: Clock) -> int:
    require_root("down")
    node = find_node(state)
    if not node.paths.state.exists() and not node.paths.run.exists():
        progress.show(f"There is no node at {node.paths.state}.")
        return 0
    # The lock is the directory, and after a --purge that was cut short it may be the only thing that is missing.
    make_state_directory(node)
    with locked(node):
        asyncio.run(Teardown(node=node, ledger=HostLedger(), progress=progress, clock=clock).run())
        if should_purge:
            with progress.step("State"):
                purge(node)
    return 0

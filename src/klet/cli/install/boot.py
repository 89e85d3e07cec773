"""What the units of a node run besides containerd and the agent: `klet boot prepare` before containerd, `images` after.

No step takes the node's lock: a command that starts the units holds it.
"""

from enum import StrEnum
from functools import partial

from klet.aio.clock import Clock
from klet.cli.install.systemd import Systemd
from klet.cli.install.units import node_units
from klet.cli.node.daemons import AGENT, CONTAINERD, SupervisedDaemons, daemon
from klet.cli.node.host_ledger import HostLedger
from klet.cli.node.machine import locate_programs
from klet.cli.node.node import LocalNode, make_state_directory
from klet.cli.node.preparation import NodePreparation, forget_earlier_boot
from klet.cli.node.runtime_ready import RuntimeLog, until_runtime_ready
from klet.cli.node.supervisor import OWN_NAME
from klet.cli.progress import CommandProgress
from klet.host.files import remove_file

_LOG_LINES = 400


class BootStep(StrEnum):
    """A command of the unit of containerd."""

    PREPARE = "prepare"
    IMAGES = "images"


async def run_step(
    step: BootStep, node: LocalNode, *, systemd: Systemd, progress: CommandProgress, clock: Clock
) -> None:
    """Run one step; raises KletError, and systemd starts the unit again."""
    preparation = NodePreparation(node=node, ledger=HostLedger(), progress=progress, clock=clock)
    match step:
        case BootStep.PREPARE:
            make_state_directory(node)
            forget_earlier_boot(node)
            await _take_over(node, progress=progress, clock=clock)
            await preparation.configure(locate_programs())
        case BootStep.IMAGES:
            unit = node_units(node.names).containerd
            log = RuntimeLog(f"journalctl -u {unit}", partial(systemd.journal, unit, lines=_LOG_LINES))
            progress.show(f"{await until_runtime_ready(node, clock=clock, log=log)} is ready")
            await preparation.import_images(locate_programs())


async def _take_over(node: LocalNode, *, progress: CommandProgress, clock: Clock) -> None:
    """End the daemons that `klet up` started; their pods go on and are adopted."""
    if any(daemon(node, name) for name in (OWN_NAME, AGENT, CONTAINERD)):
        with progress.step("Taking over from `klet up`"):
            await SupervisedDaemons(node=node, clock=clock).stop_all()
    remove_file(node.paths.services)

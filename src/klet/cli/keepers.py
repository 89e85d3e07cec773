"""Who starts a node's agent again when it has ended, and what that means for who asks it; quick to import."""

from typing import Final

from klet.cli.install.machine_files import MachineFiles
from klet.cli.install.units import node_units
from klet.cli.node.node import LocalNode

SUPERVISED: Final = "the node is up and its supervisor starts the agent again: ask again in a few seconds"


def is_installed(node: LocalNode, files: MachineFiles) -> bool:
    """Return whether systemd starts the node."""
    return files.is_installed(node_units(node.names))


def is_kept(node: LocalNode, files: MachineFiles) -> bool:
    """Return whether something keeps the node running: a supervisor, or systemd until the node is taken down."""
    # Imported here: processes need more than `klet ps`, which asks only when no agent answers.
    from klet.cli.node.processes import read_pid_file  # noqa: PLC0415

    if read_pid_file(node.paths.supervisor_pid) is not None:
        return True
    return node.paths.boot.exists() and is_installed(node, files)


def advise(node: LocalNode, files: MachineFiles) -> str | None:
    """Return what to do when no agent answers; None if nothing would start it again."""
    if is_installed(node, files):
        unit = node_units(node.names).agent
        return f"the node is installed: `systemctl status {unit}` and `journalctl -u {unit}` show why"
    return SUPERVISED if is_kept(node, files) else None

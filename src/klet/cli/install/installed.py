"""The daemons of an installed node: its units, started and stopped through systemd."""

from contextlib import suppress

from klet.aio.clock import Clock
from klet.cli.install.machine_files import MachineFiles
from klet.cli.install.systemd import Systemd, UnitFailed
from klet.cli.install.units import NodeUnits, node_units
from klet.cli.node.daemons import NodeDaemons, SupervisedDaemons
from klet.cli.node.node import LocalNode
from klet.cli.node.processes import ProcessIdentity, identify, is_alive


class InstalledDaemons:
    """Containerd and agent as units. Daemons of a `klet up` from before the installation are looked after too."""

    def __init__(self, *, node: LocalNode, units: NodeUnits, systemd: Systemd, clock: Clock) -> None:
        self._containerd_state = node.paths.containerd_state
        self._units = units
        self._systemd = systemd
        self._supervised = SupervisedDaemons(node=node, clock=clock)
        self._agent: ProcessIdentity | None = None

    async def ensure_runtime(self) -> bool:
        states = await self._systemd.show(self._units.all)
        pid = states[self._units.agent].main_pid
        self._agent = identify(pid) if pid else None
        if states[self._units.containerd].is_active:
            return True
        if not self._containerd_state.is_dir():
            return False
        with suppress(UnitFailed):
            await self._systemd.start([self._units.containerd])
        return True

    def agent_lives(self) -> bool:
        return (self._agent is not None and is_alive(self._agent)) or self._supervised.agent_lives()

    async def stop_agent(self) -> None:
        await self._stop([self._units.agent])
        await self._supervised.stop_agent()

    async def stop_all(self) -> None:
        await self._stop([self._units.agent, self._units.containerd])
        await self._supervised.stop_all()

    async def start(self) -> int:
        """Start what does not run; return the process of the agent. Raises UnitFailed with the unit's journal."""
        await self._systemd.start(self._units.all)
        return (await self._systemd.show([self._units.agent]))[self._units.agent].main_pid

    async def _stop(self, units: list[str]) -> None:
        states = await self._systemd.show(units)
        # One that is between two starts has to be stopped too, or it comes back.
        await self._systemd.stop([unit for unit in units if not states[unit].is_idle])


def find_daemons(node: LocalNode, *, files: MachineFiles, systemd: Systemd, clock: Clock) -> NodeDaemons:
    """Return what runs the node: its units if it is installed, else its supervisor."""
    installed = find_installed(node, files=files, systemd=systemd, clock=clock)
    return SupervisedDaemons(node=node, clock=clock) if installed is None else installed


def find_installed(node: LocalNode, *, files: MachineFiles, systemd: Systemd, clock: Clock) -> InstalledDaemons | None:
    units = node_units(node.names)
    if not files.is_installed(units):
        return None
    return InstalledDaemons(node=node, units=units, systemd=systemd, clock=clock)

"""`klet install` and `klet uninstall` of a whole node: a private containerd, and the agent that uses it."""

import asyncio
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Final

from msgspec import Struct

from klet.aio.clock import Clock
from klet.api.klet_v1 import InstallReport
from klet.cli.client import AgentClient, AgentError, AgentUnavailable
from klet.cli.install.installed import InstalledDaemons
from klet.cli.install.installer import Installer, Observed
from klet.cli.install.machine_files import MachineFiles
from klet.cli.install.marks import seal
from klet.cli.install.plan import InstallPlan, UninstallPlan, WantedFile, WantedUnit, plan_install, plan_uninstall
from klet.cli.install.reports import InstallReporter
from klet.cli.install.systemd import Systemd, UnitFailed
from klet.cli.install.units import (
    UnitSettings,
    build_agent_unit,
    build_containerd_unit,
    node_units,
    read_revision,
)
from klet.cli.node.daemons import CONTAINERD, agent_flags, containerd_service
from klet.cli.node.host_ledger import HostLedger
from klet.cli.node.machine import which
from klet.cli.node.node import LocalNode, NodeError, locked, make_state_directory
from klet.cli.node.packages import SYSTEM_PATH
from klet.cli.node.preparation import NodePreparation
from klet.cli.node.teardown import Teardown, purge
from klet.cli.progress import CommandProgress
from klet.errors import KletError
from klet.version import __version__

READY_DEADLINE: Final = timedelta(minutes=3)
READY_POLL: Final = timedelta(milliseconds=200)
DEFAULT_CONTAINERD: Final = Path("/usr/bin/containerd")
"""Where the package that is to be installed puts it."""


class NodeInstallOptions(Struct, frozen=True, kw_only=True):
    """What the user asked for."""

    should_start: bool = True
    may_install: bool = True
    is_forced: bool = False
    is_dry_run: bool = False


class NodeForm:
    """The units of one node."""

    def __init__(
        self,
        *,
        node: LocalNode,
        program: tuple[str, ...],
        files: MachineFiles,
        systemd: Systemd,
        progress: CommandProgress,
        clock: Clock,
    ) -> None:
        self._node = node
        self._program = program
        self._units = node_units(node.names)
        self._paths = files.unit_paths(self._units)
        self._systemd = systemd
        self._installer = Installer(systemd=systemd, progress=progress)
        self._reporter = InstallReporter(form="node", state=node.paths.state, units=self._units.all, systemd=systemd)
        self._progress = progress
        self._clock = clock

    async def install(self, options: NodeInstallOptions, *, show: Callable[[WantedFile], None]) -> InstallReport:
        """Write and start the units; a unit that does not start is an error of the report."""
        plan = self._plan(options, await self._look())
        if options.is_dry_run:
            for file in plan.write:
                show(file)
            return await self._reporter.installed(plan, is_dry_run=True)
        make_state_directory(self._node)
        with locked(self._node):
            preparation = NodePreparation(
                node=self._node, ledger=HostLedger(), progress=self._progress, clock=self._clock
            )
            programs = await preparation.find_packages(may_install=options.may_install)
            await preparation.configure(programs)
            # Again: the configuration is in the revisions, and another command may have been at work until now.
            plan = self._plan(options, await self._look())
            await self._installer.write(plan)
            if not options.should_start:
                return await self._reporter.installed(plan)
            try:
                await self._installer.run(plan, self._units.all)
                with self._progress.step("Node") as step:
                    step.note(await self._until_ready())
            except UnitFailed as error:
                return await self._reporter.installed(plan, errors=(str(error),))
        return await self._reporter.installed(plan, is_ready=True)

    async def uninstall(self, *, should_purge: bool, is_forced: bool, is_dry_run: bool) -> InstallReport:
        """Stop the node, and remove the units; data stays unless it is to be purged."""
        plan = await self._uninstall_plan(is_forced=is_forced)
        if plan.is_nothing or is_dry_run:
            return await self._reporter.uninstalled(plan, is_dry_run=is_dry_run)
        had_state = self._node.paths.state.exists()
        make_state_directory(self._node)
        with locked(self._node):
            plan = await self._uninstall_plan(is_forced=is_forced)
            daemons = InstalledDaemons(node=self._node, units=self._units, systemd=self._systemd, clock=self._clock)
            teardown = Teardown(
                node=self._node, daemons=daemons, ledger=HostLedger(), progress=self._progress, clock=self._clock
            )
            await teardown.run()
            await self._installer.remove(plan, self._units.all)
            if should_purge or not had_state:
                with self._progress.step("State"):
                    purge(self._node)
        return await self._reporter.uninstalled(plan, is_dry_run=False)

    async def _look(self) -> Observed:
        return await self._installer.look(self._paths, self._units.all)

    def _plan(self, options: NodeInstallOptions, observed: Observed) -> InstallPlan:
        """Return what to do; raises NodeError if something is in the way."""
        paths = self._node.paths
        settings = self._settings()
        containerd = build_containerd_unit(settings, configuration=_texts(paths.containerd_configuration))
        agent = build_agent_unit(
            settings,
            configuration=(__version__, *_texts(paths.kubelet_configuration, paths.klet_configuration)),
        )
        texts = dict(zip(self._units.all, (containerd, agent), strict=True))
        plan = plan_install(
            [WantedFile(path, seal(texts[path.name])) for path in self._paths],
            [WantedUnit(name, read_revision(text)) for name, text in texts.items()],
            found=observed.files,
            states=observed.units,
            should_start=options.should_start,
            is_forced=options.is_forced,
        )
        if plan.problems:
            raise NodeError("; ".join(plan.problems))
        return plan

    def _settings(self) -> UnitSettings:
        containerd = which(CONTAINERD) or DEFAULT_CONTAINERD
        return UnitSettings(
            state=self._node.paths.state,
            units=self._units,
            program=self._program,
            containerd=containerd_service(self._node, program=str(containerd), revision="").argv,
            agent=agent_flags(self._node),
            search_path=search_path(containerd),
        )

    async def _until_ready(self) -> str:
        """Wait until the agent reports that the node is Ready. Raises UnitFailed with the agent's journal."""
        client = AgentClient(socket_path=self._node.paths.agent_socket, advise=lambda: "it is being started")
        began, problem = self._clock.monotonic(), "it has not reported yet"
        while self._clock.monotonic() - began < READY_DEADLINE.total_seconds():
            try:
                explained = await asyncio.to_thread(client.explain_node)
                if explained.ready:
                    return f"{explained.node.name} is Ready"
                problem = explained.summary
            except (AgentUnavailable, AgentError) as error:
                problem = str(error)
            await self._clock.sleep(READY_POLL)
        raise UnitFailed(self._systemd.explain_failure(self._units.agent, f"the node is not Ready: {problem}"))

    async def _uninstall_plan(self, *, is_forced: bool) -> UninstallPlan:
        observed = await self._look()
        return plan_uninstall(
            self._paths, self._units.all, found=observed.files, states=observed.units, is_forced=is_forced
        )


def search_path(containerd: Path) -> str:
    """Return where the daemons look for programs: the system's directories, and that of a containerd elsewhere."""
    place = str(containerd.parent)
    return SYSTEM_PATH if place in SYSTEM_PATH.split(os.pathsep) else f"{SYSTEM_PATH}{os.pathsep}{place}"


def _texts(*paths: Path) -> tuple[str, ...]:
    """Return what the files hold; a file that is not there yet is empty."""
    return tuple(_text(path) for path in paths)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise KletError(f"cannot read {path}: {error.strerror}") from error

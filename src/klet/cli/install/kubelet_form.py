"""`klet install --kubelet`: klet as the node agent of a cluster, where upstream's packages have the kubelet."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

from msgspec import Struct

from klet.aio.clock import Clock
from klet.api.klet_v1 import InstallReport
from klet.cli.client import AgentClient
from klet.cli.install.installer import Installer, is_same_file, why_not_kept
from klet.cli.install.machine_files import MachineFiles
from klet.cli.install.marks import FileState, find_file, seal
from klet.cli.install.plan import InstallPlan, UninstallPlan, WantedFile, WantedUnit, plan_install, plan_uninstall
from klet.cli.install.reports import InstallReporter
from klet.cli.install.systemd import Systemd, UnitFailed
from klet.cli.install.units import (
    KUBELET_UNIT,
    build_kubeadm_drop_in,
    build_kubelet_program,
    build_kubelet_unit,
    read_revision,
)
from klet.cli.node.node import NodeError, locked_directory
from klet.cli.progress import CommandProgress
from klet.config.klet import DEFAULT_SOCKET
from klet.host.errors import file_error
from klet.host.files import make_directories
from klet.version import __version__

HEALTHY_DEADLINE: Final = timedelta(minutes=2)
HEALTHY_POLL: Final = timedelta(milliseconds=200)
DEFAULT_ROOT: Final = Path("/var/lib/kubelet")
_UNITS: Final = (KUBELET_UNIT,)


class KubeletInstallOptions(Struct, frozen=True, kw_only=True):
    """What the user asked for."""

    should_start: bool = True
    may_replace: bool = False
    is_forced: bool = False
    is_dry_run: bool = False


class KubeletForm:
    """The program `kubelet` and its unit."""

    def __init__(
        self,
        *,
        program: tuple[str, ...],
        files: MachineFiles,
        systemd: Systemd,
        progress: CommandProgress,
        clock: Clock,
    ) -> None:
        self._program = program
        self._files = files
        self._systemd = systemd
        self._installer = Installer(systemd=systemd, progress=progress)
        self._reporter = InstallReporter(form="kubelet", state=DEFAULT_ROOT, units=_UNITS, systemd=systemd)
        self._progress = progress
        self._clock = clock

    async def install(self, options: KubeletInstallOptions, *, show: Callable[[WantedFile], None]) -> InstallReport:
        """Put klet in the kubelet's place; it is started if the node has joined a cluster."""
        has_joined = self._files.kubelet_configuration.exists()
        should_start = options.should_start and has_joined
        if options.is_dry_run:
            plan = await self._plan(options, should_start=should_start)
            for file in plan.write:
                show(file)
            return await self._reporter.installed(plan, is_dry_run=True)
        with self._locked():
            plan = await self._plan(options, should_start=should_start)
            await self._installer.write(plan)
            return await self._run(plan, should_start=should_start)

    async def _plan(self, options: KubeletInstallOptions, *, should_start: bool) -> InstallPlan:
        """Return what to do; raises NodeError if something is in the way."""
        program, *units = self._wanted()
        observed = await self._installer.look([file.path for file in (program, *units)], _UNITS)
        plan = plan_install(
            [program, *units],
            [WantedUnit(KUBELET_UNIT, read_revision(program.text))],
            found=observed.files,
            states=observed.units,
            should_start=should_start,
            may_replace=options.may_replace,
            is_forced=options.is_forced,
        )
        lost = [problem for path, aside in plan.aside if (problem := why_not_kept(path, aside))]
        if problems := (*plan.problems, *lost):
            raise NodeError("; ".join(problems))
        return plan

    async def _run(self, plan: InstallPlan, *, should_start: bool) -> InstallReport:
        warnings = self._warnings(plan)
        if not should_start:
            return await self._reporter.installed(plan, warnings=warnings)
        try:
            await self._installer.run(plan, _UNITS)
            with self._progress.step("Agent") as step:
                step.note(f"runs as process {await self._until_healthy()}")
        except UnitFailed as error:
            return await self._reporter.installed(plan, warnings=warnings, errors=(str(error),))
        return await self._reporter.installed(plan, warnings=warnings, is_ready=True)

    async def uninstall(self, *, is_forced: bool, is_dry_run: bool) -> InstallReport:
        """Remove what klet wrote, and put back what was there before. Pods keep running."""
        if is_dry_run:
            return await self._reporter.uninstalled(await self._uninstall_plan(is_forced=is_forced), is_dry_run=True)
        with self._locked():
            plan = await self._uninstall_plan(is_forced=is_forced)
            if not plan.is_nothing:
                await self._installer.remove(plan, _UNITS)
        return await self._reporter.uninstalled(plan, is_dry_run=False)

    async def _uninstall_plan(self, *, is_forced: bool) -> UninstallPlan:
        program, aside = self._files.kubelet_program, self._files.kubelet_aside
        paths = (program, self._files.kubelet_unit, self._files.kubeadm_drop_in)
        observed = await self._installer.look(paths, _UNITS)
        return plan_uninstall(
            paths,
            _UNITS,
            found=observed.files,
            states=observed.units,
            aside={program: aside} if find_file(aside).state is not FileState.ABSENT else None,
            halfway={program} if is_same_file(program, aside) else (),
            is_forced=is_forced,
        )

    def _locked(self) -> contextlib.AbstractContextManager[None]:
        """Hold the kubelet's place: what two commands find at once would be changed by the other."""
        program = self._files.kubelet_program
        try:
            make_directories(program.parent, mode=0o755)
        except OSError as error:
            raise file_error("make", program.parent, error) from error
        return locked_directory(program.parent, shown=program)

    def _wanted(self) -> list[WantedFile]:
        """Return the files; a unit that a package or the administrator brought is used as it is."""
        files = self._files
        all_units = (
            WantedFile(files.kubelet_unit, seal(build_kubelet_unit())),
            WantedFile(files.kubeadm_drop_in, seal(build_kubeadm_drop_in())),
        )
        units = [unit for unit in all_units if self._is_needed(unit.path)]
        text = build_kubelet_program(self._program, configuration=(__version__, *(unit.text for unit in units)))
        program = WantedFile(files.kubelet_program, seal(text), mode=0o755, aside=files.kubelet_aside)
        return [program, *units]

    def _is_needed(self, unit: Path) -> bool:
        return self._files.packaged(unit) is None and find_file(unit).state is not FileState.FOREIGN

    def _warnings(self, plan: InstallPlan) -> tuple[str, ...]:
        if not plan.aside:
            return ()
        upgrade = "an upgrade of the package that brought the kubelet would put its own back"
        return (f"{upgrade}: `apt-mark hold kubelet`, or run this command again afterwards",)

    async def _until_healthy(self) -> int:
        """Wait until the agent of the unit answers; return its process. Raises UnitFailed with the unit's journal."""
        began = self._clock.monotonic()
        while self._clock.monotonic() - began < HEALTHY_DEADLINE.total_seconds():
            pid = (await self._systemd.show(_UNITS))[KUBELET_UNIT].main_pid
            if pid and await asyncio.to_thread(self._is_healthy, pid):
                return pid
            await self._clock.sleep(HEALTHY_POLL)
        raise UnitFailed(self._systemd.explain_failure(KUBELET_UNIT, "the agent does not answer"))

    def _is_healthy(self, pid: int) -> bool:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
            return AgentClient(socket_path=agent_socket(words), advise=str).is_healthy()
        return False


def agent_socket(words: Sequence[str]) -> Path:
    """Return where the agent of a command line has its own API."""
    values: dict[str, str] = {}
    for index, word in enumerate(words):
        flag, equals, value = word.partition("=")
        name = flag.lstrip("-")
        if flag.startswith("-") and name in {"root-dir", "klet-socket"}:
            values[name] = value if equals else "".join(words[index + 1 : index + 2])
    socket = values.get("klet-socket")
    return Path(socket) if socket else Path(values.get("root-dir") or DEFAULT_ROOT) / DEFAULT_SOCKET

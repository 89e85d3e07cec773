"""Builds what `klet install` and `klet uninstall` print: what was done, and how systemd has the units now."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from klet.api.klet_v1 import FileChange, InstallReport, UnitChange
from klet.cli.install.plan import InstallPlan, UninstallPlan
from klet.cli.install.systemd import Systemd, UnitFailed, UnitState


class InstallReporter:
    """Reports on the units of one form."""

    def __init__(self, *, form: str, state: Path, units: Sequence[str], systemd: Systemd) -> None:
        self._form = form
        self._state = state
        self._units = units
        self._systemd = systemd

    async def installed(
        self,
        plan: InstallPlan,
        *,
        is_dry_run: bool = False,
        is_ready: bool = False,
        errors: tuple[str, ...] = (),
        warnings: tuple[str, ...] = (),
    ) -> InstallReport:
        """Report what a plan of `klet install` did, or would do."""
        actions = dict.fromkeys(plan.start, "started") | dict.fromkeys(plan.restart, "restarted")
        return InstallReport(
            form=self._form,
            state_dir=str(self._state),
            dry_run=is_dry_run,
            changed=not plan.is_nothing,
            installed=not is_dry_run,
            ready=is_ready,
            files=describe_install(plan),
            units=await self._unit_changes(actions),
            errors=errors,
            warnings=warnings,
        )

    async def uninstalled(self, plan: UninstallPlan, *, is_dry_run: bool) -> InstallReport:
        """Report what a plan of `klet uninstall` did, or would do."""
        actions = dict.fromkeys(plan.stop, "stopped") | dict.fromkeys(plan.restart, "restarted")
        return InstallReport(
            form=self._form,
            state_dir=str(self._state),
            dry_run=is_dry_run,
            changed=not plan.is_nothing,
            installed=bool(plan.kept) or (is_dry_run and not plan.is_nothing),
            files=describe_uninstall(plan),
            units=await self._unit_changes(actions),
            errors=tuple(f"{path} was changed by hand and is kept: --force removes it" for path in plan.kept),
        )

    async def _unit_changes(self, actions: Mapping[str, str]) -> tuple[UnitChange, ...]:
        try:
            states = {} if self._systemd.why_missing() else await self._systemd.show(self._units)
        except UnitFailed:
            states = {}
        return tuple(
            UnitChange(unit, actions.get(unit, "unchanged"), state.active, state.is_enabled)
            for unit in self._units
            for state in (states.get(unit, UnitState(name=unit)),)
        )


def describe_install(plan: InstallPlan) -> tuple[FileChange, ...]:
    return (
        *(FileChange(str(aside), "moved") for _, aside in plan.aside),
        *(FileChange(str(file.path), "written") for file in plan.write),
        *(FileChange(str(path), "unchanged") for path in plan.unchanged),
    )


def describe_uninstall(plan: UninstallPlan) -> tuple[FileChange, ...]:
    restored = {path for _, path in plan.restore}
    return (
        *(FileChange(str(path), "removed") for path in plan.remove if path not in restored),
        *(FileChange(str(path), "restored") for path in sorted(restored)),
        *(FileChange(str(path), "kept") for path in plan.kept),
    )

"""Carries out the plans of `klet install` and `klet uninstall`: files, links of systemd, units."""

import contextlib
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from klet.cli.install.marks import FoundFile, find_file
from klet.cli.install.plan import FoundUnit, InstallPlan, UninstallPlan, WantedFile
from klet.cli.install.systemd import Systemd, UnitState
from klet.cli.progress import CommandProgress
from klet.host.errors import file_error
from klet.host.files import make_directories, remove_file, sync_directory, write_atomic

_ELF: Final = b"\x7fELF"


class Observed(Struct, frozen=True):
    """What is on the machine."""

    files: Mapping[Path, FoundFile]
    units: Mapping[str, FoundUnit]


class Installer:
    """Looks at files and units, and changes them."""

    def __init__(self, *, systemd: Systemd, progress: CommandProgress) -> None:
        self._systemd = systemd
        self._progress = progress

    async def look(self, files: Sequence[Path], units: Sequence[str]) -> Observed:
        # Where systemd does not run the machine, a dry run still shows what would be written.
        is_missing = self._systemd.why_missing() is not None
        states = {} if is_missing else await self._systemd.show(units)
        return Observed(
            {path: find_file(path) for path in files},
            {unit: self._found(states.get(unit, UnitState(name=unit))) for unit in units},
        )

    async def write(self, plan: InstallPlan) -> None:
        """Write the files and have the units started at boot."""
        with self._progress.step("Units") as step:
            for path, aside in plan.aside:
                _link(path, aside)
            for file in plan.write:
                _write(file)
            if plan.must_reload:
                await self._systemd.reload()
            if plan.enable:
                await self._systemd.enable(plan.enable)
            step.note(f"wrote {', '.join(str(file.path) for file in plan.write)}" if plan.write else "unchanged")

    async def run(self, plan: InstallPlan, units: Sequence[str]) -> None:
        """Start and restart units, in their order. Raises UnitFailed."""
        for unit in units:
            if unit not in (*plan.restart, *plan.start):
                continue
            with self._progress.step(unit) as step:
                if unit in plan.restart:
                    await self._systemd.restart([unit])
                    step.note("restarted")
                else:
                    await self._systemd.start([unit])
                    step.note("started")

    async def remove(self, plan: UninstallPlan, units: Sequence[str]) -> None:
        """Take the files away. Whatever runs of the units is stopped first."""
        states = await self._systemd.show(units)
        with self._progress.step("Units") as step:
            for aside, path in plan.restore:
                _link(aside, path)
            await self._systemd.stop([unit for unit in plan.stop if not states[unit].is_idle])
            if plan.disable:
                await self._systemd.disable(plan.disable)
            restored = {path for _, path in plan.restore}
            for path in plan.remove:
                if path not in restored:
                    _remove(path)
            if plan.remove or plan.restore:
                await self._systemd.reload()
                await self._systemd.forget_failures([unit for unit in units if unit not in plan.restart])
            await self._systemd.restart(plan.restart)
            # The last step: as long as it is kept aside too, a command that was killed is finished by the next one.
            for aside, _ in plan.restore:
                remove_file(aside)
            step.note(f"removed {', '.join(str(path) for path in plan.remove)}" if plan.remove else "none removed")

    def _found(self, state: UnitState) -> FoundUnit:
        return FoundUnit(
            is_loaded=state.is_loaded,
            is_enabled=state.is_enabled,
            is_active=state.is_active,
            is_idle=state.is_idle,
            revision=self._systemd.running_revision(state),
        )


def _write(file: WantedFile) -> None:
    try:
        make_directories(file.path.parent, mode=0o755)
    except OSError as error:
        raise file_error("make", file.path.parent, error) from error
    write_atomic(file.path, file.text.encode(), mode=file.mode)


def is_same_file(path: Path, other: Path) -> bool:
    """Return whether both are names of one file, or of one link."""
    try:
        return os.path.samestat(os.lstat(path), os.lstat(other))
    except FileNotFoundError:
        return False


def why_not_kept(path: Path, aside: Path) -> str | None:
    """Return why a file cannot be kept: what is kept already would be lost.

    A program, as of a newer package, may replace it; a script may be klet's own, without the mark.
    """
    if is_same_file(path, aside) or not os.path.lexists(aside) or _is_binary(path):
        return None
    return f"{path} is not klet's, and another kubelet is kept as {aside} already: move away the one that is not needed"


def _is_binary(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(_ELF)) == _ELF
    except OSError:
        return False


def _link(path: Path, other: Path) -> None:
    """Give a file a second name, in one step. The first one stays, so that the file is never missing."""
    if is_same_file(path, other):
        return
    temporary = other.with_name(f".{other.name}.{secrets.token_hex(6)}")
    try:
        os.link(path, temporary, follow_symlinks=False)
        try:
            temporary.replace(other)
            sync_directory(other.parent)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise file_error(f"keep {path} as", other, error) from error


def _remove(path: Path) -> None:
    remove_file(path)
    directory = path.parent
    # A directory of drop-ins was made for klet's; with others in it, it stays.
    if directory.name.endswith(".service.d"):
        with contextlib.suppress(OSError):
            directory.rmdir()

"""Decides what `klet install` and `klet uninstall` do, from what is wanted and what is found; pure."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from klet.cli.install.marks import FileState, FoundFile


class WantedFile(Struct, frozen=True):
    """A file to be written; the text carries klet's mark."""

    path: Path
    text: str
    mode: int = 0o644
    aside: Path | None = None
    """Where a file that is not klet's is kept meanwhile; without it such a file is in the way."""


class WantedUnit(Struct, frozen=True):
    """A unit to be run."""

    name: str
    revision: str | None = None
    """What its process has to be started with; without it the process is restarted when a file changed."""


class FoundUnit(Struct, frozen=True, kw_only=True):
    """A unit as it is."""

    is_loaded: bool = False
    is_enabled: bool = False
    is_active: bool = False
    is_idle: bool = True
    revision: str | None = None
    """What its process was started with."""


class InstallPlan(Struct, frozen=True, kw_only=True):
    """What to do, in this order. With problems nothing is done."""

    problems: tuple[str, ...] = ()
    aside: tuple[tuple[Path, Path], ...] = ()
    """Files to keep: from where to where."""
    write: tuple[WantedFile, ...] = ()
    unchanged: tuple[Path, ...] = ()
    enable: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()
    start: tuple[str, ...] = ()

    @property
    def must_reload(self) -> bool:
        """Whether systemd may know the units as they were; a command that was killed may have written them."""
        return bool(self.write or self.restart or self.start)

    @property
    def is_nothing(self) -> bool:
        return not (self.problems or self.write or self.enable or self.restart or self.start)


class UninstallPlan(Struct, frozen=True, kw_only=True):
    """What to do, in this order."""

    restore: tuple[tuple[Path, Path], ...] = ()
    """Files that were kept aside: from where to where."""
    stop: tuple[str, ...] = ()
    disable: tuple[str, ...] = ()
    remove: tuple[Path, ...] = ()
    kept: tuple[Path, ...] = ()
    """Files that somebody changed."""
    restart: tuple[str, ...] = ()
    """Units that go on with what was put back."""

    @property
    def is_nothing(self) -> bool:
        return not (self.stop or self.disable or self.remove or self.kept or self.restore)


def plan_install(
    files: Sequence[WantedFile],
    units: Sequence[WantedUnit],
    *,
    found: Mapping[Path, FoundFile],
    states: Mapping[str, FoundUnit],
    should_start: bool,
    may_replace: bool = False,
    is_forced: bool = False,
) -> InstallPlan:
    """Compare what is wanted with what is there; only what differs is written, and only what changed is restarted."""
    problems = tuple(
        problem
        for file in files
        if (problem := _problem(file, found[file.path], may_replace=may_replace, is_forced=is_forced))
    )
    if problems:
        return InstallPlan(problems=problems)
    write = tuple(file for file in files if found[file.path].text != file.text)
    active = [unit for unit in units if states[unit.name].is_active]
    # A unit that was changed by hand may run as it was changed.
    suspect = {file.path.name for file in write if found[file.path].state is FileState.CHANGED}
    return InstallPlan(
        aside=tuple(
            (file.path, file.aside)
            for file in write
            if file.aside is not None and found[file.path].state is FileState.FOREIGN
        ),
        write=write,
        unchanged=tuple(file.path for file in files if file not in write),
        enable=tuple(unit.name for unit in units if not states[unit.name].is_enabled),
        restart=tuple(
            unit.name
            for unit in active
            if should_start and (unit.name in suspect or _is_outdated(unit, states[unit.name], is_new=bool(write)))
        ),
        start=tuple(unit.name for unit in units if should_start and unit not in active),
    )


def plan_uninstall(
    files: Sequence[Path],
    units: Sequence[str],
    *,
    found: Mapping[Path, FoundFile],
    states: Mapping[str, FoundUnit],
    aside: Mapping[Path, Path] | None = None,
    halfway: Collection[Path] = (),
    is_forced: bool = False,
) -> UninstallPlan:
    """Say what to take away: klet's own files and nothing else; units only if a file of klet's is there.

    `aside` names the originals that were kept. One that is put back takes over a unit that is not klet's: it stays
    enabled, and is restarted if it runs. `halfway` are paths where the original is already, and still kept aside too:
    a command was killed there.
    """
    ours = [path for path in files if found[path].state in {FileState.OURS, FileState.CHANGED}]
    kept = tuple(path for path in ours if found[path].state is FileState.CHANGED and not is_forced)
    remove = tuple(path for path in ours if path not in kept)
    restore = tuple(
        (source, path)
        for path, source in (aside or {}).items()
        if path in remove or path in halfway or found[path].state is FileState.ABSENT
    )
    if not ours and not restore:
        return UninstallPlan()
    gone = {path.name for path in remove}
    running = tuple(unit for unit in units if not states[unit].is_idle)
    restart = tuple(unit for unit in running if restore and unit not in gone)
    return UninstallPlan(
        stop=tuple(unit for unit in reversed(running) if unit not in restart),
        disable=tuple(unit for unit in units if states[unit].is_enabled and (unit in gone or not restore)),
        remove=remove,
        kept=kept,
        restore=restore,
        restart=restart,
    )


def _problem(file: WantedFile, found: FoundFile, *, may_replace: bool, is_forced: bool) -> str | None:
    match found.state:
        case FileState.FOREIGN if file.aside is None:
            return f"{file.path} is not klet's: move it away, or keep what it belongs to"
        case FileState.FOREIGN if not may_replace:
            return f"{file.path} is not klet's: --replace keeps it as {file.aside}, and `klet uninstall` puts it back"
        case FileState.CHANGED if not is_forced and found.text != file.text:
            is_unit = file.path.suffix == ".service"
            advice = f"; own settings belong into `systemctl edit {file.path.name}`" if is_unit else ""
            return f"{file.path} was changed by hand: --force writes it again{advice}"
    return None


def _is_outdated(unit: WantedUnit, state: FoundUnit, *, is_new: bool) -> bool:
    return is_new if unit.revision is None else state.revision != unit.revision

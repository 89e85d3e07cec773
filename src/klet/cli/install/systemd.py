"""The port to systemd: its programs `systemctl` and `journalctl`, called with deadlines.

SystemdMissing     the machine was not started by systemd
UnitFailed         systemctl refused, or a unit did not start; with the end of the unit's journal
"""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

from msgspec import Struct

from klet.cli.install.units import REVISION
from klet.cli.node.node import NodeError
from klet.cli.node.packages import SYSTEM_PATH
from klet.host.processes import Completed, run_process

ASK_DEADLINE: Final = timedelta(seconds=30)
START_DEADLINE: Final = timedelta(minutes=12)
"""More than the units have for their start, one after the other."""
JOURNAL_LINES: Final = 20
_PROPERTIES: Final = "Id,LoadState,ActiveState,SubState,UnitFileState,MainPID,Result"
_LONGEST_ENVIRONMENT: Final = 1 << 20


class SystemdMissing(NodeError):
    """The machine has no systemd that could start something at boot."""


class UnitFailed(NodeError):
    """A unit could not be started, stopped, enabled or disabled."""


class UnitState(Struct, frozen=True, kw_only=True):
    """One unit, as systemd knows it."""

    name: str
    load: str = "not-found"
    active: str = "inactive"
    sub: str = ""
    file: str = ""
    main_pid: int = 0
    result: str = ""

    @property
    def is_loaded(self) -> bool:
        return self.load == "loaded"

    @property
    def is_active(self) -> bool:
        return self.active in {"active", "reloading"}

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs and nothing will be started again."""
        return self.active in {"inactive", "failed"}

    @property
    def is_enabled(self) -> bool:
        return self.file == "enabled"


class Systemd:
    """The service manager of this machine."""

    def __init__(self, *, root: Path) -> None:
        self._root = root

    def is_booted(self) -> bool:
        """Return whether systemd runs the machine (sd_booted(3))."""
        return (self._root / "run/systemd/system").is_dir()

    def why_missing(self) -> str | None:
        if not self.is_booted():
            return f"systemd does not run this machine (there is no {self._root / 'run/systemd/system'})"
        if _find("systemctl") is None:
            return "there is no program systemctl"
        return None

    def require(self, otherwise: str) -> None:
        """Raise SystemdMissing, with what that means and what to do, unless systemd runs the machine."""
        if why := self.why_missing():
            raise SystemdMissing(f"{why}: {otherwise}")

    async def show(self, units: Sequence[str]) -> Mapping[str, UnitState]:
        answer = await self._systemctl("show", f"--property={_PROPERTIES}", "--", *units, timeout=ASK_DEADLINE)
        if answer.returncode:
            raise UnitFailed(f"systemctl show {' '.join(units)}: {_said(answer)}")
        states = parse_show(answer.stdout.decode(errors="replace"))
        return {unit: states.get(unit, UnitState(name=unit)) for unit in units}

    def running_revision(self, state: UnitState) -> str | None:
        """Return the revision that the unit's process was started with; None if there is no process."""
        if state.main_pid <= 0:
            return None
        try:
            with open(f"/proc/{state.main_pid}/environ", "rb") as file:
                words = file.read(_LONGEST_ENVIRONMENT).split(b"\0")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return None
        mark = f"{REVISION}=".encode()
        return next((word.removeprefix(mark).decode(errors="replace") for word in words if word.startswith(mark)), "")

    async def reload(self) -> None:
        await self._do("daemon-reload")

    async def enable(self, units: Sequence[str]) -> None:
        await self._do("enable", *units)

    async def disable(self, units: Sequence[str]) -> None:
        await self._do("disable", *units)

    async def start(self, units: Sequence[str]) -> None:
        """Start units one after the other, so that an error names the one that failed; one that runs is fine."""
        for unit in units:
            await self._do("start", unit)

    async def restart(self, units: Sequence[str]) -> None:
        for unit in units:
            await self._do("restart", unit)

    async def stop(self, units: Sequence[str]) -> None:
        for unit in units:
            await self._do("stop", unit)

    async def forget_failures(self, units: Sequence[str]) -> None:
        """Have systemd forget failed units whose files are gone; for one that it does not know that is an error."""
        for unit in units:
            await self._systemctl("reset-failed", unit, timeout=ASK_DEADLINE)

    def journal(self, unit: str, *, lines: int = JOURNAL_LINES) -> str:
        """Return the newest lines that a unit logged; empty if there is no journal."""
        program = _find("journalctl")
        if program is None:
            return ""
        command = [program, "--unit", unit, "--lines", str(lines), "--output=cat", "--no-pager", "--quiet"]
        try:
            answer = subprocess.run(
                command,
                check=False,
                capture_output=True,
                timeout=ASK_DEADLINE.total_seconds(),
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return answer.stdout.decode(errors="replace")

    def explain_failure(self, unit: str, problem: str) -> str:
        """Return a message about a unit, with the end of its journal."""
        ending = "\n".join(f"    {line}" for line in self.journal(unit).splitlines())
        shown = f"; its journal ends with:\n{ending}" if ending else f"; see `journalctl -u {unit}`"
        return f"{unit}: {problem}{shown}"

    async def _do(self, verb: str, *units: str) -> None:
        answer = await self._systemctl(verb, *units, timeout=START_DEADLINE)
        if answer.returncode == 0:
            return
        problem = f"systemctl {verb} ended with code {answer.returncode}: {_said(answer)}"
        raise UnitFailed(self.explain_failure(units[0], problem) if len(units) == 1 else problem)

    async def _systemctl(self, *arguments: str, timeout: timedelta) -> Completed:
        program = _find("systemctl")
        if program is None:
            raise SystemdMissing("there is no program systemctl")
        return await run_process([program, "--no-pager", "--no-ask-password", *arguments], timeout=timeout)


def parse_show(text: str) -> Mapping[str, UnitState]:
    """Read `systemctl show`: one property on each line, units with an empty line between them."""
    blocks = (
        dict(line.partition("=")[::2] for line in block.splitlines() if "=" in line) for block in text.split("\n\n")
    )
    return {block["Id"]: _state(block) for block in blocks if block.get("Id")}


def _state(block: Mapping[str, str]) -> UnitState:
    pid = block.get("MainPID", "")
    return UnitState(
        name=block["Id"],
        load=block.get("LoadState", ""),
        active=block.get("ActiveState", ""),
        sub=block.get("SubState", ""),
        file=block.get("UnitFileState", ""),
        main_pid=int(pid) if pid.isascii() and pid.isdigit() else 0,
        result=block.get("Result", ""),
    )


def _said(answer: Completed) -> str:
    return " ".join((answer.stderr or answer.stdout).decode(errors="replace").split())[-500:]


def _find(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}")

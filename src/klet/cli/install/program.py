"""Which command runs klet again after a reboot: an absolute one, without links, that needs nothing of this shell."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec import Struct

import klet

EMPTIED_AT_BOOT: Final = ("/tmp", "/run", "/dev/shm", "/var/run")  # noqa: S108 - no file is made there
CONSOLE_SCRIPT: Final = "klet"


class ProgramFacts(Struct, frozen=True, kw_only=True):
    """How this process was started."""

    argument: Path
    """The first word of its command line."""
    executable: Path
    """Its Python."""
    prefix: Path
    """The environment of its Python."""
    checkout: Path
    """Where the launcher is, if klet runs from a checkout."""


def observe_program() -> ProgramFacts:
    return ProgramFacts(
        argument=Path(sys.argv[0]).absolute(),
        executable=Path(sys.executable),
        prefix=Path(sys.prefix),
        checkout=Path(klet.__file__).resolve().parents[2],
    )


def choose_program(facts: ProgramFacts, *, is_program: Callable[[Path], bool]) -> tuple[str, ...]:
    """Return the command: the launcher of a checkout, the console script that runs, or the one beside its Python."""
    launcher = facts.checkout / "klet"
    # An editable installation in another environment has nothing to do with the launcher.
    if facts.prefix.resolve() == (facts.checkout / ".venv").resolve() and is_program(launcher):
        return (str(launcher),)
    for script in (facts.argument, facts.executable.parent / CONSOLE_SCRIPT):
        if script.name == CONSOLE_SCRIPT and is_program(script):
            return (str(script.resolve()),)
    return (str(facts.executable), "-P", "-m", "klet")


def warn_of_program(program: tuple[str, ...]) -> str | None:
    """Return why the command may be gone after a reboot; None if nothing says so."""
    place = Path(program[0])
    for directory in EMPTIED_AT_BOOT:
        if place.is_relative_to(directory):
            return f"the units call {place}, and {directory} may be emptied at boot: install klet elsewhere, as in /opt"
    return None

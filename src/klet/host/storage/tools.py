"""Tools of the machine that volumes need: found on the PATH, no shell, a deadline, bounded output.

Arguments may hold secrets (CHAP), so no error of this module shows any.
"""

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from klet.host.errors import ProcessFailed, ProcessTimeout
from klet.host.journalctl import find_program
from klet.host.processes import Completed, run_process

QUICK: Final = timedelta(minutes=1)
"""For what looks something up, or asks the kernel for one thing."""
NETWORK: Final = timedelta(minutes=5)
"""For what waits for a server: mount(8), iscsiadm. mount.nfs itself gives up after two minutes, and says why."""
WHOLE_DISK: Final = timedelta(hours=6)
"""For what may read or write all of a disk. The Go kubelet waits without end."""
_OUTPUT_LIMIT: Final = 1 << 20
# What a unit of systemd has; an agent that was started by hand may have less.
_ALWAYS: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def search_path(environment: Mapping[str, str]) -> str:
    """Return where tools are looked for: where the agent's PATH says, and where a machine has them."""
    return os.pathsep.join([*filter(None, [environment.get("PATH")]), _ALWAYS])


class HostTools:
    """Runs tools of the machine."""

    def __init__(self, *, search: str) -> None:
        self._search = search

    async def run(self, name: str, *arguments: str, timeout: timedelta = QUICK) -> Completed:
        """Run one tool, by its name or its absolute path; raises ProcessFailed if it cannot, ProcessTimeout."""
        program = name if name.startswith("/") else find_program(name, self._search)
        if program is None:
            raise ProcessFailed(f'exec: "{name}": executable file not found in $PATH', returncode=None)
        if any("\0" in argument for argument in arguments):
            raise ProcessFailed(f"cannot start {name}: an argument holds a NUL byte", returncode=None)
        # In the C locale: what it prints is read, and shown to users.
        environment = {"PATH": self._search, "LC_ALL": "C"}
        try:
            return await run_process(
                (str(program), *arguments), timeout=timeout, env=environment, cwd=None, output_limit=_OUTPUT_LIMIT
            )
        except ProcessTimeout:
            raise ProcessTimeout(f"{name} was killed: it did not end within {timeout}") from None
        except ProcessFailed as error:
            raise ProcessFailed(f"cannot start {name}: {error.__cause__}", returncode=None) from None


def said(done: Completed) -> str:
    """Return what a tool printed, errors too, as part of a message."""
    text = (done.stdout + done.stderr).decode(errors="replace")
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + " …"


def exit_text(done: Completed) -> str:
    """Return how it ended, as messages of the Go kubelet say it."""
    return f"exit status {done.returncode}" if done.returncode >= 0 else f"signal {-done.returncode}"


_LONGEST_SHOWN: Final = 2000

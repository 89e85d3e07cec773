"""An agent as a process of its own: started, ended, and what it takes of the machine."""

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

KLET = (sys.executable, "-P", "-m", "klet", "run", "--klet-leave-kernel-tunables")


class AgentProcess:
    """One program that may be killed and started again."""

    def __init__(self, *, log: Path) -> None:
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, command: Sequence[str]) -> None:
        # As when it is installed: a module is compiled once, not at each start.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        with self._log.open("ab") as log:
            # A killed benchmark cannot end what it started; the kernel does it.
            bound = ("setpriv", "--pdeathsig", "KILL", *command)
            self._process = await asyncio.create_subprocess_exec(*bound, stdout=log, stderr=log, env=environment)

    async def end(self, *, kill: bool = False) -> None:
        process, self._process = self._running, None
        if process.returncode is None:
            process.kill() if kill else process.terminate()
        await process.wait()

    def check(self) -> None:
        """Raises if it has ended by itself."""
        if self._running.returncode is not None:
            raise RuntimeError(self._log.read_text()[-4000:])

    def cpu_seconds(self) -> float:
        return _read_cpu(self._running.pid)

    def rss(self) -> float:
        """MiB."""
        return _read_rss(self._running.pid)

    def whole_rss(self) -> float:
        """MiB of the process and of its children."""
        return sum(_read_rss(pid) for pid in _find_family(self._running.pid))

    def whole_cpu_seconds(self) -> float:
        """Of the process and of its children."""
        return sum(_read_cpu(pid) for pid in _find_family(self._running.pid))

    async def cpu_share(self, seconds: float) -> float:
        """Percent of a core over some time from now."""
        cpu, wall = self.cpu_seconds(), time.perf_counter()
        await asyncio.sleep(seconds)
        return 100 * (self.cpu_seconds() - cpu) / (time.perf_counter() - wall)

    @property
    def _running(self) -> asyncio.subprocess.Process:
        if self._process is None:
            raise RuntimeError("the agent does not run")
        return self._process


def _read_cpu(pid: int) -> float:
    """Seconds."""
    fields = _read(pid, "stat").rsplit(")", 1)[-1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def _read_rss(pid: int) -> float:
    """MiB."""
    lines = _read(pid, "status").splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("VmRSS")), 0) / 1024


def _read(pid: int, name: str) -> str:
    """Empty once the process has ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _find_family(pid: int) -> list[int]:
    """A process and all its descendants."""
    found = [pid]
    for each in found:
        for children in Path(f"/proc/{each}/task").glob("*/children"):
            try:
                found += map(int, children.read_text().split())
            except (FileNotFoundError, ProcessLookupError):
                continue
    return found

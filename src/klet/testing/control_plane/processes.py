"""Processes of a control plane: started with a log file of their own, ended with their parent however it ends."""

import shutil
import signal
import socket
import subprocess
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

from klet.aio.clock import Clock
from klet.errors import KletError

LOG_SHOWN: Final = 4000
_POLL: Final = timedelta(milliseconds=20)


class DaemonFailed(KletError):
    """A program did not come up, or ended by itself; the message ends with what it said last."""


class Daemon:
    """One program that may be killed and started again with the same arguments."""

    def __init__(self, *, command: Sequence[str], log: Path, clock: Clock) -> None:
        self._command = tuple(command)
        self._log = log
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        return Path(self._command[0]).name

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def start(self) -> None:
        assert not self.is_running
        # A killed test run can not end what it started; the kernel does it.
        bound = [shutil.which("setpriv") or "setpriv", "--pdeathsig", "KILL", *self._command]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                bound, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def check(self) -> None:
        if not self.is_running:
            code = None if self._process is None else self._process.returncode
            raise DaemonFailed(f"{self.name} ended with {code}:\n{self.log[-LOG_SHOWN:]}")

    async def kill(self) -> None:
        """End it without warning."""
        await self._end(signal.SIGKILL, patience=timedelta(seconds=10))

    async def stop(self, *, patience: timedelta = timedelta(seconds=10)) -> None:
        """Ask it to end; kill it if it does not."""
        await self._end(signal.SIGTERM, patience=patience)
        await self.kill()

    async def _end(self, number: signal.Signals, *, patience: timedelta) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        give_up = self._clock.now() + patience
        while self._process.poll() is None and self._clock.now() < give_up:
            await self._clock.sleep(_POLL)


def free_port() -> int:
    """Return a port of the loopback that is free at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

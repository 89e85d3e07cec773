"""One driver of flexVolume, and finding the drivers in `volumePluginDir` (upstream: flexvolume/probe.go)."""

import logging
import os
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct

from klet.host.errors import ProcessError, file_error
from klet.host.files import is_plain_name
from klet.host.processes import Completed
from klet.volumes.errors import UncertainProgress
from klet.volumes.flex.calls import (
    FlexAnswer,
    FlexCallFailed,
    FlexCapabilities,
    FlexCommand,
    FlexNotSupported,
    read_answer,
)
from klet.volumes.names import unescape

logger = logging.getLogger(__name__)

CALL_LIMIT: Final = timedelta(minutes=10)
"""Drivers wait for their servers in a call. The Go kubelet sets no limit."""
INIT_LIMIT: Final = timedelta(seconds=30)
"""The agent waits for it at its start."""
_MOST_DRIVERS: Final = 1000


class DriverRunner(Protocol):
    """Runs programs of the machine."""

    async def run(self, name: str, *arguments: str, timeout: timedelta = CALL_LIMIT) -> Completed: ...


class FoundDriver(Struct, frozen=True):
    """The program of a driver. One that has been replaced is another one."""

    name: str
    """`vendor/driver`: that of the plugin."""
    program: str
    inode: int
    changed: int


def find_drivers(directory: Path) -> tuple[FoundDriver, ...]:
    """Return the drivers in `<directory>/<vendor>~<driver>/<driver>`; none if it is not there. It blocks."""
    try:
        names = sorted(entry.name for entry in _scan(directory))
    except OSError as error:
        raise file_error("list", directory, error) from error
    found = (_find_driver(directory, name) for name in names if not name.startswith("."))
    return tuple(driver for driver in found if driver is not None)


class FlexDriver:
    """Calls one driver. A command that it does not have is not tried again."""

    def __init__(self, *, found: FoundDriver, runner: DriverRunner) -> None:
        self.found = found
        self._runner = runner
        self._unsupported: set[FlexCommand] = set()

    async def call(self, command: FlexCommand, *arguments: str, limit: timedelta = CALL_LIMIT) -> FlexAnswer:
        """Call it and return its answer; raises FlexCallFailed, FlexNotSupported, UncertainProgress at the deadline."""
        if command in self._unsupported:
            raise FlexNotSupported("Not supported")
        try:
            done = await self._runner.run(self.found.program, command, *arguments, timeout=limit)
        except ProcessError as error:
            # It may have been done all the same: the driver was killed at its deadline.
            raise UncertainProgress(f"{command} command of {self.found.name} failed: {error}") from error
        try:
            answer = read_answer(command, done.stdout)
        except FlexNotSupported:
            self._unsupported.add(command)
            raise
        if done.returncode != 0:
            raise FlexCallFailed(
                f"{command} command of {self.found.name} said that it succeeded, and ended with exit status "
                f"{done.returncode}"
            )
        return answer

    async def init(self) -> FlexCapabilities:
        answer = await self.call(FlexCommand.INIT, limit=INIT_LIMIT)
        return answer.capabilities or FlexCapabilities()


def _scan(directory: Path) -> Iterable[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return [entry for entry, _ in zip(entries, range(_MOST_DRIVERS), strict=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _find_driver(directory: Path, name: str) -> FoundDriver | None:
    driver = unescape(name)
    base = driver.rpartition("/")[2]
    if not is_plain_name(base):
        return None
    program = directory / name / base
    try:
        status = program.stat()
    except OSError:
        return None  # it is being installed, or it is no driver
    if not program.is_file() or not os.access(program, os.X_OK):
        return None
    return FoundDriver(driver, str(program), status.st_ino, status.st_mtime_ns)

"""Processes that outlive the command that started them: known by pid and start time, so that none is mistaken.

A pid alone may belong to another process after a crash or a reboot; the start time distinguishes them.
"""

import asyncio
import contextlib
import itertools
import os
import signal
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

from msgspec import Struct

from klet.aio.clock import Clock
from klet.host.files import remove_file, write_atomic

PROC = Path("/proc")
DAEMON_MARK = "KLET_DAEMON"
"""The variable that names the pid file of a daemon."""


class ProcessIdentity(Struct, frozen=True):
    """One process for all time: its pid, and when it began in clock ticks since boot."""

    pid: int
    started: int


def identify(pid: int) -> ProcessIdentity | None:
    """Return the process with this pid; None if there is none, or only a zombie."""
    try:
        stat = (PROC / str(pid) / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name is in parentheses and may hold anything, also parentheses.
    fields = stat.rpartition(")")[2].split()
    state, started = fields[0], int(fields[19])
    return None if state in "ZX" else ProcessIdentity(pid=pid, started=started)


def is_alive(process: ProcessIdentity) -> bool:
    return identify(process.pid) == process


def write_pid_file(path: Path, process: ProcessIdentity) -> None:
    write_atomic(path, f"{process.pid} {process.started}\n".encode(), mode=0o644)


def read_pid_file(path: Path) -> ProcessIdentity | None:
    """Return the living process that the file names; None when there is no file, no such process, or another one."""
    try:
        pid, started = (int(word) for word in path.read_text().split())
    except FileNotFoundError:
        return None
    except ValueError:
        # A file cut short by a crash of the machine names no process.
        remove_file(path)
        return None
    process = ProcessIdentity(pid=pid, started=started)
    return process if is_alive(process) else None


async def wait_for_exit(process: ProcessIdentity) -> None:
    """Wait until the process has ended; it need not be our child."""
    with _pidfd(process) as descriptor:
        if descriptor is None:
            return
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_reader(descriptor, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(descriptor)


def send_signal(process: ProcessIdentity, number: signal.Signals) -> None:
    """Signal exactly this process; one that has ended is fine."""
    with _pidfd(process) as descriptor, contextlib.suppress(ProcessLookupError):
        if descriptor is not None:
            signal.pidfd_send_signal(descriptor, number)


async def stop(process: ProcessIdentity, *, grace: timedelta, clock: Clock) -> None:
    """Ask the process to end, and end it after the grace period."""
    send_signal(process, signal.SIGTERM)
    async with asyncio.TaskGroup() as group:
        killer = group.create_task(_kill_later(process, grace, clock), name="kill")
        await wait_for_exit(process)
        killer.cancel()


def processes_with_argument(option: str, value: str, *, program: str) -> list[ProcessIdentity]:
    """Return every process of that program whose command line has `option value`."""
    return [process for process, words in _command_lines() if _matches(words, option, value, program)]


def daemon_environment(pid_file: Path) -> dict[str, str]:
    """Return the environment to start a daemon with, so that it is found without its pid file."""
    return {**os.environ, DAEMON_MARK: str(pid_file)}


def unnoted_daemons(pid_file: Path, argv: Sequence[str]) -> list[ProcessIdentity]:
    """Return the processes that were started for this pid file and are not in it: their starter was killed early.

    Children inherit the environment, so the arguments have to be the daemon's own too.
    """
    noted = read_pid_file(pid_file)
    arguments = [process for process, words in _command_lines() if words[1:-1] == list(argv[1:])]
    return [process for process in arguments if process != noted and _is_marked(process, pid_file)]


def _is_marked(process: ProcessIdentity, pid_file: Path) -> bool:
    try:
        environment = (PROC / str(process.pid) / "environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False
    return os.fsencode(f"{DAEMON_MARK}={pid_file}") in environment.split(b"\0") and is_alive(process)


def _matches(words: list[str], option: str, value: str, program: str) -> bool:
    if not words or os.path.basename(words[0]) != program:  # noqa: PTH119 - a word of a command line
        return False
    return any(pair == (option, value) for pair in itertools.pairwise(words))


def _command_lines() -> Iterator[tuple[ProcessIdentity, list[str]]]:
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (process := identify(int(entry.name))):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                yield process, (entry / "cmdline").read_text(errors="replace").split("\0")


async def _kill_later(process: ProcessIdentity, grace: timedelta, clock: Clock) -> None:
    await clock.sleep(grace)
    send_signal(process, signal.SIGKILL)


@contextlib.contextmanager
def _pidfd(process: ProcessIdentity) -> Iterator[int | None]:
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        yield None
        return
    try:
        # Looked at after opening: from here on the descriptor can mean no other process.
        yield descriptor if is_alive(process) else None
    finally:
        os.close(descriptor)

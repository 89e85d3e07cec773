"""The small process that keeps containerd and the agent alive: starts them, adopts them, restarts them after a crash.

It runs what the services file says. SIGHUP makes it read the file again; SIGTERM makes it stop everything and end.
Started as `python -m klet.cli.node.supervisor <services file> <pid directory>`.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import msgspec

from klet.aio.clock import Clock, SystemClock
from klet.cli.node.processes import (
    ProcessIdentity,
    daemon_environment,
    identify,
    read_pid_file,
    stop,
    unnoted_daemons,
    wait_for_exit,
    write_pid_file,
)
from klet.cli.node.services import NodeService, plan_services, read_services, restart_delay
from klet.host.errors import HostError
from klet.host.files import mount_in_tree, remove_file, write_atomic
from klet.host.mount_ids import is_in_directory

logger = logging.getLogger(__name__)

STOP_GRACE = timedelta(seconds=20)
LOG_LIMIT = 16 << 20
LOG_CHECK = timedelta(hours=1)
OWN_NAME = "supervisor"
BUSY = 75
"""The exit code of a supervisor that found another one at work."""


class DaemonKeeper:
    """Keeps one daemon alive, and stops it when cancelled."""

    def __init__(self, *, service: NodeService, pids: Path, clock: Clock) -> None:
        self._service = service
        self._pid_file = pids / service.name
        self._digest_file = pids / f"{service.name}.digest"
        self._clock = clock

    async def run(self) -> None:
        delay = timedelta(0)
        while True:
            began = self._clock.monotonic()
            child, process = await self._adopt() or self._start()
            code = await self._wait(child, process)
            lived = timedelta(seconds=self._clock.monotonic() - began)
            delay = restart_delay(delay, lived=lived)
            logger.warning(
                "Daemon ended",
                extra={"daemon": self._service.name, "code": code, "lived": str(lived), "again": str(delay)},
            )
            await self._clock.sleep(delay)

    async def _adopt(self) -> tuple[None, ProcessIdentity] | None:
        """Take over a daemon that an earlier supervisor left; one that was started differently is stopped first."""
        process = read_pid_file(self._pid_file)
        # A supervisor that was killed, or met a full disk, may have started a daemon that no file names.
        for stray in unnoted_daemons(self._pid_file, self._service.argv):
            logger.warning("Daemon without a pid file", extra={"daemon": self._service.name, "pid": stray.pid})
            await stop(stray, grace=STOP_GRACE, clock=self._clock)
        if process is None:
            return None
        with contextlib.suppress(FileNotFoundError):
            if self._digest_file.read_text() == self._service.digest:
                logger.info("Daemon adopted", extra={"daemon": self._service.name, "pid": process.pid})
                return None, process
        await stop(process, grace=STOP_GRACE, clock=self._clock)
        return None

    def _start(self) -> tuple[subprocess.Popen[bytes] | None, ProcessIdentity | None]:
        log = Path(self._service.log)
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            with open(log, "ab") as output:
                child = subprocess.Popen(
                    self._service.argv,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd="/",
                    env=daemon_environment(self._pid_file),
                    start_new_session=True,
                )
        except OSError as error:
            logger.error("Daemon not started", extra={"daemon": self._service.name, "error": str(error)})
            return None, None
        process = identify(child.pid)
        if process is not None:
            self._note(process)
        logger.info("Daemon started", extra={"daemon": self._service.name, "pid": child.pid})
        return child, process

    def _note(self, process: ProcessIdentity) -> None:
        try:
            write_atomic(self._digest_file, self._service.digest.encode(), mode=0o644)
            write_pid_file(self._pid_file, process)
        except HostError as error:
            # On a full disk the daemon is still better than none; who looks for it finds it by its command.
            logger.error("Daemon not noted", extra={"daemon": self._service.name, "error": str(error)})

    async def _wait(self, child: subprocess.Popen[bytes] | None, process: ProcessIdentity | None) -> int | None:
        try:
            if process is not None:
                await wait_for_exit(process)
        except asyncio.CancelledError:
            if process is not None:
                await stop(process, grace=STOP_GRACE, clock=self._clock)
            remove_file(self._pid_file)
            logger.info("Daemon stopped", extra={"daemon": self._service.name})
            raise
        finally:
            # The child has ended by now, so this only collects it.
            code = child.wait() if child is not None else None
        return code


class Supervisor:
    """Runs the services of the file, and follows its changes."""

    def __init__(self, *, services: Path, pids: Path, clock: Clock) -> None:
        self._services = services
        self._pids = pids
        self._clock = clock
        self._changed = asyncio.Event()
        self._ending = False
        self._running: dict[str, tuple[NodeService, asyncio.Task[None]]] = {}

    def reload(self) -> None:
        self._changed.set()

    def end(self) -> None:
        self._ending = True
        # From now on it follows no change, so a later `klet up` has to start another supervisor.
        remove_file(self._pids / OWN_NAME)
        self._changed.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            trimmer = group.create_task(self._trim_logs(), name="logs")
            while not self._ending:
                await self._follow_file(group)
                await self._changed.wait()
                self._changed.clear()
            for name in list(reversed(self._running)):
                await self._stop(name)
            trimmer.cancel()

    async def _follow_file(self, group: asyncio.TaskGroup) -> None:
        try:
            wanted = read_services(self._services)
        except (OSError, msgspec.DecodeError) as error:
            logger.error("Services file not read", extra={"file": str(self._services), "error": str(error)})
            return
        running = {name: service.digest for name, (service, _) in self._running.items()}
        plan = plan_services(running, wanted)
        for name in plan.stop:
            await self._stop(name)
        for service in plan.start:
            keeper = DaemonKeeper(service=service, pids=self._pids, clock=self._clock)
            self._running[service.name] = service, group.create_task(keeper.run(), name=service.name)

    async def _stop(self, name: str) -> None:
        _, task = self._running.pop(name)
        task.cancel()
        await asyncio.wait([task])

    async def _trim_logs(self) -> None:
        while True:
            for service, _ in self._running.values():
                trim_log(Path(service.log), limit=LOG_LIMIT)
            await self._clock.sleep(LOG_CHECK)


def trim_log(path: Path, *, limit: int) -> None:
    """Move a long log aside. The daemon keeps its open file, so the content is copied and the file emptied."""
    try:
        if path.exists() and path.stat().st_size > limit:
            _move_aside(path, path.with_name(f"{path.name}.1"))
    except (OSError, HostError) as error:
        logger.error("Log not moved aside", extra={"log": str(path), "error": str(error)})


def _move_aside(path: Path, aside: Path) -> None:
    with open(path, "r+b") as log:
        if not is_in_directory(log.fileno(), path.parent):
            raise mount_in_tree("empty", path)
        remove_file(aside)
        with open(aside, "xb") as kept:
            shutil.copyfileobj(log, kept)
        os.ftruncate(log.fileno(), 0)


async def supervise(services: Path, pids: Path) -> int:
    """Run until SIGTERM; returns the exit code."""
    with sole_supervisor(pids) as is_sole:
        if not is_sole:
            logger.info("Another supervisor is there")
            return BUSY
        await _supervise(services, pids)
    return 0


@contextlib.contextmanager
def sole_supervisor(pids: Path) -> Iterator[bool]:
    """Lock the directory: two commands in a row may both have started a supervisor. A killed one holds no lock."""
    descriptor = os.open(pids, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


async def _supervise(services: Path, pids: Path) -> None:
    supervisor = Supervisor(services=services, pids=pids, clock=SystemClock())
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, supervisor.reload)
    loop.add_signal_handler(signal.SIGTERM, supervisor.end)
    loop.add_signal_handler(signal.SIGINT, supervisor.end)
    # Only now: who reads the pid may send a signal, and without its handler a SIGHUP would end us.
    own = identify(os.getpid())
    assert own is not None, "a process always sees itself"
    write_pid_file(pids / OWN_NAME, own)
    logger.info("Supervisor started", extra={"pid": own.pid})
    try:
        await supervisor.run()
    finally:
        remove_file(pids / OWN_NAME)
    logger.info("Supervisor ended")


class LineFormatter(logging.Formatter):
    """One line: instant, level, message, and the data as key=value."""

    _STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}

    def format(self, record: logging.LogRecord) -> str:
        data = "".join(f" {key}={value!r}" for key, value in record.__dict__.items() if key not in self._STANDARD)
        return super().format(record) + data


def main() -> int:
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    services, pids = (Path(argument) for argument in sys.argv[1:3])
    return asyncio.run(supervise(services, pids))


if __name__ == "__main__":
    sys.exit(main())

"""Rotates the logs of running containers by size (upstream's container log manager).

A pass measures all logs at once, in a thread and without a call to the runtime; only a log that is too large costs
more. Those are given to a few workers, which compress, rename and have the runtime open a new file.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Protocol

from msgspec import Struct

from klet.aio.clock import Clock
from klet.aio.tasks import run_periodically
from klet.aio.workqueue import WorkQueue
from klet.cri.errors import CriError, CriNotFound
from klet.errors import KletError
from klet.logs.metrics import LogQueueMetrics
from klet.logs.rotated_files import LogProblem
from klet.metrics import MetricRegistry
from klet.model.causes import CauseRecorder, FindingSubject
from klet.model.pods import PodUID
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.model.roles import PodsInRuntime
from klet.model.runtime import ContainerId, PodRuntimeStatus
from klet.model.verbosity import CHANGES
from klet.wire import cri_v1_pb2 as cri

logger = logging.getLogger(__name__)

DECIDER = "logs.rotation"


class LogRotationSettings(Struct, frozen=True, kw_only=True):
    """When logs are rotated, and what is kept of them."""

    max_size: int = 10 << 20
    """Bytes from which on a log is rotated; a negative number switches rotation off."""
    max_files: int = 5
    """Files of one container: the log, the newest rotated one, and compressed ones."""
    workers: int = 1
    interval: timedelta = timedelta(seconds=10)

    @property
    def is_on(self) -> bool:
        return self.max_size >= 0


class LogRuntime(Protocol):
    """The part of the runtime that writes logs."""

    async def container_status(self, request: cri.ContainerStatusRequest) -> cri.ContainerStatusResponse: ...

    async def reopen_container_log(self, request: cri.ReopenContainerLogRequest) -> cri.ReopenContainerLogResponse: ...


class RotatableLogs(Protocol):
    """The files of logs."""

    async def measure(self, paths: Collection[str]) -> Mapping[str, int | LogProblem]: ...

    async def tidy(self, path: str, *, max_files: int, now: datetime) -> str:
        """Remove and compress rotated files; return the name that the log is to get now."""
        ...

    async def rename(self, path: str, name: str) -> None: ...

    async def restore(self, path: str, name: str) -> bool:
        """Undo a rename; False if there is another log by now, which is never replaced."""
        ...


class RunningLog(Struct, frozen=True):
    """The log of a running container."""

    path: str
    subject: FindingSubject


class LogManager:
    """Keeps the logs of running containers small."""

    def __init__(
        self,
        *,
        runtime: LogRuntime,
        seen: PodsInRuntime,
        files: RotatableLogs,
        recorder: CauseRecorder,
        clock: Clock,
        settings: LogRotationSettings,
        registry: MetricRegistry,
    ) -> None:
        self._runtime = runtime
        self._seen = seen
        self._files = files
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)
        self._clock = clock
        self._settings = settings
        self._queue: WorkQueue[ContainerId] = WorkQueue(clock=clock)
        self._metrics = LogQueueMetrics(registry=registry, depth=lambda: len(self._queue), clock=clock)
        self._logs: dict[ContainerId, RunningLog] = {}
        self._failures: dict[ContainerId, str] = {}
        """What was recorded last about a log that cannot be rotated: the same is not recorded in every pass."""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(self._settings.workers):
                group.create_task(self._work())
            await run_periodically(self.check, every=self._settings.interval, clock=self._clock, name=DECIDER)

    async def check(self) -> None:
        """Measure all logs, and leave those that need something to the workers."""
        self._logs = dict(find_running_logs(self._seen.pods()))
        self._failures = {id_: text for id_, text in self._failures.items() if id_ in self._logs}
        if not self._logs:
            return
        sizes = await self._files.measure({log.path for log in self._logs.values()})
        for id_, log in self._logs.items():
            match sizes[log.path]:
                case LogProblem(is_missing=False) as problem:
                    self._fail(id_, log, problem.message)
                case int(size) if size < self._settings.max_size:
                    self._failures.pop(id_, None)
                case _:
                    self._metrics.note_added(id_)
                    self._queue.add(id_)

    async def _work(self) -> None:
        while True:
            id_ = await self._queue.get()
            try:
                with self._metrics.working(id_):
                    if (log := self._logs.get(id_)) is not None:
                        await self._rotate(id_, log)
            finally:
                self._queue.done(id_)

    async def _rotate(self, id_: ContainerId, log: RunningLog) -> None:
        try:
            path = await self._find_large(id_)
            if path is None:
                return
            # Local time, as upstream's names have it.
            now = self._clock.now().astimezone()
            rotated = await self._files.tidy(path, max_files=self._settings.max_files, now=now)
            await self._files.rename(path, rotated)
            await self._reopen_renamed(id_, path, rotated)
        except CriNotFound:
            return  # it has ended since the pass
        except KletError as error:
            self._fail(id_, log, str(error))
        else:
            self._failures.pop(id_, None)
            logger.log(CHANGES, "Container log rotated", extra={"path": path, "rotated": rotated})

    async def _find_large(self, id_: ContainerId) -> str | None:
        """Return the path of a log that is still to be rotated. A log that is missing is opened again first."""
        answer = await self._runtime.container_status(cri.ContainerStatusRequest(container_id=id_))
        path = answer.status.log_path
        # One that does not run writes nothing more, and its newest log should not be empty.
        if answer.status.state != cri.CONTAINER_RUNNING or not path:
            return None
        size = (await self._files.measure((path,)))[path]
        if isinstance(size, LogProblem) and size.is_missing:
            await self._reopen(id_, f"container log {path} does not exist, and was not opened again")
            logger.warning("Container log was missing; the runtime opened a new one", extra={"path": path})
            size = (await self._files.measure((path,)))[path]
        if isinstance(size, LogProblem):
            raise LogNotRotated(size.message)
        return path if size >= self._settings.max_size else None

    async def _reopen_renamed(self, id_: ContainerId, path: str, rotated: str) -> None:
        """Have the runtime write to a new file; if it cannot, give the log its name back for the next pass."""
        try:
            await self._reopen(id_, f"failed to reopen container log {path}")
        except LogNotRotated:
            if not await self._files.restore(path, rotated):
                logger.info("The runtime opened a new log after all", extra={"path": path})
            raise

    async def _reopen(self, id_: ContainerId, failure: str) -> None:
        try:
            await self._runtime.reopen_container_log(cri.ReopenContainerLogRequest(container_id=id_))
        except CriError as error:
            raise LogNotRotated(f"{failure}: {error}") from error

    def _fail(self, id_: ContainerId, log: RunningLog, message: str) -> None:
        if self._failures.get(id_) == message:
            return
        self._failures[id_] = message
        logger.error("Container log not rotated", extra={"path": log.path, "error": message})
        self._decisions.about(log.subject).record(
            Reason.LOG_NOT_ROTATED, message, next_step=f"try again every {self._settings.interval.total_seconds():g} s"
        )


class LogNotRotated(KletError):
    """A log that stays as it is."""


def find_running_logs(pods: Mapping[PodUID, PodRuntimeStatus]) -> Mapping[ContainerId, RunningLog]:
    """Return the logs of all running containers."""
    return {
        record.id: RunningLog(record.log_path, FindingSubject(pod.namespace, pod.name, uid, record.name))
        for uid, pod in pods.items()
        for record in pod.running()
        if record.log_path
    }

"""Ends containers that run although the runtime takes them for dead.

containerd loses a container if the caller of its start goes away at the wrong moment, as a killed agent does: the
CRI shows it as ended, it runs on, and it can be neither stopped nor removed through the CRI.
"""

import logging
import re
import signal
from collections.abc import AsyncGenerator
from contextlib import suppress
from datetime import timedelta
from typing import Protocol

from google.protobuf.empty_pb2 import Empty

from klet.aio.clock import Clock
from klet.cri.connection import CriTransport
from klet.cri.errors import CriError, CriNotFound
from klet.wire import containerd_tasks_pb2 as containerd
from klet.wire import cri_v1_pb2 as cri
from klet.wire.methods import Method, RequestT, ResponseT, method_of

logger = logging.getLogger(__name__)

ANSWERS_WITHIN = timedelta(seconds=10)
ATTEMPTS = 20
PAUSE = timedelta(milliseconds=50)

_TASKS = containerd.DESCRIPTOR.services_by_name["Tasks"]
KILL = method_of(_TASKS, "Kill", containerd.KillRequest, Empty)
DELETE = method_of(_TASKS, "Delete", containerd.DeleteTaskRequest, containerd.DeleteResponse)
_LOST = re.compile(r"cannot delete running task (\w+)")


class TaskEnder(Protocol):
    """Ends a container behind the CRI's back."""

    async def end(self, container_id: str) -> None:
        """End the task, and return when it is gone; raises CriError."""
        ...


class ContainerdTasks:
    """containerd's own view of what runs."""

    def __init__(self, *, connection: CriTransport, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock

    async def end(self, container_id: str) -> None:
        kill = containerd.KillRequest(container_id=container_id, signal=signal.SIGKILL, all=True)
        with suppress(CriNotFound):  # it has ended, and only its record is left
            await self._connection.call(KILL, kill, timeout=ANSWERS_WITHIN)
        await self._delete(containerd.DeleteTaskRequest(container_id=container_id))

    async def _delete(self, request: containerd.DeleteTaskRequest) -> None:
        for attempts_left in reversed(range(ATTEMPTS)):
            try:
                await self._connection.call(DELETE, request, timeout=ANSWERS_WITHIN)
            except CriNotFound:
                return
            except CriError:  # it takes some moments to die
                if not attempts_left:
                    raise
                await self._clock.sleep(PAUSE)
            else:
                return


class LostTaskRemover:
    """Calls of another transport; a removal that fails because of a lost task ends that task and is repeated once."""

    def __init__(self, *, inner: CriTransport, tasks: TaskEnder) -> None:
        self._inner = inner
        self._tasks = tasks

    @property
    def endpoint(self) -> str:
        return self._inner.endpoint

    def stream(self, method: Method[RequestT, ResponseT], request: RequestT) -> AsyncGenerator[ResponseT, None]:
        return self._inner.stream(method, request)

    async def call(
        self, method: Method[RequestT, ResponseT], request: RequestT, *, timeout: timedelta | None
    ) -> ResponseT:
        try:
            return await self._inner.call(method, request, timeout=timeout)
        except CriError as error:
            lost = find_lost_task(request, error)
            if lost is None:
                raise
            logger.warning("A container runs that the runtime takes for dead; it is ended", extra={"container": lost})
            await self._tasks.end(lost)
        return await self._inner.call(method, request, timeout=timeout)


def find_lost_task(request: object, error: CriError) -> str | None:
    """Return the container that a removal failed for, if it is lost."""
    if not isinstance(request, cri.RemoveContainerRequest | cri.RemovePodSandboxRequest):
        return None
    found = _LOST.search(error.message)
    return found.group(1) if found is not None else None

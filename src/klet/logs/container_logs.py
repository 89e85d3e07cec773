"""The log of a container, found through the runtime."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from klet.aio.clock import Clock
from klet.cri.errors import CriError, CriNotFound, Unavailable
from klet.cri.port import RuntimeService
from klet.logs.reader import read_logs
from klet.logs.render import LogOptions, resolve_since
from klet.model.log_query import LogQuery
from klet.model.runtime import ContainerId
from klet.wire import cri_v1_pb2 as cri


class ContainerLogs:
    """Reads container logs at the paths that the runtime reports."""

    def __init__(self, *, runtime: RuntimeService, clock: Clock) -> None:
        self._runtime = runtime
        self._clock = clock
        self._turns = asyncio.Lock()

    async def read(self, container: ContainerId, query: LogQuery) -> AsyncGenerator[bytes, None]:
        """Yield pieces of the log. The caller closes the generator."""
        answer = await self._runtime.container_status(cri.ContainerStatusRequest(container_id=container))
        options = LogOptions(
            follow=query.follow,
            tail=query.tail_lines,
            since=resolve_since(seconds=query.since_seconds, time=query.since_time, now=self._clock.now()),
            limit=query.limit_bytes,
            timestamps=query.timestamps,
            stream=query.stream,
        )

        async def is_running() -> bool:
            return await self._is_running(container)

        path = Path(answer.status.log_path)
        logs = read_logs(path, options, is_running=is_running, clock=self._clock, turns=self._turns)
        async with aclosing(logs) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _is_running(self, container: ContainerId) -> bool:
        try:
            answer = await self._runtime.container_status(cri.ContainerStatusRequest(container_id=container))
        except Unavailable:
            return True  # a runtime that restarts says nothing about its containers
        except CriNotFound:
            return False
        except CriError:
            return True
        return answer.status.state == cri.CONTAINER_RUNNING

"""Opens the runtime."""

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta

from klet.aio.clock import Clock
from klet.app.settings import AgentSettings
from klet.cri.client import CriClient, connect
from klet.cri.connection import open_connection
from klet.cri.errors import CriError
from klet.model.causes import CauseRecorder
from klet.runtime.quirks.late_calls import WatchedTransport
from klet.runtime.quirks.lost_tasks import NAMESPACE, ContainerdTasks, LostTaskRemover

logger = logging.getLogger(__name__)

RUNTIME_PATIENCE = timedelta(seconds=30)
RUNTIME_PAUSE = timedelta(milliseconds=200)


@asynccontextmanager
async def connect_patiently(settings: AgentSettings, clock: Clock) -> AsyncIterator[CriClient]:
    """Connect to a runtime that may still be starting."""
    give_up = clock.monotonic() + RUNTIME_PATIENCE.total_seconds()
    told = ""
    async with AsyncExitStack() as opened:
        while True:
            try:
                client = await opened.enter_async_context(
                    connect(
                        runtime_endpoint=settings.runtime_endpoint,
                        image_endpoint=settings.image_endpoint,
                        timeout=settings.request_timeout,
                    )
                )
                break
            except CriError as error:
                if clock.monotonic() >= give_up:
                    raise
                if str(error) != told:
                    told = str(error)
                    logger.info("Waiting for the runtime", extra={"error": told})
                await clock.sleep(RUNTIME_PAUSE)
        yield client


@asynccontextmanager
async def open_runtime(settings: AgentSettings, recorder: CauseRecorder, clock: Clock) -> AsyncIterator[CriClient]:
    """A client that tells of calls which are not answered in time, and of containers that the runtime has lost."""
    async with (
        connect_patiently(settings, clock) as plain,
        open_connection(settings.runtime_endpoint, metadata=NAMESPACE) as own,
    ):
        repaired = LostTaskRemover(inner=plain.runtime, tasks=ContainerdTasks(connection=own, clock=clock))
        watched = WatchedTransport(inner=repaired, recorder=recorder, clock=clock)
        yield CriClient(runtime=watched, images=plain.images, timeout=settings.request_timeout)

"""Waiting for the first of several things, leaving no task behind; guarded periodic work, whose next pass still comes
after one that failed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any, TypeVar

from klet.aio.clock import Clock

T = TypeVar("T")
logger = logging.getLogger(__name__)


async def first_of(*waits: Coroutine[Any, Any, object]) -> None:
    """Return when one of the waits has ended; the others are cancelled and awaited. Their results are dropped."""
    async with asyncio.TaskGroup() as group:
        one_ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def end(_task: asyncio.Task[object]) -> None:
            if not one_ended.done():
                one_ended.set_result(None)

        tasks = [group.create_task(wait) for wait in waits]
        for task in tasks:
            task.add_done_callback(end)
        await one_ended
        for task in tasks:
            task.cancel()


async def run_periodically(work: Callable[[], Awaitable[None]], *, every: timedelta, clock: Clock, name: str) -> None:
    """Call `work` now and then `every` after the end of each pass, until cancelled."""
    while True:
        try:
            await work()
        except Exception as error:
            logger.error("Periodic work failed", extra={"work": name, "error": repr(error)}, exc_info=error)
        await clock.sleep(every)

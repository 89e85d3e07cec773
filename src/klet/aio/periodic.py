"""Guarded periodic work: one failing pass is logged and the next one still comes."""

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

from klet.aio.clock import Clock

logger = logging.getLogger(__name__)


async def run_periodically(work: Callable[[], Awaitable[None]], *, every: timedelta, clock: Clock, name: str) -> None:
    """Call `work` now and then `every` after the end of each pass, until cancelled."""
    while True:
        try:
            await work()
        except Exception as error:
            logger.error("Periodic work failed", extra={"work": name, "error": repr(error)}, exc_info=error)
        await clock.sleep(every)

"""Runs the parts of the agent until a signal ends it or one of them fails."""

import asyncio
import logging
import signal
from collections.abc import Callable, Sequence

from klet.aio.stop_request import StopRequest
from klet.errors import KletError
from klet.model.roles import Part

logger = logging.getLogger(__name__)


async def run_parts(parts: Sequence[Part], *, stop: StopRequest, when_started: Callable[[], None]) -> None:
    """Run every part in one task group. SIGTERM and SIGINT end it in good order; an escaping exception is a bug."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.ask)
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(part.run(), name=type(part).__name__) for part in parts]
            when_started()
            await stop.wait()
            logger.info("Stopping; pods keep running")
            for task in tasks:
                task.cancel()
    except BaseExceptionGroup as group_error:
        # One that klet raised on purpose, such as a socket that cannot be bound, is a message and no bug.
        if len(group_error.exceptions) == 1 and isinstance(cause := group_error.exceptions[0], KletError):
            raise cause from None
        raise
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)

"""Runs the parts of the agent until a signal ends it or one of them fails."""

import asyncio
import logging
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from klet.errors import KletError
from klet.model.roles import Part

logger = logging.getLogger(__name__)


class StopRequest:
    """Whether the agent is to end in good order, whoever wants it first: a signal, or another agent."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self._opening: asyncio.Task[object] | None = None

    def ask(self) -> None:
        """End the agent. What is still being opened is cancelled: it may wait for hours, as for a certificate."""
        if self._opening is not None and not self._asked.is_set():
            self._opening.cancel()
        self._asked.set()

    async def wait(self) -> None:
        await self._asked.wait()

    @contextmanager
    def during_opening(self) -> Iterator[None]:
        """Cancel the block if the agent is to end meanwhile; SIGTERM counts. SIGINT raises KeyboardInterrupt there."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.ask)
        self._opening = asyncio.current_task()
        try:
            yield
        except BaseException:
            loop.remove_signal_handler(signal.SIGTERM)
            raise
        finally:
            self._opening = None


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

"""A request for a clean shutdown of the process, which may come while it is still opening files and connections."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager


class StopRequest:
    """Whether the agent has to shut down cleanly: because of a signal, or of another agent that takes over."""

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

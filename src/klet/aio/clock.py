"""Time as a port: everything that waits or reads the time uses a Clock."""

import asyncio
import time
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol


class Clock(Protocol):
    """Wall time, monotonic time and waiting."""

    def now(self) -> datetime:
        """Return aware UTC wall time."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never step back, for measuring durations."""
        ...

    async def sleep(self, duration: timedelta) -> None: ...

    async def sleep_until(self, at: datetime) -> None: ...

    async def wait(self, what: Coroutine[Any, Any, object], *, at_most: timedelta) -> None:
        """Wait for `what` at most that long, then cancel it."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, duration: timedelta) -> None:
        await asyncio.sleep(max(0.0, duration.total_seconds()))

    async def sleep_until(self, at: datetime) -> None:
        await self.sleep(at - self.now())

    async def wait(self, what: Coroutine[Any, Any, object], *, at_most: timedelta) -> None:
        await _wait(what, at_most)


class LoopClock:
    """The time of the running event loop: virtual on a virtual loop, so that a simulation has one time."""

    def __init__(self, *, epoch: datetime) -> None:
        self._epoch = epoch

    def now(self) -> datetime:
        return self._epoch + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, duration: timedelta) -> None:
        await asyncio.sleep(max(0.0, duration.total_seconds()))

    async def sleep_until(self, at: datetime) -> None:
        await self.sleep(at - self.now())

    async def wait(self, what: Coroutine[Any, Any, object], *, at_most: timedelta) -> None:
        await _wait(what, at_most)


async def _wait(what: Coroutine[Any, Any, object], at_most: timedelta) -> None:
    """Wait by the time of the loop, without a task of its own: most loops of the agent wait all the time.

    This is asyncio.timeout without its exception, which would cost half of the time.
    """
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("only a task can wait")
    is_over = False

    def end() -> None:
        nonlocal is_over
        is_over = True
        task.cancel()

    cancelled_before = task.cancelling()
    loop, seconds = asyncio.get_running_loop(), at_most.total_seconds()
    timer = loop.call_later(seconds, end) if seconds > 0 else loop.call_soon(end)
    try:
        await what
    except asyncio.CancelledError:
        # A cancellation by another task at the same time must not be swallowed.
        if not is_over or task.cancelling() > cancelled_before + 1:
            raise
    finally:
        timer.cancel()
        if is_over:
            task.uncancel()

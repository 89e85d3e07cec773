"""Shared sleeps: workers that wait for the same instant wake together."""

import asyncio
from datetime import timedelta

from klet.aio.clock import Clock


class Steps:
    """Wakes together those that sleep until the same instant: one of them sleeps, the others wait for that one."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[float, list[asyncio.Future[None]]] = {}

    async def sleep_until(self, at: float) -> None:
        """Sleep until an instant of the monotonic clock. If the one that sleeps is cancelled, all wake too early."""
        waiting = self._waiting.get(at)
        if waiting is not None:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            waiting.append(waiter)
            await waiter
            return
        waiting = self._waiting[at] = []
        try:
            await self._clock.sleep(timedelta(seconds=at - self._clock.monotonic()))
        finally:
            del self._waiting[at]
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_result(None)

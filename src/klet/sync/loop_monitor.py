"""Health of the sync loop (syncLoopMonitor): whether it could take in a change recently."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from klet.aio.clock import Clock

PERIOD = timedelta(seconds=5)
SHORTEST_PATIENCE = timedelta(minutes=5)


class SyncLoopMonitor:
    """Records when the loop was last ready. While the runtime is not well it is not: nothing new is begun then."""

    def __init__(self, *, until_runtime_well: Callable[[], Awaitable[None]], clock: Clock, resync: timedelta) -> None:
        self._until_runtime_well = until_runtime_well
        self._clock = clock
        self._resync = resync
        self._entered_at: datetime | None = None

    async def run(self) -> None:
        while True:
            await self.until_ready()
            self._entered_at = self._clock.now()
            await self._clock.sleep(PERIOD)

    async def until_ready(self) -> None:
        await self._until_runtime_well()

    def health_error(self) -> str | None:
        """Return why the loop counts as stuck, or None. A loop that has not begun yet does not."""
        return describe_loop(self._entered_at, now=self._clock.now(), resync=self._resync)


def describe_loop(entered_at: datetime | None, *, now: datetime, resync: timedelta) -> str | None:
    """Return what is wrong with a loop that was last ready at `entered_at`, or None."""
    if entered_at is None or now - entered_at <= max(2 * resync, SHORTEST_PATIENCE):
        return None
    return "sync Loop took longer than expected"

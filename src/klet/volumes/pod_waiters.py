"""Tasks that wait until the volumes of a pod have reached a state."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

from klet.aio.clock import Clock
from klet.aio.tasks import first_of
from klet.model.pods import PodUID


class PodWaiters:
    """One event per waiting task, set by every change of its pod's volumes."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._changed: dict[PodUID, set[asyncio.Event]] = {}

    def notify(self, uid: PodUID) -> None:
        """Wake the tasks that wait for this pod: something has changed."""
        for changed in self._changed.get(uid, ()):
            changed.set()

    async def wait_until(self, uid: PodUID, is_done: Callable[[], bool], *, patience: timedelta) -> None:
        """Return when it is done or patience is over. It is checked at once, and again after each notification."""
        give_up = self._clock.monotonic() + patience.total_seconds()
        changed = asyncio.Event()
        self._changed.setdefault(uid, set()).add(changed)
        try:
            while not is_done():
                left = give_up - self._clock.monotonic()
                if left <= 0:
                    return
                changed.clear()
                await first_of(changed.wait(), self._clock.sleep(timedelta(seconds=left)))
        finally:
            self._changed[uid].discard(changed)
            if not self._changed[uid]:
                del self._changed[uid]

"""Waiting for something to happen to a pod's volumes."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

from klet.aio.clock import Clock
from klet.aio.tasks import first_of
from klet.model.pods import PodUID


class PodBells:
    """One bell per waiter. Whoever changes something of a pod rings."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._bells: dict[PodUID, set[asyncio.Event]] = {}

    def ring(self, uid: PodUID) -> None:
        for bell in self._bells.get(uid, ()):
            bell.set()

    async def until(self, uid: PodUID, is_done: Callable[[], bool], *, patience: timedelta) -> None:
        """Until it is done, or patience is over. It is looked at once, and again after each ring."""
        give_up = self._clock.monotonic() + patience.total_seconds()
        bell = asyncio.Event()
        self._bells.setdefault(uid, set()).add(bell)
        try:
            while not is_done():
                left = give_up - self._clock.monotonic()
                if left <= 0:
                    return
                bell.clear()
                await first_of(bell.wait(), self._clock.sleep(timedelta(seconds=left)))
        finally:
            self._bells[uid].discard(bell)
            if not self._bells[uid]:
                del self._bells[uid]

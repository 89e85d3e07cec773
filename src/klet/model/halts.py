"""Pods that were told to stop, for work on their behalf that may be given up then: a pull, a wait for a turn.

Only work that leaves nothing half-done may be run under it.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from klet.aio.tasks import first_of
from klet.errors import KletError
from klet.model.pods import PodUID

T = TypeVar("T")


class Halted(KletError):
    """The work was given up, because its pod is to stop."""


class PodHalts:
    """Pods that are to stop. Written by the pod workers only."""

    def __init__(self) -> None:
        self._halted: set[PodUID] = set()
        self._waiting: dict[PodUID, dict[asyncio.Event, None]] = {}

    def halt(self, uid: PodUID) -> None:
        self._halted.add(uid)
        for event in self._waiting.get(uid, ()):
            event.set()

    def clear(self, uid: PodUID) -> None:
        """The pod is over; one of the same UID may come."""
        self._halted.discard(uid)

    def is_halted(self, uid: PodUID) -> bool:
        return uid in self._halted

    async def run(self, uid: PodUID, work: Coroutine[Any, Any, T]) -> T:
        """The result of the work; or Halted, and then the work has been cancelled and has ended."""
        if uid in self._halted:
            work.close()
            raise Halted("the pod is to stop")
        results: list[T] = []

        async def keep() -> None:
            results.append(await work)

        event = asyncio.Event()
        self._waiting.setdefault(uid, {})[event] = None
        try:
            await first_of(keep(), event.wait())
        except BaseExceptionGroup as group:
            # What the work raises is for its caller to handle, as if it had been awaited there.
            raise group.exceptions[0] from None
        finally:
            del self._waiting[uid][event]
            if not self._waiting[uid]:
                del self._waiting[uid]
        if not results:
            raise Halted("the pod is to stop")
        return results[0]

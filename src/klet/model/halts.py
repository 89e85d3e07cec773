"""Pods that were told to stop, for work on their behalf that may be given up then: a pull, a wait for a turn.

Only work that leaves nothing half-done may be run under it.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from klet.errors import KletError
from klet.model.pods import PodUID

T = TypeVar("T")


class Halted(KletError):
    """The work was given up, because its pod is to stop."""


class PodHalts:
    """Pods that are to stop. Written by the pod workers only."""

    def __init__(self) -> None:
        self._halted: set[PodUID] = set()
        self._running: dict[PodUID, dict[asyncio.Timeout, None]] = {}

    def halt(self, uid: PodUID) -> None:
        if uid in self._halted:
            return
        self._halted.add(uid)
        for scope in self._running.get(uid, ()):
            scope.reschedule(0)  # it is over at once

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
        try:
            async with asyncio.timeout(None) as scope:
                with self._while_it_runs(uid, scope):
                    return await work
        except TimeoutError:
            if not scope.expired():
                raise  # it is an answer of the work itself
            raise Halted("the pod is to stop") from None

    @contextmanager
    def _while_it_runs(self, uid: PodUID, scope: asyncio.Timeout) -> Iterator[None]:
        self._running.setdefault(uid, {})[scope] = None
        try:
            yield
        finally:
            del self._running[uid][scope]
            if not self._running[uid]:
                del self._running[uid]

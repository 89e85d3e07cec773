"""Which pods are stopping, so that code that waits for them gives up: for an image pull, for a turn to start.

Only work that may be cancelled at any point runs under it.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from klet.errors import KletError
from klet.model.pods import PodUID

T = TypeVar("T")


class PodStopping(KletError):
    """The work was cancelled, because its pod is to stop."""


class StoppingPods:
    """Pods that are to stop. Written by the pod workers only."""

    def __init__(self) -> None:
        self._stopping: set[PodUID] = set()
        self._running: dict[PodUID, dict[asyncio.Timeout, None]] = {}

    def mark(self, uid: PodUID) -> None:
        if uid in self._stopping:
            return
        self._stopping.add(uid)
        for scope in self._running.get(uid, ()):
            scope.reschedule(0)  # a deadline in the past cancels at once

    def clear(self, uid: PodUID) -> None:
        """Forget a pod that has ended; a static pod may come again with the same UID."""
        self._stopping.discard(uid)

    def is_stopping(self, uid: PodUID) -> bool:
        return uid in self._stopping

    async def run(self, uid: PodUID, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of the work, or raise PodStopping after the cancelled work has ended."""
        if uid in self._stopping:
            work.close()
            raise PodStopping("the pod is to stop")
        try:
            async with asyncio.timeout(None) as scope:
                with self._while_it_runs(uid, scope):
                    return await work
        except TimeoutError:
            if not scope.expired():
                raise  # the timeout is one of the work itself
            raise PodStopping("the pod is to stop") from None

    @contextmanager
    def _while_it_runs(self, uid: PodUID, scope: asyncio.Timeout) -> Iterator[None]:
        self._running.setdefault(uid, {})[scope] = None
        try:
            yield
        finally:
            del self._running[uid][scope]
            if not self._running[uid]:
                del self._running[uid]
